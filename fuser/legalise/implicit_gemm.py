"""Implicit GEMM: `concatenate([x[i:…], x[i + 1:…], …]) @ weights`, a convolution as users of NumPy write it, reads its windows of x.

The pieces of one array that a row is made of begin at evenly spaced elements. So they are windows of the array, with
contracted dimensions that count the pieces, and a product by tables reads them where they lie, as it does a convolution's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import Fusion, Movement
from fuser.legalise.strided_operands import Laid, Matrices, by_tables, laid
from fuser.partition.axes import Views

LEAST = 1 << 14  # elements of a copy that is worth sparing
FEWEST = 4  # columns of the second operand, below which the patches are hardly read again


@dataclass(frozen=True)
class Patches:
    """A concatenation of pieces of `source`: how the first lies there, the byte at which it begins, and the extent and step of
    each dimension that counts the pieces, which come before the dimension that they are concatenated along."""

    source: Var
    piece: Laid
    first: int
    counts: tuple[tuple[int, int], ...]

    def product(self, weights: Laid, dimension_numbers: Any) -> Matrices:
        """The product by tables, with the pieces' dimensions behind all others, and rows of `weights` counted likewise."""
        ([along], [deep]), _ = dimension_numbers
        extents, steps = [n for n, _ in self.counts], [step for _, step in self.counts]
        x = Laid((*self.piece.shape, *extents), (*self.piece.strides, *steps))
        wide, rank = self.piece.shape[along], len(self.piece.shape)
        apart = [weights.strides[deep] * wide * math.prod(extents[n + 1 :]) for n in range(len(extents))]
        shape = (weights.shape[1 - deep], *extents, wide)
        y = Laid(shape, (weights.strides[1 - deep], *apart, weights.strides[deep]))
        contracted = (*range(rank, rank + len(extents)), along), tuple(range(1, 2 + len(extents)))
        return by_tables(x, y, (contracted, ((), ())))


def patches(eqn: Eqn, views: Views) -> Patches | None:
    """The pieces of a concatenation; None where they do not lie alike and evenly spaced in one array."""
    source = views(eqn.invars[0]).source
    pieces = [laid(view, v) if (view := views(v)).source is source else None for v in eqn.invars]
    found = [piece for piece in pieces if piece is not None]
    if source is None or len(found) < len(pieces) or any(piece != found[0][0] for piece, _ in found):
        return None
    (piece, start), itemsize = found[0], eqn.outvars[0].aval.dtype.itemsize
    counts = _counts([(first - start) // itemsize for _, first in found])
    return None if counts is None else Patches(source, piece, start, counts)


def _counts(offsets: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
    """(extent, step) of the dimensions, outermost first, whose row-major index makes these offsets; None where none does."""
    dims: list[tuple[int, int]] = []
    while len(offsets) > 1:
        step, length = offsets[1] - offsets[0], 2
        while length < len(offsets) and offsets[length] - offsets[length - 1] == step:
            length += 1
        if any(offset - offsets[n // length * length] != n % length * step for n, offset in enumerate(offsets)):
            return None
        if len(offsets) % length:
            return None
        dims.insert(0, (length, step))
        offsets = offsets[::length]
    return tuple(dims)


def patched(dot: Eqn, eqn: Eqn | None, views: Views) -> Patches | None:
    """The first operand of a product, made by `eqn`, as patches; None where a kernel reads it better from memory."""
    if eqn is None or eqn.primitive.movement is not Movement.JOIN or dot.primitive.fusion is not Fusion.DOT:
        return None
    (contracted, _), (batch, _) = dot.params["dimension_numbers"]
    x, y = (v.aval for v in dot.invars)
    if tuple(contracted) != (eqn.params["dimension"],) or batch or x.size < LEAST or y.ndim != 2:
        return None
    return patches(eqn, views) if y.size >= FEWEST * x.shape[contracted[0]] else None
