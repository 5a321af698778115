"""The Kernel form: parallel axes, reduced axes, and sweeps that each run once over the reduced axes.

All values are `Scalar` nodes. A sweep computes its row-level nodes, then loops over the reduced axes: body nodes, reductions
and stores. A later sweep may use the reductions of earlier ones. A kernel without reduced axes has one sweep and only rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact


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
    mask under which it may be read; elsewhere its value is not used. `index` is the same element dimension by dimension,
    for machines that read tiles."""

    param: int
    offset: Affine
    index: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class ReductionSpec:
    """`attr` of a `reduction` or `scan` node: the reduction's name, the dtype it accumulates in, and a scan's direction.

    For argmax and argmin the node's own dtype is the position's; the position is that along the kernel's reduced axis.
    """

    reduction: str
    accumulator: np.dtype
    reverse: bool = False

    @property
    def positional(self) -> bool:
        """Whether it gives the position of an extreme."""
        return self.reduction in ("argmax", "argmin")

    @property
    def compensated(self) -> bool:
        """Whether it is a sum that rounds: every backend keeps its error to that of pairwise summation."""
        return self.reduction == "sum" and is_inexact(self.accumulator)


@dataclass(frozen=True, eq=False)
class Store:
    """Write `value` to parameter `param` at `offset`; `index` as in Access. With `total` the values of all rows are summed. What it
    writes may be the memory of parameter `over`, which no later sweep reads."""

    param: int
    offset: Affine
    value: Scalar
    index: tuple[Affine, ...] = ()
    total: ReductionSpec | None = None
    over: int | None = None


@dataclass(frozen=True, eq=False)
class Sweep:
    """One run over the reduced axes.

    `row` and `row_stores` come first, once a row; then, over the reduced axes, `body` (nodes in order, scans among
    them), `reductions` and `stores`. Nodes that an earlier sweep also has are computed again, unless they are `kept`.
    """

    row: tuple[Scalar, ...]
    row_stores: tuple[Store, ...]
    body: tuple[Scalar, ...]
    reductions: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    kept: tuple[Scalar, ...] = ()  # body nodes dear enough to keep a row of, for later sweeps

    @property
    def loops(self) -> bool:
        """Whether the sweep runs over the reduced axes at all."""
        return bool(self.reductions or self.stores)


@dataclass(frozen=True)
class Carried:
    """`attr` of a `carry` node (a number that iterations hand on, as an iteration finds it) and of a `final` node (what
    it is after the last one): its position in `Loop.carries`, and the axes along which it differs between lanes."""

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
    """The loop that each lane of a kernel runs, between the kernel's two sweeps.

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
    """The loop program of one group, whose `frames` run after it. With a `loop` there are two sweeps of rows, before it and after it."""

    name: str
    params: tuple[Param, ...]
    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    sweeps: tuple[Sweep, ...]
    comments: tuple[str, ...] = ()
    loop: Loop | None = None
    frames: tuple[
        Kernel, ...
    ] = ()  # of the same arrays, which copy what lies around values that are written into larger ones

    @property
    def nodes(self) -> tuple[Scalar, ...]:
        """All nodes that the kernel computes, each once."""
        found = [n for sweep in self.sweeps for n in (*sweep.row, *sweep.body)]
        return tuple(dict.fromkeys([*found, *(self.loop.body if self.loop else ())]))

    @property
    def stores(self) -> tuple[Store, ...]:
        """All that the kernel writes."""
        found = [s for sweep in self.sweeps for s in (*sweep.row_stores, *sweep.stores)]
        return (*found, *(self.loop.stores if self.loop else ()))

    def __str__(self) -> str:
        from fuser.kernel.text import show

        return show(self)


def reduction_identity(reduction: str, dtype: np.dtype) -> Any:
    """The value of a reduction over nothing."""
    if reduction in ("sum", "or", "xor"):
        return dtype.type(0)
    if reduction == "prod":
        return dtype.type(1)
    if reduction == "and":
        return dtype.type(True) if dtype == np.bool_ else dtype.type(-1 if dtype.kind == "i" else np.iinfo(dtype).max)
    low = reduction in ("max", "argmax", "logaddexp")
    if dtype == np.bool_:
        return dtype.type(not low)
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min if low else np.iinfo(dtype).max)
    return dtype.type(-np.inf if low else np.inf)
