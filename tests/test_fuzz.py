"""Random programs: the C backend, fused and optimised, against the reference; a failure prints the graph and the guilty merge.

A program is a list of steps drawn by hypothesis; each step picks an operation and operands among the values so far, and
falls back to another where it does not fit, so that every draw is a program and shrinks to a small one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as fnp
from fuser import nn
from fuser.backends import get
from fuser.backends.c.backend import C
from fuser.debug.bisect import agreement, bisect_graph, run
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.target import CORE
from fuser.ir.types import ArrayType
from fuser.ops import cumulative
from fuser.ops import dynamic as D
from fuser.ops import elementwise as E
from fuser.ops import movement as M
from fuser.ops import reduce as R
from fuser.partition.group import FusionLimits
from fuser.trace.stage import stage

SHAPES = (
    (4, 4),
    (3, 5),
    (1, 7),
    (6, 1),
    (8,),
    (2, 3, 4),
    (4, 4, 4),
    (1,),
    (),
    (0, 3),
    (5, 0),
    (13,),
    (17, 2),
    (70, 33),
    (3, 4100),
    (300, 9),
    (2, 20000),
    (5000, 9),
    (40000,),
)
F32, I32, F64 = np.dtype("float32"), np.dtype("int32"), np.dtype("float64")
Value = Any
# Operations take (value, another value or none of its shape, a list of numbers to choose with) and give a value.
Step = Callable[[Value, Value, list[int]], Value]


def _is_float(x: Value) -> bool:
    return x.dtype.kind == "f"


def _unary(x: Value, _: Value, n: list[int]) -> Value:
    floats = (E.tanh_p, E.neg_p, E.abs_p, E.logistic_p, E.sin_p, E.floor_p, E.square_p, E.exp_p)
    integers = (E.neg_p, E.abs_p, E.sign_p, E.not_p, E.population_count_p)
    if x.dtype.kind in "bu":
        return E.not_p.bind(x)
    primitive = (floats if _is_float(x) else integers)[n[0] % (8 if _is_float(x) else 5)]
    return primitive.bind(E.clamp_p.bind(_number(-4, x), x, _number(4, x)) if primitive is E.exp_p else x)


def _number(value: float, x: Value) -> np.generic:
    return np.asarray(value).astype(x.dtype)[()]


def _binary(x: Value, y: Value, n: list[int]) -> Value:
    if x.dtype == np.bool_:
        return (E.and_p, E.or_p, E.xor_p)[n[0] % 3].bind(x, y)
    if n[1] % 4 == 0:
        y = _number((0, 1, 2, -1)[n[2] % 4], x)
    return (E.add_p, E.sub_p, E.mul_p, E.max_p, E.min_p)[n[0] % 5].bind(x, y)


def _compare(x: Value, y: Value, n: list[int]) -> Value:
    return (E.lt_p, E.ge_p, E.eq_p)[n[0] % 3].bind(x, y)


def _where(x: Value, y: Value, n: list[int]) -> Value:
    return E.select_n_p.bind(E.lt_p.bind(x, y), x, y)


def _convert(x: Value, _: Value, n: list[int]) -> Value:
    new = (F32, I32, F64, np.dtype("int8"), np.dtype("bool"), np.dtype("uint8"), np.dtype("int64"))[n[0] % 7]
    if _is_float(x) and new.kind == "i":
        x = E.clamp_p.bind(_number(-100, x), x, _number(100, x))
    return E.convert_element_type_p.bind(x, new_dtype=new, weak_type=False)


def _axes(x: Value, n: list[int]) -> tuple[int, ...]:
    """A random set of axes, at least one where there is any."""
    chosen = tuple(d for d in range(x.ndim) if n[1] >> d & 1)
    return chosen or ((n[1] % x.ndim,) if x.ndim else ())


def _reduce(x: Value, _: Value, n: list[int]) -> Value:
    reductions: tuple[Any, ...] = (R.reduce_sum_p, R.reduce_max_p, R.reduce_min_p)
    if x.dtype == np.bool_:
        reductions = (R.reduce_and_p, R.reduce_or_p)
    return reductions[n[0] % len(reductions)].bind(x, axes=_axes(x, n))


def _spread_back(x: Value, _: Value, n: list[int]) -> Value:
    """A reduction broadcast to its operand's shape and joined with it, as in a softmax."""
    axes = _axes(x, n)
    total = R.reduce_max_p.bind(x, axes=axes)
    rest = tuple(d for d in range(x.ndim) if d not in axes)
    full = M.broadcast_in_dim_p.bind(total, shape=x.shape, broadcast_dimensions=rest)
    return (E.ne_p if x.dtype == np.bool_ else E.sub_p).bind(x, full)


def _across(x: Value, _: Value, n: list[int]) -> Value:
    """A reduction of a square array broadcast along the other axis: equal shapes, other axes."""
    square = x.ndim == 2 and x.shape[0] == x.shape[1] and x.dtype != np.bool_
    if not square:
        return x
    total = R.reduce_sum_p.bind(x, axes=(n[0] % 2,))
    return E.add_p.bind(x, M.broadcast_in_dim_p.bind(total, shape=x.shape, broadcast_dimensions=(n[1] % 2,)))


def _position(x: Value, _: Value, n: list[int]) -> Value:
    if not x.ndim or 0 in x.shape:
        return x
    return (R.argmax_p, R.argmin_p)[n[0] % 2].bind(x, axes=(n[1] % x.ndim,), index_dtype=I32)


def _transpose(x: Value, _: Value, n: list[int]) -> Value:
    order = sorted(range(x.ndim), key=lambda d: (n[d % 3] * (d + 3)) % 7)
    return M.transpose_p.bind(x, permutation=tuple(order))


def _reshape(x: Value, _: Value, n: list[int]) -> Value:
    size = math.prod(x.shape)
    divisors = [d for d in range(1, min(size, 64) + 1) if size % d == 0] or [1]
    d = divisors[n[0] % len(divisors)]
    shape = ((d, size // d), (size,), (size // d, 1, d), (size // d, d))[n[1] % 4]
    return M.reshape_p.bind(x, new_sizes=shape, dimensions=None)


def _slice(x: Value, _: Value, n: list[int]) -> Value:
    start = tuple(n[d % 3] % (e + 1) // 2 for d, e in enumerate(x.shape))
    step = tuple(1 + n[(d + 1) % 3] % 2 for d in range(x.ndim))
    limit = tuple(max(s, e - n[(d + 2) % 3] % 2) for d, (s, e) in enumerate(zip(start, x.shape)))
    return M.slice_p.bind(x, start_indices=start, limit_indices=limit, strides=step)


def _pad(x: Value, _: Value, n: list[int]) -> Value:
    if math.prod(x.shape) > 20000:
        return x
    config = tuple(
        (n[d % 3] % 4 - 1 if e > 2 else n[d % 3] % 3, n[(d + 1) % 3] % 3, n[(d + 2) % 3] % 2)
        for d, e in enumerate(x.shape)
    )
    return M.pad_p.bind(x, _number(1, x), padding_config=config)


def _reverse(x: Value, _: Value, n: list[int]) -> Value:
    return M.rev_p.bind(x, dimensions=tuple(d for d in range(x.ndim) if n[0] >> d & 1))


def _concatenate(x: Value, y: Value, n: list[int]) -> Value:
    if not x.ndim or math.prod(x.shape) > 20000:
        return x
    return M.concatenate_p.bind(x, y, x, dimension=n[0] % x.ndim)


def _split(x: Value, _: Value, n: list[int]) -> Value:
    axis = n[0] % x.ndim if x.ndim else 0
    if not x.ndim or x.shape[axis] < 2:
        return x
    first = 1 + n[1] % (x.shape[axis] - 1)
    parts = M.split_p.bind(x, sizes=(first, x.shape[axis] - first), axis=axis)
    return parts[n[2] % 2]


def _expand(x: Value, _: Value, n: list[int]) -> Value:
    if math.prod(x.shape) > 5000:
        return x
    extent, place = (1, 3, 4)[n[0] % 3], n[1] % (x.ndim + 1)
    shape = (*x.shape[:place], extent, *x.shape[place:])
    return M.broadcast_in_dim_p.bind(
        x, shape=shape, broadcast_dimensions=tuple(d for d in range(len(shape)) if d != place)
    )


def _running(x: Value, _: Value, n: list[int]) -> Value:
    if not x.ndim or x.dtype == np.bool_:
        return x
    return (cumulative.cumsum_p, cumulative.cummax_p)[n[0] % 2].bind(x, axis=n[1] % x.ndim, reverse=bool(n[2] % 2))


def _stencil(x: Value, _: Value, n: list[int]) -> Value:
    """A value beside its neighbour."""
    if not x.ndim or x.shape[-1] < 2 or x.dtype == np.bool_:
        return x
    low, high = ((0,) * (x.ndim - 1) + (1,), x.shape), ((0,) * x.ndim, (*x.shape[:-1], x.shape[-1] - 1))
    parts = [M.slice_p.bind(x, start_indices=a, limit_indices=b, strides=None) for a, b in (low, high)]
    return E.sub_p.bind(*parts)


def _iota(x: Value, _: Value, n: list[int]) -> Value:
    if not x.ndim or x.dtype == np.bool_:
        return x
    return E.add_p.bind(x, M.iota_p.bind(dtype=x.dtype, shape=x.shape, dimension=n[0] % x.ndim))


def _whole(x: Value) -> Value:
    """The values as int32, for positions."""
    low, high = (0, 1) if x.dtype == np.bool_ else (-9, 9)
    x = x if x.dtype == np.bool_ else E.clamp_p.bind(_number(low, x), x, _number(high, x))
    return E.convert_element_type_p.bind(x, new_dtype=I32, weak_type=False)


def _take(x: Value, y: Value, n: list[int]) -> Value:
    """Elements at computed positions, out of range ones among them."""
    if not x.ndim or 0 in x.shape or math.prod(x.shape) > 20000:
        return x
    axis = n[0] % x.ndim
    line = _whole(y.reshape(-1)[: 1 + n[1]])
    return fnp.take(x, line, axis=axis, mode=("fill", "clip", "wrap")[n[2] % 3], fill_value=3)


def _window(x: Value, y: Value, n: list[int]) -> Value:
    """A slice, or an update, at a computed place."""
    if not x.ndim or 0 in x.shape:
        return x
    starts = [_whole(y).max() + d for d in range(x.ndim)]
    sizes = tuple(1 + n[d % 3] % e for d, e in enumerate(x.shape))
    part = D.dynamic_slice_p.bind(x, *starts, slice_sizes=sizes)
    return part if n[0] % 2 else D.dynamic_update_slice_p.bind(x, part, *(s * 0 for s in starts))


def _scatter(x: Value, y: Value, n: list[int]) -> Value:
    if not x.ndim or 0 in x.shape or x.dtype == np.bool_ or math.prod(x.shape) > 20000:
        return x
    at = x.at[_whole(y.reshape(-1)[:3])]
    return (at.add, at.max, at.set)[n[0] % 3](_number(n[1], x))


def _product(x: Value, y: Value, n: list[int]) -> Value:
    return x @ y.T if x.ndim == 2 and x.dtype == F32 and math.prod(x.shape) < 20000 else x


def _statistics(x: Value, _: Value, n: list[int]) -> Value:
    """Functions of fuser.numpy and fuser.nn made of several reductions."""
    if not x.ndim or not _is_float(x) or 0 in x.shape:
        return x
    axis = n[1] % x.ndim
    functions: tuple[Any, ...] = (fnp.mean, fnp.var, fnp.median, nn.softmax, nn.logsumexp, nn.standardize)
    x = E.clamp_p.bind(_number(-50, x), x, _number(50, x))
    return functions[n[0] % len(functions)](x, axis=axis)


STEPS: tuple[Step, ...] = (
    _unary,
    _binary,
    _binary,
    _compare,
    _where,
    _convert,
    _reduce,
    _spread_back,
    _spread_back,
    _across,
    _position,
    _transpose,
    _reshape,
    _slice,
    _pad,
    _reverse,
    _concatenate,
    _split,
    _expand,
    _running,
    _stencil,
    _iota,
    _take,
    _window,
    _scatter,
    _product,
    _statistics,
)

Drawn = tuple[int, int, int, list[int]]
numbers = st.lists(st.integers(0, 11), min_size=3, max_size=3)
steps = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 20), st.integers(0, 20), numbers), min_size=1, max_size=14
)


def program(drawn: list[Drawn], outputs: list[int]) -> Callable[..., list[Value]]:
    """The function that the steps stand for. A partner of another type is replaced by the value itself."""

    def function(*inputs: Value) -> list[Value]:
        values = list(inputs)
        for kind, first, second, n in drawn:
            x = values[-1 - first % len(values)]
            y = values[-1 - second % len(values)]
            y = y if (y.shape, y.dtype) == (x.shape, x.dtype) else x
            values.append(STEPS[kind](x, y, n))
        return [values[-1], *(values[k % len(values)] for k in outputs)]

    return function


def graph_of(drawn: list[Drawn], outputs: list[int], shapes: list[tuple[int, ...]]) -> Graph:
    avals = [ArrayType(shape, F32 if n % 3 else I32) for n, shape in enumerate(shapes, 1)]
    return stage(program(drawn, outputs), avals, "program")


def arrays_for(graph: Graph) -> list[np.ndarray]:
    """Small whole and half numbers, so that ties are frequent and sums exact in any order."""
    rng = np.random.default_rng(0)
    return [
        np.asarray(rng.integers(-6, 7, v.aval.shape) * (0.5 if v.aval.dtype == F32 else 1)).astype(v.aval.dtype)
        for v in graph.invars
    ]


@settings(max_examples=90, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps, st.lists(st.integers(0, 20), max_size=3), st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
def test_c_agrees_with_the_reference(drawn: list[Drawn], outputs: list[int], shapes: list[tuple[int, ...]]) -> None:
    graph = graph_of(drawn, outputs, shapes)
    arrays = arrays_for(graph)
    with np.errstate(all="ignore"):
        expected = evaluate(graph, arrays)
    _, found = run(graph, arrays, get("c"), -1)
    for number, (x, y) in enumerate(zip(found, expected, strict=True)):
        if not agreement(x, y):
            raise AssertionError(
                f"result {number}: {x!r}, expected {y!r}\n{arrays}\n{graph}\n{bisect_graph(graph, arrays, get('c'))}"
            )


class Narrow(C):
    """C with the limits of a backend that holds little in a kernel and computes much again."""

    limits = FusionLimits(max_params=5, max_ops=9, target=replace(CORE, operations=1e18))


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps, st.lists(st.integers(0, 20), max_size=3), st.lists(st.sampled_from(SHAPES[:14]), min_size=1, max_size=3))
def test_plans_under_other_limits(drawn: list[Drawn], outputs: list[int], shapes: list[tuple[int, ...]]) -> None:
    graph = graph_of(drawn, outputs, shapes)
    arrays = arrays_for(graph)
    with np.errstate(all="ignore"):
        expected = evaluate(graph, arrays)
    _, found = run(graph, arrays, Narrow(), -1)
    for x, y in zip(found, expected, strict=True):
        assert agreement(x, y), f"{graph}\n{bisect_graph(graph, arrays, Narrow())}"


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps, st.lists(st.integers(0, 20), max_size=2), st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2))
def test_jit_agrees_with_eager(drawn: list[Drawn], outputs: list[int], shapes: list[tuple[int, ...]]) -> None:
    """The same program through the front door: jit twice (compiled, then from its cache) and one operation at a time."""
    arrays = [fuser.numpy.asarray(a) for a in arrays_for(graph_of(drawn, outputs, shapes))]
    function = program(drawn, outputs)
    eager, jitted = function(*arrays), fuser.jit(function)
    for results in (jitted(*arrays), jitted(*arrays)):
        for x, y in zip(results, eager, strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            assert agreement(np.asarray(x), np.asarray(y)), graph_of(drawn, outputs, shapes)
