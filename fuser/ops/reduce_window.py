"""Reductions over windows (pooling), and what their derivatives are made of: the element of a window that is its extreme.

`expand` writes small windows out, as reductions of strided slices; wide ones, a dimension at a time, as reductions of sliding
windows, or in log₂(w) steps where that is less work. Kernels then hold them like any other arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.errors import TypeRuleError, UnsupportedError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.types import FLOATS, ArrayType, sum_dtype
from fuser.ops import elementwise as E
from fuser.ops import reduce as R
from fuser.ops.family import allow, linear_in, sample
from fuser.ops.indexing import GatherScatterMode, ScatterDimensionNumbers
from fuser.ops.movement import broadcast_in_dim_p, inserted, iota_p, pad_p, reshaped, slice_p
from fuser.ops.scatter import scatter_add_p
from fuser.ops.windows import count, dilated, padded, places, sliding_windows_p
from fuser.trace.batch import batch, moved, size_of
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp
from fuser.trace.replay import replay
from fuser.trace.stage import stage
from fuser.trace.tangent import full

UNROLLED = 64  # places of a window that are written out


class Windows(NamedTuple):
    """The windows of an array: one entry a dimension."""

    window_dimensions: tuple[int, ...]
    window_strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]

    @property
    def config(self) -> tuple[tuple[int, int, int], ...]:
        """The `padding_config` of the operand."""
        return tuple((low, high, d - 1) for (low, high), d in zip(self.padding, self.base_dilation))

    @property
    def places(self) -> int:
        """The elements of one window."""
        return math.prod(self.window_dimensions)

    def counts(self, shape: Sequence[int], name: str = "reduce_window") -> tuple[int, ...]:
        """How many windows there are along each dimension; TypeRuleError where the entries do not go with the shape."""
        for word, values, least in (
            ("window_dimensions", self.window_dimensions, 1),
            ("window_strides", self.window_strides, 1),
            ("base_dilation", self.base_dilation, 1),
            ("window_dilation", self.window_dilation, 1),
        ):
            if len(values) != len(shape):
                raise TypeRuleError(
                    f"{name} got {word} {tuple(values)} for an operand of shape {tuple(shape)}: one a dimension is needed"
                )
            if any(v < least for v in values):
                raise TypeRuleError(f"{name}: {word} must have every element be at least {least}, got {tuple(values)}")
        if len(self.padding) != len(shape):
            raise TypeRuleError(
                f"{name} needs a pair of padding a dimension of shape {tuple(shape)}, got {self.padding}"
            )
        wide = (dilated(e, d) + low + high for e, d, (low, high) in zip(shape, self.base_dilation, self.padding))
        windows = map(dilated, self.window_dimensions, self.window_dilation)
        return tuple(map(count, wide, windows, self.window_strides))

    def alone(self, dimension: int) -> Windows:
        """The windows along one dimension of what was padded already."""
        one = [1] * len(self.window_dimensions)
        put = lambda values: tuple(v if d == dimension else 1 for d, v in enumerate(values))
        return Windows(
            put(self.window_dimensions),
            put(self.window_strides),
            ((0, 0),) * len(one),
            tuple(one),
            put(self.window_dilation),
        )

    def without(self, dimension: int) -> Windows:
        """With windows of one element along a dimension."""
        put = lambda values: tuple(1 if d == dimension else v for d, v in enumerate(values))
        return self._replace(
            window_dimensions=put(self.window_dimensions),
            window_strides=put(self.window_strides),
            window_dilation=put(self.window_dilation),
        )

    def batched(self, dim: int) -> Windows:
        """With a batch dimension put in."""
        return Windows(*(inserted(v, dim, (0, 0) if n == 2 else 1) for n, v in enumerate(self)))


Combine = Callable[[list[Any], list[Any]], list[Any]]


def reduce_windows(values: list[Any], windows: Windows, combine: Combine) -> list[Any]:
    """The reduction of each window of padded arrays, by an associative `combine` of two lists of arrays."""
    if windows.places <= UNROLLED:
        return _written_out(values, windows, combine)
    for d, w in enumerate(windows.window_dimensions):
        along = windows.alone(d)
        if w > 1 or along.window_strides[d] > 1:
            values = _written_out(values, along, combine) if w <= UNROLLED // 4 else _doubled(values, along, d, combine)
    return values


def _written_out(values: list[Any], windows: Windows, combine: Combine) -> list[Any]:
    several = zip(
        *(places(v, windows.window_dimensions, windows.window_strides, windows.window_dilation) for v in values)
    )
    result = list(next(several))
    for more in several:
        result = combine(result, list(more))
    return result


def _doubled(values: list[Any], windows: Windows, d: int, combine: Combine) -> list[Any]:
    """Windows of 1, 2, 4, … elements, and from them those of w, at all places; then only those that are asked for."""
    w, apart, stride = (v[d] for v in (windows.window_dimensions, windows.window_dilation, windows.window_strides))
    extent = values[0].shape[d]
    result, reach, power = None, 0, values
    for bit in range(w.bit_length()):
        if w >> bit & 1:
            here = [_cut(v, d, reach * apart, v.shape[d]) for v in power]
            result = here if result is None else combine(*_alike(result, here, d))
            reach += 1 << bit
        if w >> (bit + 1):
            step = (1 << bit) * apart
            power = combine(
                [_cut(v, d, 0, v.shape[d] - step) for v in power], [_cut(v, d, step, v.shape[d]) for v in power]
            )
    number = count(extent, dilated(w, apart), stride)
    assert result is not None
    return [_cut(v, d, 0, (number - 1) * stride + 1, stride) for v in result]


def _alike(first: list[Any], second: list[Any], d: int) -> tuple[list[Any], list[Any]]:
    """Both cut to the shorter extent."""
    least = min(first[0].shape[d], second[0].shape[d])
    return [_cut(v, d, 0, least) for v in first], [_cut(v, d, 0, least) for v in second]


def _cut(x: Any, d: int, start: int, limit: int, stride: int = 1) -> Any:
    if (start, limit, stride) == (0, x.shape[d], 1):
        return x
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[d], limits[d], strides[d] = start, limit, stride
    return slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides))


# Sums and extremes.


def _windowed(
    name: str, combine: Primitive, whole: Primitive, dtypes: tuple[np.dtype, ...], neutral: Any, **rules: Any
) -> Primitive:
    """A primitive that reduces windows; `whole` reduces dimensions, and `neutral` of a dtype changes nothing."""

    def infer(x: ArrayType, **params: Any) -> ArrayType:
        allow(name, x, dtypes)
        return x.update(shape=Windows(**params).counts(x.shape, name))

    def evaluate(x: np.ndarray, **params: Any) -> np.ndarray:
        windows = Windows(**params)
        shape = windows.counts(x.shape, name)
        wide = sum_dtype(x.dtype) if whole is R.reduce_sum_p else x.dtype
        value = np.asarray(neutral(x.dtype)).astype(x.dtype)
        x = pad_p.rule("eval")(x.astype(wide), value.astype(wide), padding_config=windows.config)
        slid = {
            "window": windows.window_dimensions,
            "strides": windows.window_strides,
            "dilation": windows.window_dilation,
        }
        found = sliding_windows_p.rule("eval")(x, dimensions=tuple(range(x.ndim)), **slid)
        reduced = whole.rule("eval")(found, axes=tuple(range(x.ndim, 2 * x.ndim)))
        return convert(reduced, value.dtype).reshape(shape)

    def expand(x: Any, **params: Any) -> Any:
        windows, dtype = Windows(**params), x.dtype
        out = infer(type_of(x), **params)
        if out.size == 0 or x.size == 0:
            return full(out, neutral(dtype))
        wide = sum_dtype(dtype) if whole is R.reduce_sum_p else dtype
        x = x if wide == dtype else E.convert_element_type_p.bind(x, new_dtype=wide, weak_type=False)
        x = padded(x, windows.config, neutral(dtype))
        for d, w in enumerate(windows.window_dimensions):
            along = windows.alone(d)
            if windows.places > UNROLLED and w > UNROLLED and out.shape[d] * w <= 8 * x.shape[d] * w.bit_length():
                slid = {
                    "window": (w,),
                    "strides": along.window_strides[d : d + 1],
                    "dilation": along.window_dilation[d : d + 1],
                }
                x = whole.bind(sliding_windows_p.bind(x, dimensions=(d,), **slid), axes=(x.ndim,))
                windows = windows.without(d)
        [x] = reduce_windows([x], windows, lambda a, b: [combine.bind(a[0], b[0])])
        return x if wide == dtype else E.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for shape, windows in SAMPLES:
            yield (sample(rng, shape, FLOATS[2]),), windows._asdict()
        for dtype in dtypes:
            yield (sample(rng, SAMPLES[0][0], dtype),), SAMPLES[0][1]._asdict()

    primitive = Primitive(name, type=infer, eval=evaluate, expand=expand, samples=samples, **rules)
    primitive.batch = lambda operands, dims, **params: (
        primitive.bind(*operands, **Windows(**params).batched(dims[0])._asdict()),
        dims[0],
    )
    return register(primitive)


SAMPLES = (
    ((5, 7), Windows((2, 3), (1, 2), ((0, 1), (1, 1)), (1, 1), (1, 1))),
    ((1, 6, 5), Windows((1, 2, 2), (1, 2, 1), ((0, 0), (1, 0), (2, 2)), (1, 2, 1), (1, 1, 2))),
    ((9, 2), Windows((4, 1), (1, 1), ((3, 0), (0, 0)), (1, 1), (1, 1))),
    ((150,), Windows((70,), (3,), ((0, 0),), (1,), (1,))),
    ((90,), Windows((90,), (1,), ((0, 0),), (1,), (1,))),
)


def _sum_transpose(ct: Any, x: Any, **params: Any) -> tuple[Any]:
    """Each element gets what all windows around it got: windows again, over the cotangent with gaps for the strides."""
    windows = Windows(**params)
    config, ones = [], (1,) * ct.ndim
    for e, n, w, s, (low, _), base, apart in zip(
        x.aval.shape, ct.shape, windows.window_dimensions, windows.window_strides, windows.padding, windows.base_dilation, windows.window_dilation
    ):  # fmt: skip
        reach, before = dilated(w, apart), dilated(w, apart) - low - 1
        config.append((before, dilated(e, base) + reach - 1 - dilated(n, s) - before, s - 1))
    spread = padded(ct, config)
    inner = Windows(
        windows.window_dimensions, windows.base_dilation, ((0, 0),) * ct.ndim, ones, windows.window_dilation
    )
    return (reduce_window_sum_p.bind(spread, **inner._asdict()),)


reduce_window_sum_p: Primitive = _windowed(
    "reduce_window_sum",
    E.add_p,
    R.reduce_sum_p,
    R.NUMBERS,
    lambda dtype: 0,
    linear=True,
    transpose=_sum_transpose,
)


def _chosen_tangent(select: Primitive) -> Callable[..., Any]:
    return lambda t, x, out, **params: select_and_gather_add_p.bind(t, x, select_prim=select, **params)


reduce_window_max_p = _windowed(
    "reduce_window_max",
    E.max_p,
    R.reduce_max_p,
    R.REALS,
    lambda dtype: R.extreme(dtype, "max"),
    jvp=(_chosen_tangent(E.ge_p),),
)
reduce_window_min_p = _windowed(
    "reduce_window_min",
    E.min_p,
    R.reduce_min_p,
    R.REALS,
    lambda dtype: R.extreme(dtype, "min"),
    jvp=(_chosen_tangent(E.le_p),),
)


# The element of each window that is its extreme: the first of several.


def _outside(select: Primitive, dtype: np.dtype) -> Any:
    """What padding holds, which no element loses against."""
    if select not in (E.ge_p, E.le_p):
        raise UnsupportedError(f"windows are selected from by ge or le, not by {select.name}")
    return R.extreme(dtype, "max" if select is E.ge_p else "min")


def _selected(which: Any, first: Any, second: Any) -> Any:
    """`first` where `which`, else `second`."""
    return E.select_n_p.bind(which, second, first)


def _gather_expand(tangents: Any, operand: Any, select_prim: Primitive, **params: Any) -> Any:
    """The tangent of each window's extreme; 0 where that is in the padding."""
    windows = Windows(**params)
    outside = _outside(select_prim, operand.dtype)
    out = windows.counts(operand.shape, "select_and_gather_add")
    if 0 in out or operand.size == 0:
        return full(ArrayType(out, tangents.dtype), 0)
    start = [full(ArrayType(out, operand.dtype), outside), full(ArrayType(out, tangents.dtype), 0)]
    values = [padded(operand, windows.config, outside), padded(tangents, windows.config)]

    def combine(first: list[Any], second: list[Any]) -> list[Any]:
        keep = select_prim.bind(first[0], second[0])
        return [_selected(keep, a, b) for a, b in zip(first, second)]

    return combine(start, reduce_windows(values, windows, combine))[1]


def _gather_type(tangents: ArrayType, operand: ArrayType, select_prim: Primitive, **params: Any) -> ArrayType:
    if tangents.shape != operand.shape:
        raise TypeRuleError(f"select_and_gather_add needs equal shapes, got {tangents} and {operand}")
    return tangents.update(shape=Windows(**params).counts(operand.shape, "select_and_gather_add"))


def _gather_transpose(ct: Any, tangents: Any, operand: Any, select_prim: Primitive, **params: Any) -> tuple[Any, None]:
    if not linear_in(tangents):
        raise UnsupportedError("select_and_gather_add is linear in its tangents alone")
    params = {k: v for k, v in params.items() if not k.endswith("dilation") or set(v) != {1}}
    return select_and_scatter_add_p.bind(ct, operand, select_prim=select_prim, **params), None


def _both_batched(primitive: Primitive) -> Callable[..., Any]:
    def rule(operands: Any, dims: Any, select_prim: Primitive, **params: Any) -> tuple[Any, int]:
        size = size_of(operands, dims)
        values = [moved(x, d, 0, size) for x, d in zip(operands, dims)]
        batched = _windows_of(values[1].ndim - 1, params).batched(0)._asdict()
        return primitive.bind(*values, select_prim=select_prim, **{k: batched[k] for k in params}), 0

    return rule


def _windows_of(ndim: int, params: dict[str, Any]) -> Windows:
    """The windows of params in which a dilation of 1 may be left out."""
    ones = (1,) * ndim
    return Windows(**{"base_dilation": ones, "window_dilation": ones, **params})


def _by_staging(expand: Callable[..., Any], several: bool = False) -> Callable[..., Any]:
    """The eval rule of what is defined by other primitives."""

    def rule(*arrays: np.ndarray, **params: Any) -> Any:
        function = lambda *values: expand(*values, **params) if several else [expand(*values, **params)]
        results = evaluate(stage(function, [type_of(a) for a in arrays], "windows"), arrays)
        return results if several else results[0]

    return rule


def _gather_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for shape, windows in SAMPLES[:3]:
        for select in (E.ge_p, E.le_p):
            arrays = sample(rng, shape, FLOATS[2]), rng.permutation(math.prod(shape)).reshape(shape).astype(np.float32)
            yield arrays, {"select_prim": select, **windows._asdict()}


select_and_gather_add_p: Primitive = register(
    Primitive(
        "select_and_gather_add",
        type=_gather_type,
        eval=_by_staging(_gather_expand),
        expand=_gather_expand,
        jvp=(lambda t, x, y, out, **params: select_and_gather_add_p.bind(t, y, **params), None),
        transpose=_gather_transpose,
        samples=_gather_samples,
    )
)
select_and_gather_add_p.batch = _both_batched(select_and_gather_add_p)


def _scatter_expand(source: Any, operand: Any, select_prim: Primitive, **params: Any) -> Any:
    """Zeros like the operand, and each window's element of `source` added where the window's extreme is."""
    windows = _windows_of(operand.ndim, params)
    out = type_of(operand).update(dtype=source.dtype, weak_type=False)
    if source.size == 0 or operand.size == 0:
        return full(out, 0)
    outside = _outside(select_prim, operand.dtype)
    x = padded(operand, windows.config, outside)
    if windows.places > UNROLLED:
        return _scattered(source, x, out, select_prim, windows)
    found = places(x, windows.window_dimensions, windows.window_strides, windows.window_dilation)
    number = lambda n: full(ArrayType((), np.dtype(np.int32)), n)
    best, place = found[0], full(ArrayType(source.shape, np.dtype(np.int32)), 0)
    for n, value in enumerate(found[1:], 1):
        keep = select_prim.bind(best, value)
        best, place = _selected(keep, best, value), _selected(keep, place, full(type_of(place), n))
    zero = full(ArrayType(source.shape, source.dtype), 0)
    total = None
    for n, at in enumerate(np.ndindex(*windows.window_dimensions)):
        part = _selected(E.eq_p.bind(place, number(n)), source, zero)
        config = []
        for d, p in enumerate(at):
            low = p * windows.window_dilation[d]
            config.append(
                (
                    low,
                    x.shape[d] - low - dilated(source.shape[d], windows.window_strides[d]),
                    windows.window_strides[d] - 1,
                )
            )
        part = padded(part, config)
        total = part if total is None else total + part
    return _unpadded(total, out.shape, windows)


def _unpadded(x: Any, shape: Sequence[int], windows: Windows) -> Any:
    """What lies at the operand's places of an array that lies as the padded operand does."""
    x = padded(x, [(-low, -high, 0) for low, high in windows.padding])
    if set(windows.base_dilation) == {1}:
        return x
    return slice_p.bind(x, start_indices=(0,) * x.ndim, limit_indices=x.shape, strides=windows.base_dilation)


def _scattered(source: Any, x: Any, out: ArrayType, select_prim: Primitive, windows: Windows) -> Any:
    """By the position of the extreme among all elements of a window, and a scatter."""
    slid = {"window": windows.window_dimensions, "strides": windows.window_strides, "dilation": windows.window_dilation}
    found = sliding_windows_p.bind(x, dimensions=tuple(range(x.ndim)), **slid)
    found = reshaped(found, (*source.shape, windows.places))
    extreme, index = R.argmax_p if select_prim is E.ge_p else R.argmin_p, np.dtype(np.int32)
    rest = extreme.bind(found, axes=(x.ndim,), index_dtype=index)
    flat, unit = full(ArrayType(source.shape, index), 0), math.prod(x.shape)
    scalar = lambda n: full(ArrayType((), index), n)
    left = windows.places
    for d, w in enumerate(windows.window_dimensions):
        unit //= x.shape[d]
        left //= w
        at = E.div_p.bind(rest, scalar(left))
        rest = rest - at * scalar(left)
        first = iota_p.bind(dtype=index, shape=source.shape, dimension=d)
        flat = flat + (first * scalar(windows.window_strides[d]) + at * scalar(windows.window_dilation[d])) * scalar(
            unit
        )
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    total = scatter_add_p.bind(
        full(ArrayType((math.prod(x.shape),), source.dtype), 0),
        reshaped(flat, (math.prod(source.shape), 1)),
        reshaped(source, (math.prod(source.shape),)),
        dimension_numbers=numbers,
        indices_are_sorted=False,
        unique_indices=False,
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
        update_jaxpr=None,
        update_consts=(),
    )
    return _unpadded(reshaped(total, x.shape), out.shape, windows)


def _scatter_type(source: ArrayType, operand: ArrayType, select_prim: Primitive, **params: Any) -> ArrayType:
    shape = _windows_of(operand.ndim, params).counts(operand.shape, "select_and_scatter_add")
    if shape != source.shape:
        raise TypeRuleError(f"select_and_scatter_add of {operand} needs one source a window, {shape}, got {source}")
    return operand.update(dtype=source.dtype, weak_type=False)


def _scatter_transpose(ct: Any, source: Any, operand: Any, select_prim: Primitive, **params: Any) -> tuple[Any, None]:
    windows = _windows_of(operand.ndim, params)
    return select_and_gather_add_p.bind(ct, operand, select_prim=select_prim, **windows._asdict()), None


def _scatter_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for (shape, windows), select in zip((*SAMPLES[:1], SAMPLES[2], *SAMPLES[3:]), (E.ge_p, E.le_p, E.ge_p, E.le_p)):
        operand = rng.permutation(math.prod(shape)).reshape(shape).astype(np.float32)
        params = {k: v for k, v in windows._asdict().items() if not k.endswith("dilation")}
        yield (sample(rng, windows.counts(shape), FLOATS[2]), operand), {"select_prim": select, **params}


select_and_scatter_add_p: Primitive = register(
    Primitive(
        "select_and_scatter_add",
        type=_scatter_type,
        eval=_by_staging(_scatter_expand),
        expand=_scatter_expand,
        jvp=(lambda t, x, y, out, **params: select_and_scatter_add_p.bind(t, y, **params), None),
        transpose=_scatter_transpose,
        samples=_scatter_samples,
    )
)
select_and_scatter_add_p.batch = _both_batched(select_and_scatter_add_p)


# Any other reduction.


def reduce_general(*operands: Any, jaxpr: Graph, consts: Sequence[Any], **params: Any) -> list[Any]:
    """The reduction of each window by a graph of two elements, beginning with the initial value."""
    windows, half = Windows(**params), len(operands) // 2
    values, starts = operands[:half], operands[half:]
    shape = windows.counts(values[0].shape)
    begin = [broadcast_in_dim_p.bind(s, shape=shape, broadcast_dimensions=()) for s in starts]
    if 0 in shape or values[0].size == 0:
        return begin

    def combine(first: list[Any], second: list[Any]) -> list[Any]:
        return replay(jaxpr, *consts, *first, *second)

    return combine(
        begin, reduce_windows([_surrounded(v, s, windows) for v, s in zip(values, starts)], windows, combine)
    )


def _surrounded(x: Any, value: Any, windows: Windows) -> Any:
    if all(c == (0, 0, 0) for c in windows.config):
        return x
    return pad_p.bind(x, value, padding_config=windows.config)


def _general_type(*avals: ArrayType, jaxpr: Graph, consts: Sequence[Any], **params: Any) -> tuple[ArrayType, ...]:
    half = len(avals) // 2
    if any(a.dtype != b.dtype or b.shape for a, b in zip(avals[:half], avals[half:])):
        raise TypeRuleError(
            f"reduce_window needs a scalar of each operand's dtype to begin with, got {', '.join(map(str, avals))}"
        )
    return tuple(a.update(shape=Windows(**params).counts(a.shape), weak_type=False) for a in avals[:half])


def _general_batch(operands: Any, dims: Any, **params: Any) -> tuple[list[Any], Any]:
    half, size = len(operands) // 2, size_of(operands, dims)
    if any(d is not None for d in dims[half:]):  # padding that differs from item to item
        return batch(lambda *v: reduce_general(*v, **params), operands, dims, size)
    values = [moved(x, d, 0, size) for x, d in zip(operands[:half], dims)]
    graph, consts = params.pop("jaxpr"), params.pop("consts")
    windows = Windows(**params).batched(0)._asdict()
    return reduce_window_p.bind(*values, *operands[half:], jaxpr=graph, consts=consts, **windows), [0] * half


def _general_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    scalar = ArrayType((), FLOATS[2])
    graph = stage(lambda a, b: [E.mul_p.bind(a, b)], [scalar, scalar], "reduce_window")
    shape, windows = SAMPLES[0]
    values = sample(np.random.default_rng(0), shape, FLOATS[2]), np.ones((), np.float32)
    yield values, {"jaxpr": graph, "consts": (), **windows._asdict()}


reduce_window_p: Primitive = register(
    Primitive(
        "reduce_window",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_general_type,
        eval=_by_staging(reduce_general, several=True),
        expand=reduce_general,
        jvp=lambda primals, tangents, **params: jvp(lambda *v: reduce_general(*v, **params), primals, tangents),
        batch=_general_batch,
        samples=_general_samples,
    )
)
