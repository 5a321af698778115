"""`block_kernel`: a kernel over a grid of blocks that stays one kernel, for backends that have a form of their own for such.

Its body is a pure graph: from the program ids, the blocks of inputs and of results as they are found, and scratch buffers, to
what the written ones hold. Programs along `parallel` dimensions of the grid need nothing of each other; the others run in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType


@dataclass(frozen=True)
class Dimension:
    """A block along one dimension of its array: `size` elements, which begin `unit` times the index map's number; a `squeezed` one is
    not seen by the body."""

    size: int
    unit: int
    squeezed: bool


@dataclass(frozen=True, eq=False)
class BlockKernel:
    """The kernel. `written` are positions among the body's results' arrays and scratch buffers: result n is input `len(inputs) + n`.

    `epilogue` takes the blocks of all results as the body leaves them, then those of the last `extra` inputs, which the body does not
    take; it gives what is stored.
    """

    name: str
    body: Graph
    index_maps: tuple[Graph, ...]
    blocks: tuple[tuple[Dimension, ...], ...]
    grid: tuple[int, ...]
    parallel: tuple[int, ...]
    vmapped: int
    aliases: tuple[tuple[int, int], ...]
    written: tuple[int, ...]
    interpret: Callable[[Sequence[Any]], list[np.ndarray]]
    epilogue: Graph | None = None
    extra: int = 0
    asked: tuple[tuple[str, int], ...] = ()  # options of the launch that the user has chosen


def _type(*avals: ArrayType, kernel: BlockKernel, out_avals: tuple[ArrayType, ...]) -> tuple[ArrayType, ...]:
    return out_avals


block_kernel_p: Primitive = register(
    Primitive(
        "block_kernel",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_type,
        eval=lambda *arrays, kernel, out_avals: kernel.interpret(arrays),
    )
)
