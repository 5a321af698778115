"""What a `for` loop of a rewritten function goes over, where its items can be read at positions that values decide.

Arrays, ranges, and `zip`, `enumerate` and `reversed` of them have a length and an item at each position; a range between bounds that
the program alone knows has a number of items that is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.traced import TracedArray


class Together:
    """What `zip`, `enumerate` or `reversed` goes over, by position."""

    def __init__(self, function: Any, sequences: tuple[Any, ...]) -> None:
        self._function, self._sequences = function, sequences

    def __len__(self) -> int:
        return min(map(len, self._sequences), default=0)

    def __getitem__(self, position: Any) -> Any:
        if self._function is reversed:
            return item(self._sequences[0], len(self) - 1 - position)
        items = tuple([item(sequence, position) for sequence in self._sequences])
        return (position, *items) if self._function is enumerate else items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._function(*self._sequences))


class Counted:
    """A range whose start or stop is computed; the step is known."""

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self._start, self._step = start, step
        self.count = (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step

    def __getitem__(self, position: Any) -> Any:
        return self._start + position * self._step

    def __iter__(self) -> Iterator[Any]:
        raise untraceable("a range between bounds that values decide cannot be gone over here")


def is_sequence(value: Any) -> bool:
    """Whether a value has a known length, and an item at each position."""
    return type(value) in (range, Together) or (type(value) is TracedArray and value.ndim > 0)


def item(sequence: Any, position: Any) -> Any:
    """The item at a position, which may be computed."""
    if type(sequence) is range:
        return sequence.start + position * sequence.step
    return sequence[position]


def made_by(function: Any, arguments: tuple[Any, ...], integer: Any) -> Any:
    """`function(*arguments)`, as what can be read by position where the function is one of Python's that make iterators or ranges.

    `integer` makes Python's integer of a traced one.
    """
    if function is range and 1 <= len(arguments) <= 3 and any(type(a) is TracedArray for a in arguments):
        return _counted(*arguments, integer=integer)
    if not any(function is each for each in (zip, enumerate, reversed)) or not all(map(is_sequence, arguments)):
        return function(*arguments)
    return Together(function, arguments) if function is zip or len(arguments) == 1 else function(*arguments)


def _counted(first: Any, *rest: Any, integer: Any) -> Any:
    start, stop, step = (0, first, 1) if not rest else (first, *rest, 1)[:3]
    if type(step) is TracedArray and step.known:
        step = int(step.value)
    bounds = [bound for bound in (start, stop) if type(bound) is TracedArray]
    if any(bound.known for bound in bounds) or type(step) is not int or not step:
        return range(start, stop, step)
    if not all(bound.scalar and bound.dtype.kind in "iu" for bound in bounds):
        raise untraceable("a range between bounds that are no integers cannot be traced")
    start, stop = (integer(bound) if type(bound) is TracedArray else bound for bound in (start, stop))
    return Counted(start, stop, step)
