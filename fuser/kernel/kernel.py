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
    mask under which it may be read; elsewhere its value is not used."""

    param: int
    offset: Affine


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
    """Write `value` to parameter `param` at `offset`."""

    param: int
    offset: Affine
    value: Scalar


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


@dataclass(frozen=True, eq=False)
class Kernel:
    """The loop program of one group."""

    name: str
    params: tuple[Param, ...]
    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]
    stages: tuple[Stage, ...]
    comments: tuple[str, ...] = ()

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
