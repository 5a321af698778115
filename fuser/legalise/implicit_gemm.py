"""Products of patches: `concatenate([x[i:…], x[i + 1:…], …]) @ weights`, a convolution as users of NumPy write it.

Each row of the first operand is made of pieces of one array, all rows in the same way. So element (row, k) lies at the
row's offset plus a number that k alone decides, and a kernel with a table of those numbers needs no copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import Fusion, Movement
from fuser.legalise.strided_operands import Laid, laid
from fuser.partition.axes import Views

LEAST = 1 << 14  # elements of a copy that is worth sparing
FEWEST = 4  # columns of the second operand, below which the patches are hardly read again


@dataclass(frozen=True)
class Patches:
    """A concatenation of pieces of `source`: how the first piece lies there, the byte it begins at, and the elements from
    there to each element along the concatenated dimension."""

    source: Var
    laid: Laid
    first: int
    offsets: tuple[int, ...]


def patches(eqn: Eqn, views: Views) -> Patches | None:
    """The pieces of a concatenation; None where they do not all lie alike in one array."""
    dimension = eqn.params["dimension"]
    source = views(eqn.invars[0]).source
    pieces = []
    for operand in eqn.invars:
        view = views(operand)
        piece = laid(view, operand) if view.source is source else None
        if source is None or piece is None:
            return None
        pieces.append(piece)
    assert source is not None
    (whole, start), itemsize = pieces[0], eqn.outvars[0].aval.dtype.itemsize
    strides = tuple(max((p.strides[d] for p, _ in pieces), key=abs) for d in range(len(whole.strides)))
    if any(e > 1 and s != t for p, _ in pieces for e, s, t in zip(p.shape, p.strides, strides)):
        return None
    step = strides[dimension]
    offsets = tuple(
        (first - start) // itemsize + n * step for piece, first in pieces for n in range(piece.shape[dimension])
    )
    return Patches(source, Laid(eqn.outvars[0].aval.shape, strides), start, offsets)


def patched(dot: Eqn, eqn: Eqn | None, views: Views, most: int) -> Patches | None:
    """The first operand of a product, made by `eqn`, as patches; None where a kernel reads it better from memory.

    `most` is the number of bytes of a second operand up to which it stays in a near cache, one copy for all patches.
    """
    if eqn is None or eqn.primitive.movement is not Movement.JOIN or dot.primitive.fusion is not Fusion.DOT:
        return None
    (contracted, _), (batch, _) = dot.params["dimension_numbers"]
    x, y = (v.aval for v in dot.invars)
    exact = x.dtype == dot.outvars[0].aval.dtype and x.dtype.kind == "f" and x.dtype.itemsize >= 4
    if tuple(contracted) != (eqn.params["dimension"],) or batch or not exact or x.size < LEAST:
        return None
    depth = x.shape[contracted[0]]
    if y.size < FEWEST * depth or y.nbytes > most or y.ndim != 2:
        return None
    return patches(eqn, views)
