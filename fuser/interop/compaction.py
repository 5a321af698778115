"""Results that a traced mask selects: the program computes all elements and the mask, and each call gives back those that count.

Positions, of `np.flatnonzero` and its kin, are made of the mask alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.selected import ALL, Selected, unknown_shape
from fuser.interop.numpy.substitutes import faster, item
from fuser.interop.numpy.traced import TracedArray


@dataclass(frozen=True)
class Compaction:
    """How a result is made of a mask and of the elements `full`, which are None where the result is positions.

    `axis` is the one along which a mask of one dimension selects; None where the mask has the shape of all elements. `dimension` is
    the one whose positions are asked for, or ALL of them as columns.
    """

    mask: Any
    full: Any = None
    axis: int | None = None
    dimension: int | None = None

    def result(self, mask: np.ndarray, full: np.ndarray | None) -> np.ndarray:
        """The elements, or positions, that a call's mask selects."""
        if full is None:
            found = faster(np.nonzero)(mask)
            return np.transpose(found) if self.dimension == ALL else found[self.dimension]  # type: ignore[no-any-return]
        if self.axis:
            index: tuple[Any, ...] = (*[slice(None)] * self.axis, mask)
            return full[index]  # type: ignore[no-any-return]
        return item(full, mask)  # type: ignore[no-any-return]


def compaction(leaf: Selected) -> tuple[TracedArray, TracedArray | None, Compaction]:
    """The mask that a result is made of, all its elements, and how. UnsupportedError where several masks, or a slice, select."""
    context, place = leaf._context, leaf.position
    if place is not None and place[2] is leaf.value:
        return place[0], None, Compaction(None, dimension=place[1])
    if leaf.window is not None or (leaf.along is not None and len(leaf.along) != 1):
        raise unknown_shape(leaf.line)
    if leaf.along is None:
        return TracedArray(context, leaf.mask), leaf.full(), Compaction(None)
    ((axis, mask),) = leaf.along.items()
    return TracedArray(context, mask), leaf.full(), Compaction(None, axis=axis)


def check_memory(leaves: Any) -> None:
    """Refuse results of which one is a view of what another selects: compaction gives each memory of its own."""
    owners: dict[int, Selected] = {}
    for leaf in leaves:
        if isinstance(leaf, Selected) and owners.setdefault(id(leaf.owner), leaf) is not leaf:
            raise untraceable("returning x[mask] and a view of it cannot be traced", "return a copy")
