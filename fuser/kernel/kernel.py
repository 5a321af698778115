"""The Kernel form: parallel axes, reduced axes, and stages that each run once over the reduced axes.

All values are `Scalar` nodes. A stage computes its row-level nodes, then loops over the reduced axes: body nodes, folds
and stores. A later stage may use the folds of earlier ones. A kernel without reduced axes has one stage and only rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar


@dataclass(frozen=True)
class Param:
    """An array that the kernel reads (`out` False) or writes; dense and row-major."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    out: bool


@dataclass(frozen=True, eq=False)
class Access:
    """`attr` of a `load` node: the element of parameter `param` at `offset`. A load's operand, where it has one, is the
    mask under which it may be read; elsewhere its value is not used. `index` is the same place dimension by dimension,
    for machines that read tiles."""

    param: int
    offset: Affine
    index: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class FoldSpec:
    """`attr` of a `fold` or `scan` node: the fold's name, the dtype it accumulates in, and a scan's direction.

    For argmax and argmin the node's own dtype is the position's; the position is that along the kernel's reduced axis.
    """

    fold: str
    accumulator: np.dtype
    reverse: bool = False


@dataclass(frozen=True, eq=False)
class Store:
    """Write `value` to parameter `param` at `offset`; `index` as in Access."""

    param: int
    offset: Affine
    value: Scalar
    index: tuple[Affine, ...] = ()


@dataclass(frozen=True, eq=False)
class Stage:
    """One run over the reduced axes.

    `row` and `row_stores` come first, once a row; then, over the reduced axes, `body` (nodes in order, scans among
    them), `folds` and `stores`. Nodes that an earlier stage also has are computed again, unless they are `kept`.
    """

    row: tuple[Scalar, ...]
    row_stores: tuple[Store, ...]
    body: tuple[Scalar, ...]
    folds: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    kept: tuple[Scalar, ...] = ()  # body nodes dear enough to keep a row of, for later stages

    @property
    def loops(self) -> bool:
        """Whether the stage runs over the reduced axes at all."""
        return bool(self.folds or self.stores)


@dataclass(frozen=True)
class Carried:
    """`attr` of a `carry` node (a number that iterations hand on, as an iteration finds it) and of a `final` node (what
    it is after the last one): its place in `Loop.carries`, and the axes along which it differs between lanes."""

    number: int
    axes: frozenset[Axis]


@dataclass(frozen=True, eq=False)
class Carry:
    """A number that one iteration hands on to the next: the `carry` node that stands for it, its first value, the value
    after one iteration, and which of the loop's predicates guards it."""

    node: Scalar
    initial: Scalar
    following: Scalar
    guard: int = 0


@dataclass(frozen=True, eq=False)
class Loop:
    """The loop that each lane of a kernel runs, between the kernel's two stages.

    It runs `time.extent` times; without `time`, while any of `predicates` holds in any lane, and a carry keeps its value
    where its guard does not hold. `body` are the nodes of one iteration, in order; `stores` what it leaves in memory.
    """

    time: Axis | None
    carries: tuple[Carry, ...]
    predicates: tuple[Scalar, ...]
    body: tuple[Scalar, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, eq=False)
class Kernel:
    """The loop program of one group. With a `loop` there are two stages of rows, before it and after it."""

    name: str
    params: tuple[Param, ...]
    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]
    stages: tuple[Stage, ...]
    comments: tuple[str, ...] = ()
    loop: Loop | None = None

    @property
    def nodes(self) -> tuple[Scalar, ...]:
        """All nodes that the kernel computes, each once."""
        found = [n for stage in self.stages for n in (*stage.row, *stage.body)]
        return tuple(dict.fromkeys([*found, *(self.loop.body if self.loop else ())]))

    @property
    def stores(self) -> tuple[Store, ...]:
        """All that the kernel writes."""
        found = [s for stage in self.stages for s in (*stage.row_stores, *stage.stores)]
        return (*found, *(self.loop.stores if self.loop else ()))

    def __str__(self) -> str:
        from fuser.kernel.text import show

        return show(self)


def fold_identity(fold: str, dtype: np.dtype) -> Any:
    """The value of a fold over nothing."""
    if fold in ("sum", "or", "xor"):
        return dtype.type(0)
    if fold == "prod":
        return dtype.type(1)
    if fold == "and":
        return dtype.type(True) if dtype == np.bool_ else dtype.type(-1 if dtype.kind == "i" else np.iinfo(dtype).max)
    low = fold in ("max", "argmax", "logaddexp")
    if dtype == np.bool_:
        return dtype.type(not low)
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min if low else np.iinfo(dtype).max)
    return dtype.type(-np.inf if low else np.inf)
