"""`jit(f, dynamic=...)`: a function traced once for all sizes of the extents that are named.

It is compiled once for all sizes for which the compiler would take the same decisions (`export/instances.py`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuser import backends
from fuser.api.jitted import MOST_SIGNATURES, Jitted, jit, observers
from fuser.api.placement import placed
from fuser.api.stages import Traced
from fuser.config import config
from fuser.export.calling import argument_paths
from fuser.export.exported import Exported, export
from fuser.export.instances import Instances, in_words
from fuser.export.sizes import solved
from fuser.export.symbolic import SymbolicScope, symbolic_args_specs
from fuser.ir.dim import Dim, evaluated
from fuser.ir.graph import Graph, has_effects
from fuser.lax.values import as_value
from fuser.runtime.array import Array
from fuser.runtime.shards import Shards
from fuser.trace import transfers, tree
from fuser.trace.core import type_of


def dynamic_jit(function: Callable[..., Any], dynamic: Mapping[str, Any], **options: Any) -> DynamicJitted:
    """`function` jitted; the arguments that `dynamic` names have the symbolic shapes that it says ("b, 4*k").

    `dynamic` maps names of arguments to texts, to {dimension: text}, or to trees of texts; "constraints" among them is a sequence of
    constraints. The function is traced for each tree and dtype of the arguments, and each shape of those that are not named, but
    once for all sizes. InconclusiveDimensionOperation where it does something else for other sizes. TypeError for a name that is no
    argument.
    """
    return DynamicJitted(function, dynamic, options.get("backend"), options.get("inline", False))


class DynamicJitted(Jitted):
    """What `jit(dynamic=)` returns: `traced` are the functions traced for all sizes, by what else they were traced for."""

    def __init__(
        self, function: Callable[..., Any], dynamic: Mapping[str, Any], backend: str | None, inline: bool
    ) -> None:
        if not isinstance(dynamic, Mapping):
            raise TypeError(
                f'dynamic maps names of arguments to their shapes, {{"x": "b, 4*k"}} or {{"x": {{0: "n"}}}}, got {dynamic!r}'
            )
        self.said = dict(dynamic)
        self.constraints = tuple(self.said.pop("constraints", ()))
        self.signature = inspect.signature(function)
        if unknown := [name for name in self.said if name not in self.signature.parameters]:
            raise TypeError(
                f"dynamic names {', '.join(map(repr, unknown))}, and the arguments are {', '.join(self.signature.parameters)}"
            )
        self.options = function, dynamic, backend, inline
        self.traced: dict[Any, AllSizes] = {}
        self.served: dict[Any, AllSizes] = {}  # those of them that have programs
        self.marks: dict[Any, list[bool]] = {}
        inner = jit(function, backend=backend, inline=inline)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            leaves, structure = tree.flatten((args, kwargs))
            return self._all_sizes(inner, structure, [as_value(leaf) for leaf in leaves]).exported.call(*args, **kwargs)

        self.inner = inner
        super().__init__(call, (), (), (), (), False, inline, backend)

    def __reduce__(self) -> Any:
        return type(self), self.options

    def clear_cache(self) -> None:
        """Forget every trace and every program."""
        super().clear_cache()
        self.traced.clear()
        self.served.clear()

    def _all_sizes(self, inner: Jitted, structure: Any, values: Sequence[Any]) -> AllSizes:
        """The function for all sizes of arguments like these."""
        key = self._key(structure, values)
        if key not in self.traced:
            args, kwargs = self._specs(structure, values)
            exported = export(inner)(*args, **kwargs)
            self.traced[key] = AllSizes.of(exported, self._traced_for)
        return self.traced[key]

    def _key(self, structure: Any, values: Sequence[Any]) -> Any:
        marks = self.marks.get(structure) or self._marks(structure)
        types = [(v.dtype, v.weak_type, v.ndim if mark else v.shape) for v, mark in zip(values, marks)]
        return structure, config.enable_x64, config.traced, *types

    def _marks(self, structure: Any) -> list[bool]:
        """Whether each leaf of the arguments has a symbolic shape."""
        args, kwargs = tree.unflatten(structure, range(structure.num_leaves))
        given = self.signature.bind(*args, **kwargs).arguments
        named = {n for name in self.said if name in given for n in tree.leaves(given[name])}
        self.marks[structure] = found = [n in named for n in range(structure.num_leaves)]
        return found

    def _specs(self, structure: Any, values: Sequence[Any]) -> Any:
        """(args, kwargs) with a ShapeDtypeStruct a leaf."""
        args, kwargs = tree.unflatten(structure, range(structure.num_leaves))
        given = self.signature.bind(*args, **kwargs).arguments
        scope, found = SymbolicScope(self.constraints), [type_of(v) for v in values]
        scope.check()
        for name, part in given.items():
            numbers, own = tree.flatten(part)
            leaves = tree.unflatten(own, [found[n] for n in numbers])
            said = _in_texts(self.said.get(name), leaves)
            for n, spec in zip(numbers, tree.leaves(symbolic_args_specs(leaves, said, scope=scope))):
                found[n] = spec
        return tree.unflatten(structure, found)

    def _traced_for(self, exported: Exported, graph: Graph) -> Traced:
        backend = backends.get(self._backend_name())
        return Traced(graph, exported.in_tree, exported.out_tree, (), backend)

    def _missed(self, *args: Any, **kwargs: Any) -> Any:
        """As a jitted function's, and shorter where a program that was compiled for other sizes serves these."""
        leaves, structure = tree.flatten((args, kwargs))
        served = None
        if all(type(leaf) is Array and type(leaf._data) is not Shards for leaf in leaves):
            served = self.served.get(self._key(structure, leaves))
        if served is None or observers or transfers.guarded():
            return super()._missed(*args, **kwargs)
        run = served.instances.known(served.sizes([v.shape for v in leaves]))
        if run is None:
            return super()._missed(*args, **kwargs)
        self._remember(args, kwargs, served.numbered, run)
        return run(leaves, ())

    def _compile(self, key: Any, static: Any, structure: Any, values: Sequence[Any]) -> Callable[[list[Any]], Any]:
        if (run := self._instance(structure, values)) is None:
            return super()._compile(key, static, structure, values)
        self._entries[key] = run
        while len(self._entries) > MOST_SIGNATURES:
            self._entries.pop(next(iter(self._entries)))
        return run  # type: ignore[no-any-return]

    def _instance(self, structure: Any, values: Sequence[Any]) -> Any:
        """The program of `AllSizes` for these arguments; None where each size has one of its own."""
        if _unusual(values):
            return None
        found = self._all_sizes(self.inner, structure, values)
        if (run := found.program([v.shape for v in values])) is not None:
            self.served[self._key(structure, values)] = found
        return run

    def refusals(self) -> list[str]:
        """Why functions traced so far are compiled for each size, one text for each that is."""
        return [known.instances.refusal for known in self.traced.values() if known.instances.refusal]

    def specializations(self) -> list[tuple[str, str, float, int]]:
        """Of each program for many sizes: what it was lowered for, why none before served, the seconds, and kernels compiled."""
        return [
            (
                f"{', '.join(map(str, known.exported.in_avals))} at {in_words(one.guards.sizes)}",
                one.because,
                one.seconds,
                one.kernels,
            )
            for known in self.traced.values()
            for one in known.instances.lowered
        ]


def _unusual(values: Sequence[Any]) -> bool:
    """Whether settings, or where arrays lie, ask for more than a program over one device's memory."""
    settings = (
        config.debug_nans,
        config.debug_infs,
        config.no_execution,
        config.default_device is not None,
        config.disable_jit,
    )
    return any(settings) or bool(placed(values))


def _in_texts(said: Any, leaves: Any) -> Any:
    """A specification with {dimension: text} as a text."""
    if not isinstance(said, Mapping) or not said or not all(type(key) is int for key in said):
        return said
    [aval] = tree.leaves(leaves)
    if wrong := [d for d in said if not -aval.ndim <= d < aval.ndim]:
        raise TypeError(f"dynamic names dimension {wrong[0]} of an argument of {aval.ndim} dimensions")
    by_number = {d % aval.ndim: text for d, text in said.items()}
    return ", ".join(by_number.get(d, "_") for d in range(aval.ndim))


@dataclass(frozen=True, eq=False)
class AllSizes:
    """A function traced for all sizes: where its variables stand alone, and its compiled programs.

    `places` has a leaf and a dimension for each variable, in the order of `names`; `checks` are the extents that are left to check.
    """

    exported: Exported
    instances: Instances
    names: tuple[str, ...]
    places: tuple[tuple[int, int], ...] | None  # None: some variable stands in expressions alone
    checks: tuple[tuple[int, int, Dim], ...]
    numbered: Any  # the tree of the arguments, with the numbers of the leaves

    @staticmethod
    def of(exported: Exported, traced: Callable[[Exported, Graph], Traced]) -> AllSizes:
        """Of what was traced; `traced` makes a Traced of its graph with sizes."""
        dims = [
            (leaf, axis, dim)
            for leaf, aval in enumerate(exported.in_avals)
            for axis, dim in enumerate(aval.shape)
            if isinstance(dim, Dim)
        ]
        alone = {str(dim): (leaf, axis) for leaf, axis, dim in reversed(dims) if str(dim) in dim.scope.witness}
        names = tuple(dict.fromkeys(name for _, _, dim in dims for name in dim.scope.witness))
        places = tuple(alone[name] for name in names) if all(name in alone for name in names) else None
        simple = places is not None and not any(dim.scope.constraints for _, _, dim in dims)
        checks = tuple(d for d in dims if (d[0], d[1]) not in (places or ()))
        instances = Instances(exported.graph, functools.partial(traced, exported))
        if has_effects(exported.graph):
            instances.refusal = "it has effects"
        numbered = tree.unflatten(exported.in_tree, range(exported.in_tree.num_leaves))
        return AllSizes(exported, instances, names, places if simple else None, checks, numbered)

    def program(self, shapes: Sequence[tuple[int, ...]]) -> Any:
        """The program for arguments of these shapes, or None. ValueError for shapes that are none of its own."""
        return self.instances.program(self.sizes(shapes))

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The variables' sizes. ValueError for shapes that are none of the function's."""
        if self.places is not None:
            sizes = {name: shapes[leaf][axis] for name, (leaf, axis) in zip(self.names, self.places)}
            if min(sizes.values(), default=1) >= 1 and all(
                evaluated(dim, sizes) == shapes[leaf][axis] for leaf, axis, dim in self.checks
            ):
                return sizes
        avals = self.exported.in_avals
        found = [aval.update(shape=shape) for aval, shape in zip(avals, shapes)]
        known = solved(argument_paths(self.exported), avals, found)
        return {name: known[name] for name in self.names}
