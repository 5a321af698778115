"""What a jitted function is told of devices: how its arguments lie, and how arguments and results are wanted.

Shardings are objects here; what they mean is fuser.parallel's, which stands above and hooks into `Traced`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from fuser.api.layout import shardings_of
from fuser.api.shapes import ShapeDtypeStruct
from fuser.config import config
from fuser.ir.graph import Graph
from fuser.ir.source import current_source
from fuser.runtime.array import Array
from fuser.runtime.device import Device, devices
from fuser.runtime.reference import Ref
from fuser.runtime.shards import Shards
from fuser.trace import tree


class Said(Enum):
    """What stands for a sharding: None that pjit is told, which is whole on each device within `with mesh:`, and free elsewhere."""

    WHOLE = "whole"


class Wanted(NamedTuple):
    """`in_shardings` and `out_shardings` of jit: tree prefixes, None where nothing is said."""

    in_shardings: Any = None
    out_shardings: Any = None

    def inside(self, values: Sequence[Any], structure: Any) -> list[Any]:
        """The arguments of a call within another program, constrained to lie so."""
        return _inside(values, self._arguments(structure), "in_shardings")

    def results(self, values: Sequence[Any], out_tree: Any) -> list[Any]:
        """The results of a call within another program, constrained to lie so."""
        return _inside(values, _leaves(self.out_shardings, out_tree, "out_shardings"), "out_shardings")

    def _arguments(self, structure: Any) -> list[Any]:
        nothing = [None] * structure.num_leaves
        return nothing if self.in_shardings is None else _arguments(self.in_shardings, structure)


FREE = Wanted()
constrain: list[Callable[[Any, Any, str], Any]] = []  # fuser.parallel.constraint's, once it is there


def _inside(values: Sequence[Any], shardings: Sequence[Any], what: str) -> list[Any]:
    return [v if s is None else constrain[0](v, s, what) for v, s in zip(values, shardings)]


def wanted_of(device: Any, backend: str | None, in_shardings: Any, out_shardings: Any) -> Wanted:
    """What jit is told; ValueError where that contradicts itself."""
    if device is not None and backend is not None:
        raise ValueError(f"can't specify both a device and a backend for jit, got {device=} and {backend=}")
    in_shardings, out_shardings = shardings_of(in_shardings), shardings_of(out_shardings)
    for what, given in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        _check(what, given)
        if given is not None and (device is not None or backend is not None):
            raise ValueError(f"If backend or device is specified on jit, then {what} should not be specified.")
    if device is None:
        return Wanted(in_shardings, out_shardings)
    warnings.warn(
        "backend and device argument on jit is deprecated: put arguments on a device with device_put, or give out_shardings",
        DeprecationWarning,
        stacklevel=3,
    )
    return Wanted(device, device)


def _check(what: str, given: Any) -> None:
    """TypeError for what says nothing of a layout, ValueError for one that leaves a dimension open."""
    for leaf in tree.leaves(given):
        if leaf is Said.WHOLE:
            continue
        if not isinstance(leaf, Device) and not hasattr(leaf, "in_type") and not hasattr(leaf, "partitions"):
            raise TypeError(
                f"{what} leaf specifications are expected to be PartitionSpec instances or None, but got {leaf} "
                f"({current_source().short}); Shardings and Devices will do too"
            )
        spec = getattr(leaf, "spec", leaf)
        if any(entry is spec.UNCONSTRAINED for entry in getattr(spec, "partitions", ())):
            raise ValueError(
                f"Unconstrained dims are not allowed when passed to {what}: {leaf} ({current_source().short}); leave the whole free with "
                "None, or constrain the value within the function"
            )


class Placement(NamedTuple):
    """For each argument and each result, its sharding, or None where it is free."""

    given: tuple[Any, ...]
    wanted: tuple[Any, ...]
    lying: tuple[tuple[int, Any], ...] = ()  # the arguments that lie over devices, and how

    def widened(self, graph: Graph) -> Placement:
        """The same for a graph that takes and gives more behind what is known, which is free."""
        given, wanted = (
            (None,) * (len(graph.invars) - len(self.given)),
            (None,) * (len(graph.outvars) - len(self.wanted)),
        )
        return self._replace(given=(*self.given, *given), wanted=(*self.wanted, *wanted))


def placed(values: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    """The positions and shardings of those values that lie on several devices, or on one that is not the first."""
    held = [v.value if type(v) is Ref else v for v in values]
    return tuple([(n, v._data.sharding) for n, v in enumerate(held) if type(v) is Array and type(v._data) is Shards])


def with_refs(placement: Placement | None, graph: Graph, closed: Sequence[Ref], written: Sequence[int]) -> Any:
    """The same for a program that takes what `closed` Refs hold behind its arguments, and gives what the `written` inputs hold
    at last behind its results: each lies as it did."""
    lying = dict(placed(closed))
    if placement is None and not lying:
        return None
    arguments, results = len(graph.invars) - len(closed), len(graph.outvars) - len(written)
    known = placement or Placement((None,) * arguments, (None,) * results)
    given = (*known.given, *(lying.get(n) for n in range(len(closed))))
    return known._replace(given=given, wanted=(*known.wanted, *(given[n] for n in written)))


def described(leaves: Sequence[Any]) -> list[tuple[int, Any]]:
    """As `placed`, of those that are no arrays but describe them and say how they lie (ShapeDtypeStructs with a sharding)."""
    found = [(n, leaf.sharding) for n, leaf in enumerate(leaves) if isinstance(leaf, ShapeDtypeStruct)]
    first = tuple(devices()[:1])
    return [(n, s) for n, s in found if hasattr(s, "mesh") or getattr(s, "devices", first) != first]


def at_home(values: Sequence[Any]) -> list[Any]:
    """The values; those that lie on another device by default alone (`default_device`) as arrays of the first."""
    return [Array(v._data.arrays[0], v.weak_type) if _by_default(v) else v for v in values]


def _by_default(value: Any) -> bool:
    return type(value) is Array and type(value._data) is Shards and not value._data.committed


def placement(wanted: Wanted, found: Sequence[tuple[int, Any]], structure: Any, out_tree: Any) -> Placement | None:
    """How arguments of this structure lie, `found` ones as they do, and how results are wanted; None where all is free."""
    if not found and wanted == FREE:
        return None
    given = wanted._arguments(structure)
    lying = dict(found)
    results = _leaves(wanted.out_shardings, out_tree, "out_shardings")
    return Placement(tuple(lying.get(n) if s is None else s for n, s in enumerate(given)), tuple(results), tuple(found))


def _arguments(in_shardings: Any, structure: Any) -> list[Any]:
    args, kwargs = tree.unflatten(structure, range(structure.num_leaves))
    if kwargs and not isinstance(in_shardings, Device):
        raise ValueError(
            f"pjit does not support kwargs when in_shardings is specified. Got {', '.join(kwargs)} ({current_source().short}); pass them by "
            "position"
        )
    prefix = tuple(in_shardings) if isinstance(in_shardings, list) else in_shardings
    found = _leaves(prefix, tree.structure(tuple(args)), "in_shardings")
    return [*found, *[None] * len(tree.leaves(kwargs))]


def _leaves(prefix: Any, structure: Any, what: str) -> list[Any]:
    if prefix is None:
        return [None] * structure.num_leaves
    try:
        found = tree.broadcast_prefix(prefix, tree.unflatten(structure, range(structure.num_leaves)))
    except ValueError as error:
        raise ValueError(
            f"jit needs {what} to be a tree prefix of what it describes, got {prefix!r} for {structure}: {error} "
            f"({current_source().short})"
        ) from None
    within = config.meshes and not config.meshes[-1][1]
    return [None if leaf is Said.WHOLE and not within else leaf for leaf in found]
