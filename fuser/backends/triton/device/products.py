"""Which products cuBLASLt takes, and how their operands lie: a group's one dot product over strided views of its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.types import short_dtype
from fuser.legalise.strided_operands import laid
from fuser.ops.dot import free_dimensions
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup
from fuser.runtime.core import native

# cuBLAS's numbers of a dtype, of what products of it are computed in, and of its factors (library_types.h, cublas_api.h)
TYPES = {
    "f32": (0, 68, 0),
    "f64": (1, 70, 1),
    "f16": (2, 68, 0),
    "bf16": (14, 68, 0),
    "c64": (4, 68, 4),
    "c128": (5, 70, 5),
}

Dims = Sequence[tuple[int, int]]  # (extent, stride in elements), outermost first


@dataclass(frozen=True)
class Side:
    """One operand: of which of the group's inputs, from which byte, and its rows' and batch's distances in elements."""

    source: Var
    first: int
    leading: int
    flipped: bool
    stride: int


@dataclass(frozen=True)
class Product:
    """A product as cuBLASLt takes it."""

    dtype: np.dtype
    batch: int
    m: int
    n: int
    k: int
    a: Side
    b: Side

    def planned(self, alignment: int) -> Any:
        """The native core's product of arrays at multiples of so many bytes. Raises RuntimeError where cuBLASLt has none."""
        sides = ((s.leading, s.flipped, s.stride) for s in (self.a, self.b))
        return native.blas_product(
            *TYPES[short_dtype(self.dtype)], self.batch, self.m, self.n, self.k, alignment, *sides
        )


def product(group: FusionGroup) -> Product | None:
    """The group as one product; None where it is none, or lies in memory as cuBLASLt does not read it."""
    eqn = group.graph.eqns[-1]
    out = eqn.outvars[0].aval
    plain = eqn.primitive.fusion is Fusion.DOT and short_dtype(out.dtype) in TYPES and out.size > 0
    if (
        not plain
        or any(v.aval.dtype != out.dtype or not v.aval.size for v in eqn.invars)
        or len(group.graph.outvars) != 1
    ):
        return None
    views = Views(group.graph.eqns)
    left, right = (_laid(views, v, group) for v in eqn.invars)
    if left is None or right is None or group.graph.outvars[0] is not eqn.outvars[0]:
        return None
    return _as_matrices(eqn, left, right)


def _laid(views: Views, operand: Operand, group: FusionGroup) -> tuple[Var, int, Dims] | None:
    """The input that an operand reads, from which byte, and its dimensions there."""
    view = views(operand)
    if view.source is None or view.source not in group.graph.invars:
        return None
    found = laid(view, operand)
    if found is None or any(stride < 0 for stride in found[0].strides):
        return None
    return view.source, found[1], tuple(zip(found[0].shape, found[0].strides, strict=True))


def _as_matrices(eqn: Eqn, left: tuple[Var, int, Dims], right: tuple[Var, int, Dims]) -> Product | None:
    (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
    x, y = _parts(left[2], lc, lb), _parts(right[2], rc, rb)
    if x is None or y is None:
        return None
    (batch, rows, inner), (y_batch, columns, y_inner) = x, y
    a, b = _side(*left[:2], rows, inner, batch[1]), _side(*right[:2], y_inner, columns, y_batch[1])
    if a is None or b is None:
        return None
    return Product(eqn.outvars[0].aval.dtype, batch[0], rows[0], columns[0], inner[0], a, b)


def _parts(dims: Dims, contracted: Sequence[int], batched: Sequence[int]) -> list[tuple[int, int]] | None:
    """The batch's, the free and the contracted dimensions, each as one."""
    free = free_dimensions(len(dims), tuple(contracted), tuple(batched))
    parts = [_merged([dims[d] for d in chosen]) for chosen in (batched, free, contracted)]
    return [part for part in parts if part is not None] if None not in parts else None


def _merged(dims: Dims) -> tuple[int, int] | None:
    """Several dimensions as one; None where one stride does not reach all elements."""
    dims = [(extent, stride) for extent, stride in dims if extent != 1]
    if any(outer != extent * stride for (_, outer), (extent, stride) in itertools.pairwise(dims)):
        return None
    total = 1
    for extent, _ in dims:
        total *= extent
    return total, dims[-1][1] if dims else 0


def _side(source: Var, first: int, rows: tuple[int, int], columns: tuple[int, int], batch: int) -> Side | None:
    """A matrix of which rows or columns lie without gaps; `rows` and `columns` are extents and strides."""
    (m, down), (n, along) = rows, columns
    if (along == 1 or n == 1) and (down >= n or m == 1):
        return Side(source, first, max(down, n), False, batch)
    if (down == 1 or m == 1) and (along >= m or n == 1):
        return Side(source, first, max(along, m), True, batch)
    return None
