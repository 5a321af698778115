"""Which operands of a product the device copies by itself (TMA): plain arrays whose rows are multiples of 16 bytes apart.

In: a load of one side of a product and the axes of its block. Out: a `Copied`: the array as a tensor map sees it, and the text of a copy
of one block into shared memory. What lies outside of the array comes as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuser.backends.triton.emitter import TensorMap
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel

ALIGNMENT = 16  # bytes, of where an array begins and of its strides
MOST_DIMENSIONS = 5
LARGEST_ELEMENT = 4  # bytes
LARGEST = 1 << 31  # elements along a dimension


@dataclass(frozen=True)
class Copied:
    """One load as copies: its map, the batch axes by which a block is found, and whether rows of the block lie along k."""

    map: TensorMap
    batch: tuple[Axis, ...]
    along_k: bool


def copied(
    kernel: Kernel,
    node: Scalar,
    free: Sequence[Axis],
    k: Axis,
    batch: Sequence[Axis],
    extents: dict[Axis, int],
    absorbed: frozenset[Axis],
    block: tuple[int, int],
) -> Copied | None:
    """The copies of a load of `block` elements along the free axis and along k; None where a tensor map cannot say where they lie."""
    param, index = kernel.params[node.attr.param], node.attr.offset
    itemsize = param.dtype.itemsize
    if node.args or len(free) != 1 or itemsize > LARGEST_ELEMENT:
        return None
    factors = _factors(index, absorbed)
    if factors is None or not factors.keys() <= {free[0], k, *batch}:
        return None
    outer = tuple(a for a in batch if a in factors)
    inner = (free[0], k) if factors.get(k) == 1 and free[0] in factors else (k, free[0])
    if factors.get(inner[1]) != 1 or inner[0] not in factors or len(outer) + 2 > MOST_DIMENSIONS:
        return None
    strides = tuple(factors[a] for a in (*outer, *inner))
    shape = tuple(extents[a] for a in (*outer, *inner))
    if any(s <= 0 or s * itemsize % ALIGNMENT for s in strides[:-1]) or index.offset * itemsize % ALIGNMENT:
        return None
    if max(shape) >= LARGEST or shape[-1] > strides[-2]:
        return None
    sizes = {free[0]: block[0], k: block[1]}
    found = TensorMap(
        node.attr.param, index.offset, shape, strides, (*(1 for _ in outer), sizes[inner[0]], sizes[inner[1]])
    )
    return Copied(found, outer, inner[1] is k)


def _factors(index: Affine, absorbed: frozenset[Axis]) -> dict[Axis, int] | None:
    """The steps of an index along axes; None where it is not made of axes alone."""
    found: dict[Axis, int] = {}
    for atom, coefficient in index.terms:
        if not isinstance(atom, Axis):
            return None
        if atom not in absorbed:
            found[atom] = coefficient
    return found


def text(copy: Copied, name: str, coordinates: dict[str, str], batch: Sequence[str], wanted: str) -> str:
    """The copy of one block as `wanted` says it: "mk", or "kn"."""
    free = wanted.strip("k")
    order = (free, "k") if copy.along_k else ("k", free)
    loaded = f"{name}.load([{', '.join([*batch, *(coordinates[d] for d in order)])}])"
    sides = {"m": "M_BLOCK", "n": "N_BLOCK", "k": "K_BLOCK"}
    if batch:
        loaded += f".reshape({sides[order[0]]}, {sides[order[1]]})"
    return loaded if "".join(order) == wanted else f"tl.trans({loaded})"
