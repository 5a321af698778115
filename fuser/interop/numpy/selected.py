"""What `x[mask]` is for a traced mask, and `x[k:]` for a traced `k`: all elements, and a mask of those that count.

Where a mask has one dimension, it selects along a dimension: such selections broadcast against each other and against arrays
as arrays do, so that `a[k:, None] * b[None, k:]` is one of both dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.traced import TracedArray, Value
from fuser.ir.source import current_source
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.trace.core import bind

ALL = -1  # dimensions, of positions
VIEWED = "writing to x[mask], or to a view of it, where both are in use cannot be traced|use .copy()"


class Selected(TracedArray):
    """All elements, of which those where the mask holds count.

    `along` are the masks of one dimension, by the dimension that each selects along; None where a mask of several dimensions selects
    elements one by one. `position` are, of the positions that `np.where(mask)` gives, the mask, the dimension along which they count
    (or ALL of them, as columns) and the value that they had. `window` is the view, of the array sliced, that a slice is part of; what is
    computed from such a slice has no window. `owner` is the selection whose memory this one is a view of in NumPy, or itself.
    """

    __slots__ = ("_mask", "along", "line", "owner", "position", "window")

    def __init__(
        self,
        full: TracedArray,
        mask: Value | None = None,
        along: Mapping[int, Value] | None = None,
        view: bool = False,
    ) -> None:
        super().__init__(full._context, full.value)
        self.along = {0: mask} if along is None and full.ndim == 1 else along
        self._mask = mask
        self.position: tuple[TracedArray, int, Value] | None = None
        self.owner: Selected = self
        self.window = full if view else None
        if view:
            self._base, self._view = full._base, full._view
        self.line = current_source().short

    @property
    def mask(self) -> Any:
        """Which of all elements count."""
        if self._mask is None:
            self._mask = box(self.along, self.value.shape)  # type: ignore[arg-type]
        return self._mask

    @property
    def shape(self) -> tuple[int, ...]:
        raise unknown_shape()

    @property
    def size(self) -> int:
        raise unknown_shape()

    @property
    def known(self) -> bool:
        return False

    def __len__(self) -> int:
        raise unknown_shape()

    def __repr__(self) -> str:
        return f"selected<{self.full()._aval}>"

    def full(self) -> TracedArray:
        """The elements of which some are selected."""
        return TracedArray(self._context, self.value)

    def zeroed(self) -> TracedArray:
        """The same with zeros for what does not count."""
        full: Any = self.full()
        return np.where(TracedArray(self._context, self.mask), full, np.zeros((), full.dtype))  # type: ignore[call-overload,no-any-return,return-value]

    def lend(self, view: TracedArray) -> TracedArray:
        """A view of this, neither of which may be written to from now on."""
        if not view.scalar:
            self._guard = view._guard = VIEWED
        if isinstance(view, Selected):
            view.owner = self.owner
        return view

    def replace_by(self, result: Selected) -> None:
        """Write `result`, of which the same elements count, to this."""
        if result.value.shape != self.value.shape:
            raise unknown_shape()
        self.write(result.lifted(self.dtype))

    def alike(self, full: TracedArray) -> Selected:
        """Others of which the same are selected."""
        return Selected(full, self.mask) if self.along is None else Selected(full, along=self.along)


def box(along: Mapping[int, Value], shape: Sequence[int]) -> Any:
    """The mask of a shape that masks of some of its dimensions make."""
    made: Any = None
    for d, mask in along.items():
        spread = mask
        if len(shape) > 1:
            spread = bind(V.broadcast_in_dim_p, mask, shape=tuple(shape), broadcast_dimensions=(d,))
        made = spread if made is None else bind(E.and_p, made, spread)
    return made


def unknown_shape(line: str = "") -> UnsupportedError:
    return untraceable(
        "x[mask] or np.nonzero(mask) with a traced mask has a shape that depends on values; elementwise arithmetic with numbers and selections by the "
        "same mask, sums, means and extremes of it, x[mask] = ... and x[mask] as a result are traced, and this is not",
        "use np.where(mask, x, y) or where=mask",
        line,
    )


def alike(operands: Sequence[Any]) -> Selected:
    """What an elementwise function of selections selects, beside numbers and arrays; refuses other masks, and arrays that extend along
    dimensions of which a part is selected.
    """
    selections = [x for x in operands if isinstance(x, Selected)]
    first = selections[0]
    if any(x.along is None for x in selections):
        if not all(x.along is None and first._context.same(first.mask, x.mask) for x in selections):
            raise _other_masks()
        if any(np.ndim(x) for x in operands if not isinstance(x, Selected)):
            raise _beside_arrays()
        return first
    shapes = [x.value.shape if isinstance(x, Selected) else np.shape(x) for x in operands]
    whole = np.broadcast_shapes(*shapes)
    along: dict[int, Value] = {}
    for x in selections:
        for d, mask in x.along.items():  # type: ignore[union-attr]
            place = d + len(whole) - x.value.ndim
            if not first._context.same(along.setdefault(place, mask), mask):
                raise _other_masks()
    for x, shape in zip(operands, shapes, strict=True):
        own = {d + len(whole) - len(shape) for d in x.along} if isinstance(x, Selected) else set()  # type: ignore[union-attr]
        for d, extent in enumerate(shape, len(whole) - len(shape)):
            if d in along and d not in own and extent != 1:
                raise _beside_arrays()
    if along == first.along and whole == shapes[0]:
        return first
    full = np.broadcast_to(np.zeros((), first.dtype), whole)
    return Selected(TracedArray(first._context, full), along=along)


def _other_masks() -> UnsupportedError:
    return untraceable(
        "arithmetic on x[mask] and y[other_mask] cannot be traced where the masks are not the same",
        "use one mask variable",
    )


def _beside_arrays() -> UnsupportedError:
    return untraceable(
        "arithmetic on x[mask], with a traced mask, and an array cannot be traced", "use np.where(mask, x, y)"
    )
