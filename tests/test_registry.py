"""Every primitive: type against eval, eval against the C backend, lower against eval, and edges against real JAX.

A new primitive adds samples beside its rules and is tested here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuser.ops  # noqa: F401  (fills the registry)
from fuser.backends import get
from fuser.compile import load, lower
from fuser.config import config
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import REGISTRY, Fusion, Primitive
from fuser.ir.scalar import Scalar
from fuser.ir.scalar import evaluate as evaluate_scalar
from fuser.ir.types import FLOATS, KEY, SMALL, is_complex, short_dtype
from fuser.trace.core import type_of
from tests import jax_oracle
from tests.tolerances import COMPLEX, JAX, LOOSER, REDUCTION, ULPS
from tests.values import same_bits, special, tuples, ulps_apart

Case = tuple[tuple[np.ndarray, ...], dict[str, Any]]

# Collectives and what holds graphs have tests of their own: tests/transforms, tests/lax, tests/parallel.
GRAPHS = ("shard_map", "pallas_interpret", "block_kernel")
# They hold functions of the user's, and stand in tests/api/test_callbacks.py; checks in tests/experimental/test_checkify.py.
CALLBACKS = (
    "pure_callback",
    "io_callback",
    "debug_callback",
    "dce_sink",
    "inspect_sharding",
    "check",
    "ffi_call",
    "ffi_effect",
    "triton_call",
    "dimension_as_value",
    "platform_index",
)
ALL = sorted(
    n
    for n, p in REGISTRY.items()
    if p.collect is None and p.fusion is not Fusion.CONTROL and n not in (*GRAPHS, *CALLBACKS)
)
ELEMENTWISE = [name for name in ALL if REGISTRY[name].fusion is Fusion.ELEMENTWISE]
REDUCTIONS = [name for name in ALL if REGISTRY[name].fusion in (Fusion.REDUCE, Fusion.SCAN)]

# Rules whose meaning depends on the dtype itself (polygamma: where n! overflows), so that a wider run is no oracle for them.
OF_THE_DTYPE = (
    "polygamma",
    "nextafter",
    "reduce_precision",
    "bitcast_convert_type",
    "convert_element_type",
    "copy",
    "select_n",
)
# Complex functions that are one formula of C99 and NumPy, with their results for infinities and nan.
COMPLEX_EDGES = (
    "neg",
    "add",
    "sub",
    "mul",
    "abs",
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "real",
    "imag",
    "conj",
    "max",
    "min",
    "eq",
    "ne",
)
# Where JAX on the CPU is known to be off: exp2 in bfloat16 by 3 %, logaddexp in bfloat16, as it rounds at each step, and
# logaddexp2 close to its root by an eps, lgamma close to 1 by 5e-7, zeta below -9 and at infinity.
JAX_IS_OFF = {
    ("exp2", "bfloat16"),
    ("logaddexp", "bfloat16"),
    *(("logaddexp2", dtype.name) for dtype in FLOATS),
    *(
        (name, dtype.name)
        for name in ("lgamma", "zeta", "polygamma")
        for dtype in FLOATS
        if (name, dtype) != ("lgamma", FLOATS[0])
    ),
}
# Complex functions for which JAX itself takes other branches or loses digits.
JAX_COMPLEX = (
    "neg",
    "add",
    "sub",
    "mul",
    "square",
    "abs",
    "exp",
    "log",
    "sin",
    "cos",
    "tanh",
    "real",
    "imag",
    "conj",
    "max",
    "min",
    "eq",
    "ne",
    "copy",
)


@functools.cache
def samples(name: str) -> list[Case]:
    """The primitive's own samples, dense."""
    rule = REGISTRY[name].rule("samples")
    return [(tuple(np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays), params) for arrays, params in rule()]


@functools.cache
def edges(name: str) -> list[Case]:
    """For each dtype and set of parameters among the samples: every combination of special values."""
    found: dict[Any, Case] = {}
    for arrays, params in samples(name):
        if name == "bitcast_convert_type" and np.dtype(params["new_dtype"]).itemsize > arrays[0].dtype.itemsize:
            continue
        pools = [special(a.dtype) for a in arrays]
        step = 1 if len(pools) == 1 else 3 if len(pools) > 2 else 11 if is_complex(arrays[0].dtype) else 1
        found[tuple(a.dtype for a in arrays), str(params)] = tuple(tuples(*(p[::step] for p in pools))), params
    return list(found.values())


def graph_of(primitive: Primitive, cases: Sequence[Case]) -> Graph:
    """One graph with an equation a case, none of which has to do with another."""
    eqns, inputs = [], []
    for arrays, params in cases:
        operands = tuple(Var(type_of(a)) for a in arrays)
        result = primitive.rule("type")(*(v.aval for v in operands), **params)
        outvars = tuple(Var(t) for t in (result if primitive.multiple_results else (result,)))
        eqns.append(Eqn(primitive, operands, params, outvars))
        inputs += operands
    return Graph(tuple(inputs), (), (), tuple(eqns), tuple(v for eqn in eqns for v in eqn.outvars))


def run_in_c(graph: Graph, arrays: Sequence[np.ndarray], fuel: int = 0) -> list[np.ndarray]:
    """The graph's results by the C backend, unoptimised and unfused, one kernel an equation."""
    backend = get("c")
    with config.using(fuel=fuel, check=True):
        program = load(lower(graph, backend), backend)
    return [np.asarray(r).reshape(v.aval.shape) for r, v in zip(program.executable(*arrays), graph.outvars)]


def flat(cases: Sequence[Case]) -> list[np.ndarray]:
    return [a for arrays, _ in cases for a in arrays]


def exact(
    primitive: Primitive, arrays: tuple[np.ndarray, ...], params: dict[str, Any], native: np.ndarray
) -> np.ndarray:
    """The result computed in float64 and rounded once, where that makes sense; else what eval gives."""
    if not arrays or arrays[0].dtype not in FLOATS[:3] or primitive.name in OF_THE_DTYPE:
        return native
    with np.errstate(all="ignore"):
        wide = np.asarray(primitive.rule("eval")(*(a.astype(np.float64) for a in arrays), **params))
        return wide.astype(native.dtype)


def wrong(name: str, found: np.ndarray, expected: np.ndarray, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """Where `found` is further from `expected` than the tables allow; signs of zero count."""
    dtype = expected.dtype
    if is_complex(dtype):
        return _wrong_complex(found, expected, COMPLEX[dtype], name in COMPLEX_EDGES, arrays)
    if dtype.kind in "iub" or dtype in (*SMALL, KEY):
        return ~same_bits(found, expected)
    times, eps = LOOSER.get(name, (ULPS[dtype], 0))
    info = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        near = (ulps_apart(found, expected) <= max(times, ULPS[dtype])) | (difference <= eps * float(info.eps))
        near |= (difference <= float(info.smallest_normal)) & (name in LOOSER)
    zeros = (
        (found == 0)
        & (expected == 0)
        & (np.signbit(found.astype(np.float64)) != np.signbit(expected.astype(np.float64)))
    )
    return ~near | zeros


def _wrong_complex(
    found: np.ndarray, expected: np.ndarray, tolerance: float, with_edges: bool, arrays: tuple[np.ndarray, ...]
) -> np.ndarray:
    info = np.finfo(expected.dtype)
    with np.errstate(all="ignore"):
        near = np.abs(found - expected) <= tolerance * np.abs(expected) + info.smallest_normal
        finite = np.isfinite(expected)
        category = np.ones(expected.shape, bool)
        for part in ("real", "imag"):
            a, b = getattr(found, part), getattr(expected, part)
            category &= (np.isnan(a) & np.isnan(b)) | (a == b) | (np.isfinite(a) & np.isfinite(b))
        plain = np.ones(expected.shape, bool)
        for array in arrays:
            plain &= _plain(array)
    return np.where(finite, ~near & (plain | with_edges), ~category & with_edges)


def _plain(array: np.ndarray) -> np.ndarray:
    """Where numbers are finite and far from the ends of their range, zeros included."""
    parts = (array.real, array.imag) if is_complex(array.dtype) else (array,)
    good = np.ones(array.shape, bool)
    for part in parts:
        size = np.abs(part.astype(np.float64))
        good &= np.isfinite(size) & ((size == 0) | ((size > 1e-6) & (size < 1e6)))
    return good


def _subnormal(array: np.ndarray) -> np.ndarray:
    """Where there are subnormal numbers, which JAX on the CPU takes for zero."""
    if array.dtype.kind in "iub" or array.dtype == KEY:
        return np.zeros(array.shape, bool)
    if is_complex(array.dtype):
        return _subnormal(array.real) | _subnormal(array.imag)
    size = np.abs(array.astype(np.float64))
    return (size > 0) & (size < float(ml_dtypes.finfo(array.dtype).smallest_normal))


def report(name: str, case: Case, found: np.ndarray, expected: np.ndarray, bad: np.ndarray) -> str:
    """The first few wrong elements, for a person."""
    arrays, params = case
    places = np.argwhere(np.broadcast_to(bad, expected.shape))[:4]
    lines = [
        f"{name}[{params}] of {', '.join(short_dtype(a.dtype) for a in arrays)}: {int(bad.sum())} of {bad.size} elements"
    ]
    for place in map(tuple, places):
        operands = ", ".join(str(a[place]) for a in arrays if a.shape == expected.shape)
        lines.append(f"  ({operands}): got {found[place]}, expected {expected[place]}")
    return "\n".join(lines)


def test_every_primitive_has_what_the_tests_need() -> None:
    for name in ALL:
        primitive = REGISTRY[name]
        assert primitive.type is not None and primitive.eval is not None and primitive.samples is not None, name
        assert list(primitive.samples()), f"{name} has no samples"
        assert primitive.file.endswith(".py"), name


def test_a_missing_rule_names_primitive_rule_and_file() -> None:
    from fuser.errors import MissingRuleError

    with pytest.raises(MissingRuleError, match=r"primitive 'sort' has no lower rule; it belongs in .*sorting\.py"):
        REGISTRY["sort"].rule("lower")


@pytest.mark.parametrize("name", ALL)
def test_type_agrees_with_eval(name: str) -> None:
    primitive = REGISTRY[name]
    for arrays, params in samples(name):
        inferred = primitive.rule("type")(*(type_of(a) for a in arrays), **params)
        with np.errstate(all="ignore"):
            result = primitive.rule("eval")(*arrays, **params)
        many = primitive.multiple_results
        for aval, value in zip(inferred if many else (inferred,), result if many else (result,), strict=True):
            value = np.asarray(value)
            assert (value.shape, value.dtype) == (aval.shape, aval.dtype), (
                f"{name}[{params}] of {[type_of(a) for a in arrays]}"
            )


@pytest.mark.parametrize("name", ALL)
def test_c_agrees_with_eval_on_samples(name: str) -> None:
    primitive, cases = REGISTRY[name], samples(name)
    graph = graph_of(primitive, cases)
    arrays = flat(cases)
    found, expected = run_in_c(graph, arrays), evaluate(graph, arrays)
    case_of = {var: case for eqn, case in zip(graph.eqns, cases) for var in eqn.outvars}
    for var, x, y in zip(graph.outvars, found, expected, strict=True):
        assert (x.shape, x.dtype) == (var.aval.shape, var.aval.dtype)
        case = case_of[var]  # type: ignore[index]
        bad = (
            _wrong_reduction(case, x, y)
            if primitive.fusion in (Fusion.REDUCE, Fusion.SCAN, Fusion.DOT)
            or primitive.expand is not None
            or name == "fft"
            else wrong(name, x, y.astype(x.dtype), ())
        )
        assert not bad.any(), report(name, case, x, y, bad)


def _wrong_reduction(case: Case, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    if expected.dtype.kind in "iub":
        return found != expected
    arrays, _ = case
    wide = np.complex128 if is_complex(expected.dtype) else np.float64
    size = 1 + max(float(np.abs(a.astype(wide)).max(initial=0)) for a in arrays) ** len(arrays) * max(
        a.size for a in arrays
    )
    with np.errstate(all="ignore"):
        x, y = found.astype(wide), expected.astype(wide)
        return np.abs(x - y) > REDUCTION[expected.dtype] * np.maximum(np.abs(y), size * np.asarray(np.isfinite(y)))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_lower_agrees_with_eval(name: str) -> None:
    primitive = REGISTRY[name]
    for arrays, params in samples(name):
        if name == "bitcast_convert_type" and np.dtype(params["new_dtype"]).itemsize != arrays[0].dtype.itemsize:
            continue
        holes = [Scalar("input", (), a.dtype, number) for number, a in enumerate(arrays)]
        expression = primitive.rule("lower")(*holes, **params)
        with np.errstate(all="ignore"):
            expected = np.asarray(primitive.rule("eval")(*arrays, **params))
        found = evaluate_scalar(expression, dict(enumerate(arrays)))
        assert expression.dtype == expected.dtype
        found = np.broadcast_to(found, expected.shape)
        if expected.dtype in FLOATS[:2]:  # steps on half-precision operands round more often here than in a kernel
            near = np.isclose(
                found.astype(np.float64),
                expected.astype(np.float64),
                rtol=16 * float(ml_dtypes.finfo(expected.dtype).eps),
            )
            assert near.all(), report(name, (arrays, params), found, expected, ~near)
            continue
        bad = wrong(name, np.ascontiguousarray(found), expected, ())
        assert not bad.any(), report(name, (arrays, params), found, expected, bad)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_scalars_beside_arrays_and_arrays_of_every_rank(name: str) -> None:
    """Each operand but one as a scalar; then all operands as scalars, and as arrays without elements."""
    primitive = REGISTRY[name]
    some = {tuple(a.dtype for a in arrays): (arrays, params) for arrays, params in samples(name)}
    cases: list[Case] = []
    for arrays, params in list(some.values())[:24]:
        if name == "bitcast_convert_type" and np.dtype(params["new_dtype"]).itemsize != arrays[0].dtype.itemsize:
            continue
        scalars = tuple(np.asarray(a.flat[5]) for a in arrays)
        cases += [((*scalars[:k], arrays[k], *scalars[k + 1 :]), params) for k in range(len(arrays)) if len(arrays) > 1]
        cases += [(scalars, params), (tuple(a[:, :1] for a in arrays), params), (tuple(a[:0] for a in arrays), params)]
    cases = [(tuple(np.ascontiguousarray(a).reshape(a.shape) for a in arrays), params) for arrays, params in cases]
    graph = graph_of(primitive, cases)
    arrays_of_all = flat(cases)
    for case, x, y in zip(cases, run_in_c(graph, arrays_of_all), evaluate(graph, arrays_of_all), strict=True):
        assert x.shape == y.shape
        bad = wrong(name, x, y.astype(x.dtype), ())
        assert not bad.any(), report(name, case, x, y, bad)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_edges_in_c_and_in_numpy(name: str) -> None:
    primitive, cases = REGISTRY[name], edges(name)
    graph = graph_of(primitive, cases)
    arrays = flat(cases)
    for case, x, y in zip(cases, run_in_c(graph, arrays), evaluate(graph, arrays), strict=True):
        y = y.astype(x.dtype)
        expected = exact(primitive, *case, y)
        for found in (x, y):
            bad = wrong(name, found, expected, case[0])
            assert not bad.any(), report(f"{name} in {'C' if found is x else 'NumPy'}", case, found, expected, bad)


def _whole_range(count: int, seed: int) -> np.ndarray:
    """float32 numbers of all magnitudes, and more of them where functions are used most."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32),
        rng.uniform(-20, 20, count),
        rng.uniform(-1, 1, count),
    ]
    return rng.permutation(np.concatenate([part.astype(np.float32) for part in parts]))


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if n not in (*OF_THE_DTYPE, "complex", "zeta", "polygamma")])
def test_accuracy_over_the_whole_range(name: str) -> None:
    primitive = REGISTRY[name]
    case = next((c for c in reversed(samples(name)) if {a.dtype for a in c[0]} == {np.dtype("float32")}), None)
    if case is None:
        return  # a primitive of integers or complex numbers
    arrays = tuple(_whole_range(8000, seed) for seed in range(len(case[0])))
    if name == "pow":
        arrays = (np.abs(arrays[0]), arrays[1])
    cases = [(arrays, case[1])]
    [found] = run_in_c(graph_of(primitive, cases), list(arrays))
    with np.errstate(all="ignore"):
        native = np.asarray(primitive.rule("eval")(*arrays, **case[1])).astype(found.dtype)
    expected = exact(primitive, arrays, case[1], native)
    bad = wrong(name, found, expected, arrays)
    assert not bad.any(), report(f"{name} in C", cases[0], found, expected, bad)


@pytest.mark.parametrize(
    "name", [n for n in ELEMENTWISE if n not in ("reduce_precision", "fma", "add_any", "bessel_j0", "bessel_j1")]
)
def test_edges_in_jax(name: str) -> None:
    primitive = REGISTRY[name]
    cases = [c for c in edges(name) if not is_complex(c[0][0].dtype) or name in JAX_COMPLEX]
    cases = [c for c in cases if not {*(a.dtype for a in c[0]), c[1].get("new_dtype")} & {*SMALL[5:]}]  # see tests/ops
    if name == "convert_element_type":
        cases = cases[::2]  # of 400 pairs of dtypes; JAX compiles each
    results = jax_oracle.run([(name, *case) for case in cases])
    for (arrays, params), theirs in zip(cases, results, strict=True):
        if (name, arrays[0].dtype.name) in JAX_IS_OFF:
            continue
        with np.errstate(all="ignore"):
            native = np.asarray(primitive.rule("eval")(*arrays, **params))
        ours = exact(primitive, arrays, params, native)
        assert theirs.dtype == ours.dtype, f"{name}[{params}] gives {theirs.dtype} in JAX, {ours.dtype} here"
        bad = _unlike_jax(theirs, ours)
        for array in (*arrays, ours, theirs):
            if array.shape == bad.shape:
                bad &= ~_subnormal(array)
                bad &= _plain(array) | (not is_complex(array.dtype))
        assert not bad.any(), "JAX expects " + report(name, (arrays, params), ours, theirs, bad)


def _unlike_jax(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    if ours.dtype.kind in "iub" or ours.dtype in (*SMALL, KEY):
        return ~same_bits(ours, theirs)
    wide = np.complex128 if is_complex(ours.dtype) else np.float64
    x, y = theirs.astype(wide), ours.astype(wide)
    least = 0.0 if is_complex(ours.dtype) else float(ml_dtypes.finfo(ours.dtype).smallest_normal)
    with np.errstate(all="ignore"):
        near = np.isclose(x, y, rtol=JAX[ours.dtype], atol=least, equal_nan=True)
        zeros = (x == 0) & (y == 0) & (np.signbit(x.real) != np.signbit(y.real)) & (not is_complex(ours.dtype))
    return ~near | zeros


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_edges(name: str) -> None:
    """Runs of five special values: nan, infinities and integer edges meet in every order; C, NumPy and JAX agree."""
    primitive = REGISTRY[name]
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for dtype in dict.fromkeys(arrays[0].dtype for arrays, _ in samples(name)):
        params = next(p for arrays, p in samples(name) if arrays[0].dtype == dtype and arrays[0].ndim == 2)
        pool = special(dtype)
        if is_complex(dtype):
            pool = pool[_plain(pool)]
        rows = pool[rng.integers(0, pool.size, (300, 5))]
        axis = {"axis": 1} if "axis" in params else {"axes": (1,)}
        for array, where in (
            (rows, axis),
            (np.ascontiguousarray(rows.T), {k: 0 if k == "axis" else (0,) for k in axis}),
        ):
            cases.append(((array,), {**params, **where}))
    graph = graph_of(primitive, cases)
    found, expected = run_in_c(graph, flat(cases)), evaluate(graph, flat(cases))
    theirs = jax_oracle.run([(name, *case) for case in cases])
    for case, x, y, z in zip(cases, found, expected, theirs, strict=True):
        bad = _unlike_reduction(x, y, name, case)
        assert not bad.any(), report(f"{name} in C", case, x, y, bad)
        if y.dtype in FLOATS[:2] and ("sum" in name or "prod" in name):
            continue  # JAX's bare primitives accumulate in half precision; jax.numpy and this project in float32
        bad = _unlike_reduction(z, y, name, case)
        axis = case[1].get("axis", case[1].get("axes"))
        bad &= ~_subnormal(case[0][0]).any(axis, keepdims=bad.ndim == 2)
        if "sum" in name or "prod" in name:  # partial results that overflow or vanish do so in an order of JAX's own
            bad &= (_plain(case[0][0]) | ~np.isfinite(case[0][0])).all(axis, keepdims=bad.ndim == 2)
        assert not bad.any(), report(f"{name}: JAX", case, z, y, bad)


def _unlike_reduction(found: np.ndarray, expected: np.ndarray, name: str, case: Case) -> np.ndarray:
    """Values alike, signs of zero aside; sums of numbers that overflow or cancel are compared by what they sum."""
    if expected.dtype.kind in "iub":
        return found != expected
    wide = np.complex128 if is_complex(expected.dtype) else np.float64
    with np.errstate(all="ignore"):
        operand = case[0][0].astype(wide)
        axis = case[1].get("axis", case[1].get("axes"))
        size = np.abs(operand).sum(axis, keepdims=expected.ndim == 2)
        top = float(ml_dtypes.finfo(expected.dtype).max) / 4
        x, y = found.astype(wide), expected.astype(wide)
        same = np.isclose(x, y, rtol=10 * REDUCTION[expected.dtype], atol=0, equal_nan=True)
        if "max" in name or "min" in name:
            return ~same
        tolerance = 4 * REDUCTION[expected.dtype] * np.where(np.isfinite(size), size, 0)
        return ~same & ~(np.abs(x - y) <= tolerance) & ~_by_order(operand, case[0][0], axis, top, name, y.ndim == 2)


def _by_order(wide: np.ndarray, array: np.ndarray, axis: Any, top: float, name: str, keepdims: bool) -> np.ndarray:
    """Where partial results may overflow or vanish, each order of the operands another; not where all orders give nan."""
    finite, nan, zero = np.isfinite(wide), np.isnan(wide), wide == 0
    infinite = [(wide.real == sign * np.inf).any(axis, keepdims=keepdims) for sign in (-1, 1)]
    if "sum" in name:
        ends = np.where(finite, np.abs(wide), 0).sum(axis, keepdims=keepdims) > top
        always = infinite[0] & infinite[1]
    else:
        ends = (finite & ~_plain(array)).any(axis, keepdims=keepdims)
        always = (infinite[0] | infinite[1]) & zero.any(axis, keepdims=keepdims)
    return ends & ~always & ~nan.any(axis, keepdims=keepdims)


def test_folds_over_nothing() -> None:
    """A reduction over an axis of extent 0 is the reduction's identity, in C by way of the passes and as JAX has it."""
    for name in (n for n in REDUCTIONS if n.startswith("reduce_")):
        primitive = REGISTRY[name]
        dtypes = list(dict.fromkeys(arrays[0].dtype for arrays, _ in samples(name)))
        cases: list[Case] = [((np.zeros((3, 0), dtype),), {"axes": (1,)}) for dtype in dtypes]
        graph = graph_of(primitive, cases)
        for x, y, z in zip(
            run_in_c(graph, flat(cases)),
            evaluate(graph, flat(cases)),
            jax_oracle.run([(name, *c) for c in cases]),
            strict=True,
        ):
            assert x.shape == y.shape == z.shape == (3,) and x.dtype == z.dtype
            assert same_bits(x, y.astype(x.dtype)).all() and same_bits(z, y.astype(z.dtype)).all(), (
                name,
                x.dtype,
                x,
                y,
                z,
            )


def test_first_extreme_wins_and_nan_is_one() -> None:
    rows = np.array(
        [[1, 3, 3], [np.nan, 5, np.nan], [2, np.nan, 1], [-np.inf, -np.inf, -np.inf], [0.0, -0.0, 0.0]], np.float32
    )
    params = {"axes": (1,), "index_dtype": np.dtype("int32")}
    for name, expected in (("argmax", [1, 0, 1, 0, 0]), ("argmin", [0, 0, 1, 0, 0])):
        graph = graph_of(REGISTRY[name], [((rows,), params)])
        assert run_in_c(graph, [rows])[0].tolist() == expected
        assert evaluate(graph, [rows])[0].tolist() == expected
        assert jax_oracle.run([(name, (rows,), params)])[0].tolist() == expected
