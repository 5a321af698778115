"""`shard_map`: a graph that runs once on each device of a mesh, on parts of the operands.

`in_specs` and `out_specs` say for each operand and result, for each of its dimensions, the mesh axes that split it.
Among the params is the graph of one device, and rules make other such graphs of it. With `check_vma` its types say along
which axes values differ, so that a cotangent of what is the same for all is summed where it is made; without, operands
that are the same for all get the sum at the end, and cotangents of such results are shared out before.
How it is run is set by fuser.parallel, which stands above.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.graph import Graph, Var
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.ops.collective import psum_p
from fuser.ops.control import graphs
from fuser.ops.elementwise import div_p
from fuser.ops.movement import reshape_p
from fuser.ops.sharding import check_apart
from fuser.runtime.array import Array
from fuser.trace.batch import axes_key, batch_axes, manual, mapped_along, moved, size_of, spmd_axes
from fuser.trace.body import close
from fuser.trace.core import Trace, type_of, using
from fuser.trace.explicit import rules
from fuser.trace.hoisting import number
from fuser.trace.linear import LinearTrace, pushes
from fuser.trace.replay import replay
from fuser.trace.stage import stage
from fuser.trace.tangent import Undefined, Zero
from fuser.trace.transpose import transposed_graph

Spec = tuple[tuple[Any, ...], ...]  # for each dimension, the mesh axes that split it
Specs = tuple[Spec, ...]


class Layout(NamedTuple):
    """Where a shard_map runs: the mesh, those of its axes that the graph may name, and whether types say what varies."""

    mesh: Any
    manual_axes: tuple[Any, ...]
    check_vma: bool

    @contextmanager
    def scope(self) -> Iterator[None]:
        """The axes in scope, as for the graph of one device."""
        sizes = {n: s for n, s in self.mesh.shape.items() if n in self.manual_axes}
        with manual(sizes, self.check_vma):
            yield

    def extent(self, axes: Sequence[Any]) -> int:
        """The devices along these axes."""
        return math.prod(self.mesh.shape[a] for a in axes)

    def parts(self, axes: Sequence[Any]) -> int:
        """Into how many parts these axes split operands and results."""
        return math.prod(self.mesh.split_shape[a] for a in axes)

    def local(self, aval: ArrayType, spec: Spec) -> ArrayType:
        """The type of one device's part of a value, padding included; within another shard_map it may vary along that one's axes too."""
        shape = tuple(-(-size // self.parts(axes)) for size, axes in zip(aval.shape, spec, strict=True))
        explicit = None if aval.explicit is None else rules.local(self, aval, spec)
        return aval.update(shape=shape, vma=aval.vma | self.varying(spec), explicit=explicit)

    def joined(self, aval: ArrayType, spec: Spec) -> ArrayType:
        """The type of the value whose part on one device has this type."""
        shape = tuple(size * self.parts(axes) for size, axes in zip(aval.shape, spec, strict=True))
        explicit = rules.joined(self, aval, spec) if self.mesh.explicit_axes else None
        return aval.update(shape=shape, vma=aval.vma - set(self.manual_axes), explicit=explicit)

    def varying(self, spec: Spec) -> frozenset[Any]:
        """The axes along which the parts differ."""
        return frozenset(a for axes in spec for a in axes) if self.check_vma else frozenset()

    def unmentioned(self, spec: Spec) -> tuple[Any, ...]:
        mentioned = {a for axes in spec for a in axes}
        return tuple(a for a in self.manual_axes if a not in mentioned)


def cotangent_type(aval: ArrayType) -> ArrayType:
    """The type of cotangents of values of this type."""
    return aval if aval.explicit is None else aval.update(explicit=aval.explicit.cotangent())


def whole(rank: int) -> Spec:
    """The spec of a value that every device has."""
    return ((),) * rank


def _layout(params: dict[str, Any]) -> Layout:
    return Layout(params["mesh"], params["manual_axes"], params["check_vma"])


def on_devices(make: Callable[..., Any], params: dict[str, Any], *args: Any) -> Any:
    """`make(graph of one device, *args)` with the axes in scope as for that graph."""
    with _layout(params).scope():
        return make(params["jaxpr"], *args)


def _bind(graphed: Graph, operands: Sequence[Any], in_specs: Any, out_specs: Any, params: dict[str, Any]) -> list[Any]:
    given = {**params, "jaxpr": graphed, "in_specs": tuple(in_specs), "out_specs": tuple(out_specs)}
    return shard_map_p.bind(*operands, **given)  # type: ignore[no-any-return]


def _type(*avals: ArrayType, jaxpr: Graph, in_specs: Specs, out_specs: Specs, **params: Any) -> tuple[ArrayType, ...]:
    layout = _layout(params)
    for aval, spec, inner in zip(avals, in_specs, jaxpr.in_avals, strict=True):
        found = layout.local(aval, spec)
        if (found.shape, found.dtype) != (inner.shape, inner.dtype):
            raise TypeRuleError(f"shard_map of {jaxpr.name} takes parts of type {inner}, got {found} of {aval}")
    return tuple(layout.joined(a, spec) for a, spec in zip(jaxpr.out_avals, out_specs, strict=True))


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], jaxpr: Graph, in_specs: Specs, out_specs: Specs, **params: Any
) -> Any:
    active = tuple(type(t) is not Zero for t in tangents)
    with _layout(params).scope():
        made = graphs.jvp(jaxpr, active, (False,) * len(jaxpr.outvars))
    operands = (*made.consts, *primals, *(t for t in tangents if type(t) is not Zero))
    specs = (*_constant(made.consts), *in_specs, *graphs.where(active, in_specs))
    results = _bind(made.graph, operands, specs, (*out_specs, *graphs.where(made.present, out_specs)), params)
    count = len(out_specs)
    rest, outs = iter(results[count:]), results[:count]
    return outs, [next(rest) if use else Zero(type_of(o)) for use, o in zip(made.present, outs)]


def _constant(consts: Sequence[Any]) -> list[Spec]:
    return [whole(type_of(c).ndim) for c in consts]


def _batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    jaxpr: Graph,
    in_specs: Specs,
    out_specs: Specs,
    axis: Any = None,
    **params: Any,
) -> Any:
    size = size_of(operands, dims) if any(d is not None for d in dims) else axis[1]
    batched = tuple(d is not None for d in dims)
    split = spmd_axes() or mapped_along(operands, dims)
    for spec in (*in_specs, *out_specs) if split else ():
        if not spmd_axes() and any(a in split for axes in spec for a in axes):
            raise ValueError(
                f"jax.shard_map requires axis_names to be a subset of the axes that the mapped dimension does not lie along: it lies along "
                f"{split}, and a spec is {spec} ({current_source().short}); reshard the argument of vmap"
            )
        check_apart(split, spec)
    with _layout(params).scope():
        made = graphs.batch(jaxpr, batched, size // _layout(params).parts(split), (False,) * len(jaxpr.outvars), axis)
    lead = lambda specs, mask: [(split, *s) if use else s for s, use in zip(specs, mask)]
    values = [moved(v, d, 0) for v, d in zip(operands, dims)]
    specs = (*_constant(made.consts), *lead(in_specs, batched))
    results = _bind(made.graph, (*made.consts, *values), specs, lead(out_specs, made.present), params)
    return results, [0 if use else None for use in made.present]


# Linearization: residuals leave the known part split along the axes on which they differ, and enter the linear part so.


class _Parts(NamedTuple):
    known: Graph
    consts: tuple[Any, ...]
    linear: Graph
    is_linear: list[bool]
    sources: list[int | None]  # of each residual: the known operand that it is, or None for a result
    specs: list[Spec]  # of the residuals that are results


@functools.lru_cache(maxsize=256)
def _split(jaxpr: Graph, linear: tuple[bool, ...], layout: Layout, scope: Any) -> _Parts:
    with layout.scope():
        parts = graphs.split(jaxpr, linear, (False,) * len(jaxpr.outvars))
        count = len(parts.known.outvars) - parts.residuals
        place = {v: n for n, v in enumerate(parts.known.invars[len(parts.consts) :])}
        sources = [place.get(v) if isinstance(v, Var) else None for v in parts.known.outvars[count:]]
        made = [n for n, source in enumerate(sources) if source is None]
        avals = [parts.known.out_avals[count + n] for n in made]
        own = [a for a in layout.manual_axes if a not in batch_axes()]
        axes = [tuple(a for a in own if a in v.vma or not layout.check_vma) for v in avals]
        boxed = {n for n, aval, names in zip(made, avals, axes) if names and not aval.shape}
        specs = [(names, *[()] * (max(v.ndim, 1) - 1)) if names else whole(v.ndim) for v, names in zip(avals, axes)]

        def known(*inputs: Any) -> list[Any]:
            results = replay(parts.known, *inputs)
            found = [_boxed(results[count + n]) if n in boxed else results[count + n] for n in made]
            return [*results[:count], *found]

        def rest(*inputs: Any) -> list[Any]:
            given = [
                reshape_p.bind(v, new_sizes=(), dimensions=None) if n in boxed else v for n, v in enumerate(inputs)
            ]
            return replay(parts.linear, *given)

        first = stage(known, parts.known.in_avals, jaxpr.name)
        second = [a.update(shape=(1,)) if n in boxed else a for n, a in enumerate(parts.linear.in_avals)]
        graph, consts = close(stage(rest, second, jaxpr.name))
    assert not consts
    return _Parts(first, parts.consts, graph, parts.is_linear, sources, specs)


def _boxed(value: Any) -> Any:
    return reshape_p.bind(value, new_sizes=(1,), dimensions=None)


def _partial(trace: Trace, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    assert isinstance(trace, LinearTrace)
    linear = tuple(trace.follows(a) for a in args)
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    others = [not use for use in linear]
    parts = _split(params["jaxpr"], linear, _layout(params), (axes_key(), pushes()))
    known, known_specs = graphs.where(others, args), graphs.where(others, in_specs)
    kept = [s for s, use in zip(out_specs, parts.is_linear) if not use]
    with using(trace.parent):
        results = _bind(
            parts.known,
            (*parts.consts, *known),
            (*_constant(parts.consts), *known_specs),
            (*kept, *parts.specs),
            params,
        )
    made = iter(zip(results[len(kept) :], parts.specs))
    residuals = [(known[s], known_specs[s]) if s is not None else next(made) for s in parts.sources]
    operands = (*(v for v, _ in residuals), *graphs.where(linear, args))
    given = {
        **params,
        "jaxpr": parts.linear,
        "in_specs": (*(s for _, s in residuals), *graphs.where(linear, in_specs)),
        "out_specs": tuple(graphs.where(parts.is_linear, out_specs)),
    }
    tangents = iter(trace.record(shard_map_p, operands, given) if parts.linear.outvars else ())
    values = iter(results)
    return [next(tangents) if use else next(values) for use in parts.is_linear]


# Transposition.


class _Transposed(NamedTuple):
    graph: Graph
    consts: tuple[Any, ...]
    present: list[bool]


@functools.lru_cache(maxsize=256)
def _transposed(
    jaxpr: Graph,
    linear: tuple[bool, ...],
    active: tuple[bool, ...],
    in_specs: Specs,
    out_specs: Specs,
    layout: Layout,
    axes_in_scope: Any,
) -> _Transposed:
    present: list[bool] = []
    known_count = sum(not use for use in linear)

    def alike(spec: Spec) -> tuple[Any, ...]:
        """The axes along which values are the same for all; not those that split the dimension which a vmap around maps."""
        return tuple(a for a in layout.unmentioned(spec) if a not in batch_axes())

    def shared(cotangent: Any, spec: Spec) -> Any:
        """A cotangent of what is the same for all, without types that say so: each device has its share."""
        count = layout.extent(alike(spec))
        if layout.check_vma or count == 1:
            return cotangent
        return div_p.bind(cotangent, number(Array(np.asarray(count).astype(cotangent.dtype))))

    def total(cotangent: Any, spec: Spec) -> Any:
        axes = alike(spec)
        return cotangent if layout.check_vma or not axes else psum_p.bind(cotangent, axes=axes)

    def function(*inputs: Any) -> list[Any]:
        known, given = iter(inputs[:known_count]), iter(inputs[known_count:])
        operands = [Undefined(a) if use else next(known) for a, use in zip(jaxpr.in_avals, linear)]
        cotangents = [
            shared(next(given), s) if use else Zero(a) for a, s, use in zip(jaxpr.out_avals, out_specs, active)
        ]
        found = transposed_graph(jaxpr, operands, cotangents)
        wanted = [(c, s) for c, s, use in zip(found, in_specs, linear) if use]
        present.extend(type(c) is not Zero for c, _ in wanted)
        return [total(c, s) for c, s in wanted if type(c) is not Zero]

    avals = [a for a, use in zip(jaxpr.in_avals, linear) if not use]
    avals += [
        layout.local(cotangent_type(layout.joined(a, s)), s)
        for a, s, use in zip(jaxpr.out_avals, out_specs, active)
        if use
    ]
    with layout.scope():
        graph, consts = close(stage(function, avals, jaxpr.name))
    return _Transposed(graph, consts, present)


def _transpose(
    cotangents: Sequence[Any], *operands: Any, jaxpr: Graph, in_specs: Specs, out_specs: Specs, **params: Any
) -> list[Any]:
    linear = tuple(type(o) is Undefined for o in operands)
    active = tuple(type(c) is not Zero for c in cotangents)
    made = _transposed(jaxpr, linear, active, in_specs, out_specs, _layout(params), (axes_key(), pushes()))
    others = [not use for use in linear]
    values = (*made.consts, *graphs.where(others, operands), *graphs.where(active, cotangents))
    specs = (*_constant(made.consts), *graphs.where(others, in_specs), *graphs.where(active, out_specs))
    wanted = graphs.where(made.present, graphs.where(linear, in_specs))
    found = iter(_bind(made.graph, values, specs, wanted, params) if wanted else ())
    present = iter(made.present)
    return [next(found) if use and next(present) else None for use in linear]


shard_map_p: Primitive = register(
    Primitive(
        "shard_map",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_type,
        partial=_partial,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
        varying=lambda axes, **params: None,
    )
)
