"""`PartitionSpec`: for each dimension of an array, the mesh axes that it is split over.

An entry is None (not split), a name, or a tuple of names, the first of which varies slowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Axes = tuple[Any, ...]


class _Unconstrained:
    def __repr__(self) -> str:
        return "UNCONSTRAINED"


class PartitionSpec:
    """`P("x", None, ("y", "z"))`; dimensions behind the last entry are not split. Equal to a tuple of the same entries.

    Along `unreduced` axes each device has one term of the sum that the value is; along `reduced` ones the value is the same
    for all, and its cotangent is left unreduced. Both are for axes of type Explicit.
    """

    UNCONSTRAINED = _Unconstrained()
    __slots__ = ("__weakref__", "_partitions", "reduced", "unreduced")

    def __init__(self, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()) -> None:
        self._partitions = tuple(_entry(p) for p in partitions)
        self.unreduced = _axes("unreduced", unreduced)
        self.reduced = _axes("reduced", reduced)
        if self.unreduced & self.reduced:
            raise ValueError(
                "`unreduced` and `reduced` argument to PartitionSpec cannot overlap. "
                f"Got unreduced: {set(self.unreduced)} and reduced: {set(self.reduced)}"
            )
        for what, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes & {n for p in self._partitions for n in names(p)}:
                raise ValueError(
                    f"partitions cannot overlap with {what} axes passed to PartitionSpec. Got partitions: {self._partitions} "
                    f"and {what} axes: {set(axes)}"
                )

    @property
    def partitions(self) -> tuple[Any, ...]:
        return self._partitions

    def _alone(self, what: str) -> tuple[Any, ...]:
        """The entries; ValueError where they are not all that the spec says."""
        if self.unreduced or self.reduced:
            raise ValueError(
                f"Using {what} is dangerous when PartitionSpec has non-empty unreduced/reduced set. "
                "Please use spec.partitions instead"
            )
        return self._partitions

    def __iter__(self) -> Iterator[Any]:
        return iter(self._alone("*pspec"))

    def __len__(self) -> int:
        return len(self._partitions)

    def __getitem__(self, index: Any) -> Any:
        return self._alone("pspec[...]")[index]

    def index(self, value: Any) -> int:
        return self._partitions.index(_entry(value))

    def count(self, value: Any) -> int:
        return self._partitions.count(_entry(value))

    def update(self, partitions: Any = None, unreduced: Any = None, reduced: Any = None) -> PartitionSpec:
        """This spec with some fields replaced."""
        return PartitionSpec(
            *(self._partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            return PartitionSpec(
                *self.partitions,
                *other.partitions,
                unreduced=self.unreduced | other.unreduced,
                reduced=self.reduced | other.reduced,
            )
        if not isinstance(other, tuple):
            raise NotImplementedError
        return PartitionSpec(*self._appendable(other, "__add__"), *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, tuple):
            raise NotImplementedError
        return PartitionSpec(*other, *self._appendable(other, "__radd__"))

    def _appendable(self, other: tuple[Any, ...], method: str) -> tuple[Any, ...]:
        for what in ("unreduced", "reduced"):
            if getattr(self, what):
                raise TypeError(
                    f"other {other} cannot be of instance `tuple` when self {self} has {what} in `{method}` of PartitionSpec."
                )
        return self._partitions

    def _key(self) -> Any:
        return self._partitions, self.unreduced, self.reduced

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpec):
            return self._key() == other._key()
        return isinstance(other, tuple) and self._key() == (tuple(_entry(p) for p in other), frozenset(), frozenset())

    def __hash__(self) -> int:
        return hash(self._key()) if self.unreduced or self.reduced else hash(self._partitions)

    def __repr__(self) -> str:
        more = [f"{what}={set(axes)!r}" for what in ("unreduced", "reduced") if (axes := getattr(self, what))]
        return f"P({', '.join([*map(repr, self._partitions), *more])}{',' if len(self) == 1 and not more else ''})"

    def __reduce__(self) -> Any:
        return _made, self._key()


def _made(partitions: tuple[Any, ...], unreduced: frozenset[Any], reduced: frozenset[Any]) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)


def _axes(what: str, given: Any) -> frozenset[Any]:
    if not isinstance(given, (set, frozenset)):
        raise TypeError(f"{what} argument of PartitionSpec should of type `frozenset` or `set`. Got type {type(given)}")
    if None in given:
        raise ValueError(f"{what} cannot contain None. All elements in {what} should refer to the mesh axes.")
    return frozenset(given)


def _entry(entry: Any) -> Any:
    if isinstance(entry, (tuple, list)):
        return entry[0] if len(entry) == 1 else tuple(entry) or None
    return entry


def names(entry: Any) -> Axes:
    """The mesh axes of one entry."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def split_axes(spec: PartitionSpec, rank: int) -> tuple[Axes, ...]:
    """For each of `rank` dimensions, the mesh axes that split it."""
    found = tuple(map(names, spec.partitions))
    return (*found, *[()] * (rank - len(found)))


def spec_of(axes: Iterable[Axes]) -> PartitionSpec:
    """The spec that splits each dimension by these axes."""
    return PartitionSpec(*(a or None for a in axes))


P = PartitionSpec
