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
    """`P("x", None, ("y", "z"))`; dimensions behind the last entry are not split. Equal to a tuple of the same entries."""

    UNCONSTRAINED = _Unconstrained()
    __slots__ = ("_partitions", "reduced", "unreduced")

    def __init__(self, *partitions: Any, unreduced: Iterable[Any] = (), reduced: Iterable[Any] = ()) -> None:
        if unreduced or reduced:
            raise NotImplementedError(
                "PartitionSpec(unreduced=..., reduced=...) is not supported: sums over a mesh are always completed; "
                "use psum or psum_scatter within shard_map to say where"
            )
        self._partitions = tuple(_entry(p) for p in partitions)
        self.unreduced: frozenset[Any] = frozenset()
        self.reduced: frozenset[Any] = frozenset()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __getitem__(self, index: Any) -> Any:
        return self._partitions[index]

    def index(self, value: Any) -> int:
        return self._partitions.index(_entry(value))

    def count(self, value: Any) -> int:
        return self._partitions.count(_entry(value))

    def __add__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*self, *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*other, *self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpec):
            return self._partitions == other._partitions
        return isinstance(other, tuple) and self._partitions == tuple(_entry(p) for p in other)

    def __hash__(self) -> int:
        return hash(self._partitions)

    def __repr__(self) -> str:
        return f"P{self._partitions!r}"

    def __reduce__(self) -> Any:
        return PartitionSpec, self._partitions


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
    found = tuple(map(names, spec))
    return (*found, *[()] * (rank - len(found)))


def spec_of(axes: Iterable[Axes]) -> PartitionSpec:
    """The spec that splits each dimension by these axes."""
    return PartitionSpec(*(a or None for a in axes))


P = PartitionSpec
