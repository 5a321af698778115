"""Effect handlers: `sow` names a value inside of a function; `reap` gives the named values, `plant` puts others in their place.

A sown value is an equation of the Graph, which survives jit, grad and vmap, and is the identity in compiled programs. `harvest`
replays the graph and answers each such equation. In a scan the values of all steps are stacked, and planted ones are taken so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fuser import lax
from fuser import numpy as fnp
from fuser.api.jitted import jit
from fuser.ir.graph import Eqn, Graph, Literal
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.ops.control import scan_p
from fuser.trace import tree

Handler = Callable[[str, str, Any], Any]
MODES = ("strict", "append", "clobber")


def _jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    return sow_p.bind(*primals, **params), tangents[0]


sow_p: Primitive = Primitive(
    "sow",
    Fusion.LIBRARY,
    type=lambda x, **params: ArrayType(x.shape, x.dtype, x.weak_type),
    eval=lambda x, **params: x,
    inline=lambda x, **params: x,
    jvp=_jvp,
    transpose=lambda ct, x, **params: [ct],
    batch=lambda operands, dims, **params: (sow_p.bind(*operands, **params), dims[0]),
    file=__file__,
)


def sow(value: Any, *, tag: str, name: str, mode: str = "strict") -> Any:
    """`value`, a tree of arrays, under a name that `harvest` of the same `tag` finds.

    A name that comes twice is a ValueError where the mode is "strict", a stack of all in the order of the program with "append",
    the last one with "clobber". ValueError for another mode.
    """
    if mode not in MODES:
        raise ValueError(f"sow has the modes {', '.join(MODES)}; got {mode!r}")
    leaves, structure = tree.flatten(value)
    names = [name] if structure.is_leaf() else [f"{name}{path}" for path in map(str, range(len(leaves)))]
    found = [sow_p.bind(as_value(v, "sow"), tag=tag, name=n, mode=mode) for v, n in zip(leaves, names)]
    return tree.unflatten(structure, found)


def harvest(function: Callable[..., Any], *, tag: str) -> Callable[..., Any]:
    """A function `(plants, *args) -> (result, reaps)`: `plants` maps names to values used in place of those sown under `tag`,
    `reaps` maps the names that were not planted to their values. ValueError where a name is sown in a while loop or a branch.
    """

    def harvested(plants: Mapping[str, Any], *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        traced = jit(function).trace(*args, **kwargs)  # with jitted functions that it calls inlined
        handled = _Handled(tag, dict(plants))
        results = handled.run(traced.graph, [fnp.asarray(leaf) for leaf in tree.leaves((args, kwargs))])
        return tree.unflatten(tree.structure(traced.out_info), results), handled.reaped()

    return harvested


def reap(function: Callable[..., Any], *, tag: str) -> Callable[..., Any]:
    """A function from the arguments to the values that are sown on the way, by name."""
    return lambda *args, **kwargs: harvest(function, tag=tag)({}, *args, **kwargs)[1]


def call_and_reap(function: Callable[..., Any], *, tag: str) -> Callable[..., Any]:
    """A function from the arguments to the result and the values that are sown on the way."""
    return lambda *args, **kwargs: harvest(function, tag=tag)({}, *args, **kwargs)


def plant(function: Callable[..., Any], *, tag: str) -> Callable[..., Any]:
    """A function `(plants, *args) -> result` with the values of `plants` in place of those that are sown under their names."""
    return lambda plants, *args, **kwargs: harvest(function, tag=tag)(plants, *args, **kwargs)[0]


class _Handled:
    """One walk over a graph: what to plant, and what has been reaped, with the mode of each name."""

    def __init__(self, tag: str, plants: dict[str, Any]) -> None:
        self.tag, self.plants = tag, plants
        self.found: dict[str, tuple[str, list[Any]]] = {}

    def reaped(self) -> dict[str, Any]:
        return {n: fnp.stack(v) if mode == "append" else v[-1] for n, (mode, v) in self.found.items()}

    def run(self, graph: Graph, args: list[Any]) -> list[Any]:
        known = dict(zip(graph.constvars, graph.consts)) | dict(zip(graph.invars, args))
        read = lambda v: fnp.asarray(v.val, v.aval.dtype) if isinstance(v, Literal) else known[v]
        for eqn in graph.eqns:
            known.update(zip(eqn.outvars, self._results(eqn, [read(v) for v in eqn.invars])))
        return [read(v) for v in graph.outvars]

    def _results(self, eqn: Eqn, operands: list[Any]) -> list[Any]:
        if eqn.primitive is sow_p and eqn.params["tag"] == self.tag:
            return [self._sown(eqn, operands[0])]
        inner = [g for g in _graphs(eqn) if _sows(g, self.tag)]
        if not inner:
            found = eqn.primitive.bind(*operands, **eqn.params)
            return list(found) if eqn.primitive.multiple_results else [found]
        if eqn.primitive is scan_p:
            return self._scanned(eqn, operands)
        if len(list(_graphs(eqn))) == 1 and len(inner[0].invars) == len(operands):  # a call
            return self.run(inner[0], operands)
        raise ValueError(
            f"a value is sown under {self.tag!r} inside of {eqn.primitive} ({eqn.source.short}), which has no place for it: how often "
            "it happens is not known; use scan in place of while_loop, and sow the result of cond"
        )

    def _sown(self, eqn: Eqn, value: Any) -> Any:
        name, mode = eqn.params["name"], eqn.params["mode"]
        if name in self.plants:
            return fnp.asarray(self.plants[name], value.dtype).reshape(value.shape)
        known = self.found.setdefault(name, (mode, []))[1]
        if known and mode == "strict":
            raise ValueError(
                f'{name!r} is sown twice under {self.tag!r} ({eqn.source.short}); give mode="append" or mode="clobber"'
            )
        known.append(value)
        return value

    def _scanned(self, eqn: Eqn, operands: list[Any]) -> list[Any]:
        """The scan with what is sown in a step as further results, and what is planted as further operands."""
        params, graph = eqn.params, eqn.params["jaxpr"]
        consts, carries = params["num_consts"], params["num_carry"]
        plants = {n: fnp.asarray(self.plants[n]) for n in _names(graph, self.tag) if n in self.plants}
        fixed, carry, xs = operands[:consts], operands[consts : consts + carries], operands[consts + carries :]

        def step(carry: list[Any], x: Any) -> tuple[list[Any], Any]:
            part = _Handled(self.tag, x[1])
            results = part.run(graph, [*fixed, *carry, *x[0]])
            return results[:carries], (results[carries:], part.reaped())

        carry, (ys, reaps) = lax.scan(step, carry, (xs, plants), params["length"], params["reverse"])
        for name, value in reaps.items():
            if name in self.found:
                raise ValueError(
                    f"{name!r} is sown under {self.tag!r} inside of a scan ({eqn.source.short}) and elsewhere; give it two names"
                )
            self.found[name] = ("clobber", [value])
        return [*carry, *ys]


def _graphs(eqn: Eqn) -> list[Graph]:
    values = [v for p in eqn.params.values() for v in (p if isinstance(p, (tuple, list)) else [p])]
    return [v for v in values if isinstance(v, Graph)]


def _names(graph: Graph, tag: str) -> set[str]:
    """The names sown under a tag in a graph and those inside of it."""
    found: set[str] = set()
    for eqn in graph.eqns:
        if eqn.primitive is sow_p and eqn.params["tag"] == tag:
            found.add(eqn.params["name"])
        for inner in _graphs(eqn):
            found |= _names(inner, tag)
    return found


def _sows(graph: Graph, tag: str) -> bool:
    return bool(_names(graph, tag))
