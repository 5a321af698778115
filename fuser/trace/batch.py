"""Batching: a Trace that carries one dimension more beside what the function sees.

A value of the function is an array with a batch dimension somewhere, or one that is the same for all. Each primitive's
batch rule says how it works on arrays with that dimension; collectives over the trace's named axis act on it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fuser.config import config
from fuser.ir.graph import graphs_in
from fuser.ir.primitive import REGISTRY, Primitive
from fuser.ir.source import through
from fuser.trace import cells, leaks
from fuser.trace.core import Trace, Tracer, _state, current, forwarded, type_of, using
from fuser.trace.tangent import as_array


class BatchTracer(Tracer):
    """One element, as the function sees it, of `_value` along its dimension `_dim`."""

    __slots__ = ("_dim", "_value")

    def __init__(self, trace: Trace, value: Any, dim: int) -> None:
        aval = type_of(value)
        super().__init__(trace, aval.without(dim))
        self._value = value
        self._dim = dim


class BatchRef(BatchTracer):
    """One element of what a Ref of the parent holds along its batch dimension."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        trace: Any = self._trace
        return BatchTracer(trace, cells.read(trace.parent, self._value), self._dim)

    @value.setter
    def value(self, value: Any) -> None:
        trace: Any = self._trace
        found, dim = trace.pair(value)
        with using(trace.parent):
            found = moved(found, dim, self._dim, trace.size)
        cells.write(trace.parent, self._value, found)

    def close(self) -> None:
        """End it for the whole batch."""
        cells.end(self._trace.parent, self._value)  # type: ignore[attr-defined]


_UNBATCHED_REF = (
    "performing a set/swap operation with vmapped value on an unbatched array reference of type {}. "
    "Move the array reference to be an argument to the vmapped function?"
)


class BatchTrace(Trace):
    """Gives each primitive to its batch rule, bound under the parent."""

    name = "vmap"

    def __init__(self, parent: Trace, size: int, axis_name: Any = None, tag: Any = None, spmd: Any = ()) -> None:
        self.parent = parent
        self.size = size
        self.axis_name = axis_name
        self.spmd = spmd  # the axes of a mesh that split the batch dimension, where vmap was told
        self.tag = self if tag is None else tag  # traces with one tag know each other's tracers

    def follows(self, value: Any) -> bool:
        """Whether the value has a batch dimension of this trace."""
        return isinstance(value, BatchTracer) and value._trace.tag is self.tag  # type: ignore[attr-defined]

    def pair(self, value: Any) -> tuple[Any, int | None]:
        """A value and its batch dimension, None for what is the same for all."""
        return (value._value, value._dim) if self.follows(value) else (value, None)

    def result(self, value: Any, dim: int | None) -> Any:
        return value if dim is None else (BatchRef if cells.is_ref(value) else BatchTracer)(self, value, dim)

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        named = self.axis_name is not None and mentions(primitive, params, self.axis_name)
        if primitive.discharge is not None and (
            cells.makes_ref(primitive) or (any(map(self.follows, args)) and any(map(cells.is_ref, args)))
        ):
            return self._discharged(primitive, args, params)
        if not named and not primitive.calls and not any(map(self.follows, args)):
            return forwarded(self.parent, primitive, args, params)
        pairs = [self.pair(a) for a in args]
        values = tuple([as_array(v) for v, _ in pairs])
        dims = tuple([d for _, d in pairs])
        saved, _state.trace = _state.trace, self.parent
        around, _axes.spmd = _axes.spmd, self.spmd
        try:
            with through("vmap"):
                if primitive.calls:
                    out, dim = primitive.rule("batch")(values, dims, trace=self, **params)
                elif named and primitive.collect is not None:
                    out, dim = primitive.collect(values, dims, self.size, **params)
                elif named:
                    out, dim = primitive.rule("batch")(values, dims, axis=(self.axis_name, self.size), **params)
                else:
                    out, dim = primitive.rule("batch")(values, dims, **params)
        finally:
            _state.trace, _axes.spmd = saved, around
        if primitive.multiple_results:
            return [self.result(o, d) for o, d in zip(out, dim)]
        return self.result(out, dim)

    def _discharged(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if cells.makes_ref(primitive):  # with a batch dimension in any case: one may be written later
            value, dim = self.pair(args[0])
            with using(self.parent):
                value = moved(as_array(value), dim, 0, self.size)
            return BatchRef(self, forwarded(self.parent, primitive, (value,), params), 0)
        return cells.discharged(
            self, primitive, args, params, lambda ref: cells.Outside(self, ref, self.follows, _UNBATCHED_REF)
        )


def mentions(primitive: Primitive, params: dict[str, Any], axis_name: Any) -> bool:
    """Whether a collective over this axis is applied, here or in a graph among the params."""
    if primitive.collect is not None:
        return axis_name in axis_names(params)
    return any(mentions(e.primitive, e.params, axis_name) for g in graphs_in(params) for e in g.eqns)


def axis_names(params: dict[str, Any]) -> tuple[Any, ...]:
    """The named axes of a collective's params."""
    name = params["axes"] if "axes" in params else params.get("axis_name")
    return name if isinstance(name, tuple) else (name,)


class _Axes(threading.local):
    def __init__(self) -> None:
        self.sizes: dict[Any, int] = {}
        self.manual: frozenset[Any] = frozenset()
        self.checked: frozenset[Any] = frozenset()
        self.spmd: tuple[Any, ...] = ()
        self.batch: tuple[Any, ...] = ()


_axes = _Axes()


def named_axes() -> dict[Any, int]:
    """The named axes in scope, and their sizes."""
    return _axes.sizes


def manual_axes() -> frozenset[Any]:
    """Those of the named axes in scope that are axes of a mesh of devices."""
    return _axes.manual


def checked_axes() -> frozenset[Any]:
    """The axes of a mesh along which the types of values say whether they vary."""
    return _axes.checked


def spmd_axes() -> tuple[Any, ...]:
    """The axes of a mesh that split the batch dimension which a rule adds, as `vmap(spmd_axis_name=)` says."""
    return _axes.spmd


def batch_axes() -> tuple[Any, ...]:
    """The axes of a mesh that split the batch dimension of a `vmap(spmd_axis_name=)` around."""
    return _axes.batch


def axes_key() -> tuple[Any, ...]:
    """What a trace depends on of the named axes in scope."""
    if not (_axes.sizes or _axes.spmd or _axes.batch):
        return ()
    return (*_axes.sizes.items(), _axes.checked, _axes.spmd, _axes.batch)


@contextlib.contextmanager
def manual(sizes: dict[Any, int], checked: bool) -> Iterator[None]:
    """Bring the axes of a mesh into scope; where `checked`, types say along which of them values vary."""
    saved = _axes.sizes, _axes.manual, _axes.checked
    _axes.sizes, _axes.manual = {**_axes.sizes, **sizes}, _axes.manual | set(sizes)
    _axes.checked = _axes.checked | set(sizes) if checked else _axes.checked - set(sizes)
    try:
        yield
    finally:
        _axes.sizes, _axes.manual, _axes.checked = saved


@contextlib.contextmanager
def axis(name: Any, size: int) -> Iterator[None]:
    """Bring a named axis into scope; None names none."""
    saved = _axes.sizes
    if name is not None:
        _axes.sizes = {**saved, name: size}
    try:
        yield
    finally:
        _axes.sizes = saved


def batch(
    function: Callable[..., Sequence[Any]],
    values: Sequence[Any],
    dims: Sequence[int | None],
    size: int,
    axis_name: Any = None,
    tag: Any = None,
    spmd: tuple[Any, ...] = (),
) -> tuple[list[Any], list[int | None]]:
    """Results of a flat function mapped over `dims` of its arguments, each with its batch dimension or None.

    With the `tag` of another BatchTrace the function may close over that one's values. `spmd` are the axes of a mesh
    that split the batch dimension; within a rule, those of the trace that it serves.
    """
    trace = BatchTrace(current(), size, axis_name, tag, spmd or _axes.spmd)
    pairs = _run(trace, function, values, dims)
    if config.check_tracer_leaks:
        leaks.check(trace)
    return [v for v, _ in pairs], [d for _, d in pairs]


def _run(trace: BatchTrace, function: Callable[..., Sequence[Any]], values: Any, dims: Any) -> list[Any]:
    saved, _state.trace = _state.trace, trace
    around, _axes.batch = _axes.batch, (*_axes.batch, *(trace.spmd or mapped_along(values, dims)))
    try:
        with axis(trace.axis_name, trace.size):
            inputs = [trace.result(v, d) for v, d in zip(values, dims)]
            return [trace.pair(o) for o in function(*inputs)]
    finally:
        _state.trace, _axes.batch = saved, around
        trace.closed = True


# What rules need.


def mapped_along(operands: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, ...]:
    """The axes of a mesh along which types say that the batch dimension lies."""
    for operand, dim in zip(operands, dims):
        explicit = type_of(operand).explicit
        if explicit is not None and dim is not None:
            entry = explicit.spec.partitions[dim]
            if isinstance(entry, tuple) or (entry is not None and entry is not explicit.spec.UNCONSTRAINED):
                return entry if isinstance(entry, tuple) else (entry,)
    return ()


def moved(value: Any, dim: int | None, to: int, size: int | None = None) -> Any:
    """The value with its batch dimension at `to`; one that has none is repeated `size` times, or left alone."""
    aval = type_of(value)
    if dim is None:
        if size is None:
            return value
        shape = (*aval.shape[:to], size, *aval.shape[to:])
        kept = tuple(d for d in range(len(shape)) if d != to)
        return REGISTRY["broadcast_in_dim"].bind(value, shape=shape, broadcast_dimensions=kept)
    if dim == to:
        return value
    order = [d for d in range(aval.ndim) if d != dim]
    order.insert(to, dim)
    return REGISTRY["transpose"].bind(value, permutation=tuple(order))


def size_of(values: Sequence[Any], dims: Sequence[int | None]) -> int:
    """The extent of the batch dimension."""
    return next(type_of(v).shape[d] for v, d in zip(values, dims) if d is not None)


def aligned(values: Sequence[Any], dims: Sequence[int | None]) -> tuple[list[Any], int]:
    """Operands of an elementwise primitive with their batch dimensions at one place, and that place.

    They come out with equal shapes, or with rank 0 where they are neither batched nor of another rank.
    """
    avals = [type_of(v) for v in values]
    shapes = [a.shape if d is None else a.shape[:d] + a.shape[d + 1 :] for a, d in zip(avals, dims)]
    shape = max(shapes, key=len)
    places = {d for d in dims if d is not None}
    if len(places) == 1 and all(
        (d is not None and s == shape) or a.shape == () for a, s, d in zip(avals, shapes, dims)
    ):
        return list(values), places.pop()  # all that is batched stands alike: nothing needs to move
    size = size_of(values, dims)
    out = []
    for value, aval, inner, dim in zip(values, avals, shapes, dims):
        value = moved(value, dim, 0)
        if aval.shape and not (dim is not None and inner == shape):
            kept = tuple(range(1, len(shape) + 1)) if dim is None else (0,)
            value = REGISTRY["broadcast_in_dim"].bind(value, shape=(size, *shape), broadcast_dimensions=kept)
        out.append(value)
    return out, 0
