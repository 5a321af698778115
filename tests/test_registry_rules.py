"""Every primitive's rules of the transforms: jvp against differences and JAX, transpose against jvp, batch against a loop.

Like test_registry.py it walks the registry, so a new primitive is tested by its samples alone. Everything runs in 64 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import fuser.ops  # noqa: F401  (fills the registry)
from fuser.config import config
from fuser.errors import UnsupportedError
from fuser.ir.primitive import REGISTRY, Fusion, Primitive
from fuser.ir.types import is_complex, is_inexact
from fuser.runtime.array import Array
from fuser.trace.batch import batch
from fuser.trace.core import bind, type_of
from fuser.trace.jvp import jvp
from fuser.trace.linearize import linearize
from fuser.trace.tangent import Undefined, Zero, differentiable, instantiate
from tests import jax_oracle
from tests.test_registry import ALL, Case, samples

# Operands with respect to which no derivative is known; asking for one is an error. JAX has none either.
UNDERIVABLE = {
    ("polygamma", 0),
    ("igamma_grad_a", 0),
    ("random_gamma_grad", 0),
    ("regularized_incomplete_beta", 0),
    ("regularized_incomplete_beta", 1),
    ("expn", 0),
    *((f"hyp1f1_by_{of}", n) for of in "ab" for n in (0, 1)),
    *((f"hyp2f1{of}", n) for of in ("_by_a", "_by_b", "_by_c") for n in (0, 1, 2)),
    ("complex_digamma", 0),
}
# Factorisations without derivative, as in JAX; eig has that of its eigenvalues.
WITHOUT_DERIVATIVE = {"schur", "hessenberg", "geqrf", "tridiagonal"}
# What others are expanded into, when derivatives have been taken.
EXPANDED_INTO = {
    "order",
    "scatter_rows",
    "write_window",
    "select_largest",
    "dft",
    "column_potrf",
    "column_getrf",
    "column_geqrf",
    "column_orgqr",
    "column_syevd",
    "column_gesvd",
    "grouped_matmul",
    "grouped_sums",
}
# Steps, whose differences say nothing about the derivative that is defined for them.
STEPS = {"reduce_precision", "stop_gradient"}
# Operands brought where a function is differentiable: bounds in order, divisors away from 0, where quotients jump often.
ADAPTED: dict[str, Callable[..., Any]] = {
    "clamp": lambda *operands: np.sort(operands, axis=0) if operands[0].ndim else operands,
    "rem": lambda x, y: (x, y + np.sign(y)),
}
# First derivatives that are made of an underivable operand's.
ONCE = {("igamma", 0), ("igammac", 0), ("hyp1f1", 0), ("hyp1f1", 1), ("loggamma", 0), ("eig", 0)}
ONCE |= {("hyp2f1", number) for number in range(3)}
# Where JAX has no derivative. (What is not elementwise is compared with JAX in tests/transforms/test_structure_rules.py.)
NOT_IN_JAX = {"nextafter", "zeta", "igamma_grad_a", "random_gamma_grad", "xlogx"}
NOT_IN_JAX |= {"xlogy", "xlog1py"}  # their zero tangents become 0 * inf there
# Operands of movement from here on are positions, whatever the others are.
POSITIONS = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1}
# With duplicate indices, as the samples have, JAX and this project refuse these; tests/transforms has others.
NEEDS_UNIQUE = {("scatter-mul", 2), ("scatter", 0), ("scatter", 2)}
# Operands in which a primitive with a transpose is not linear.
NOT_LINEAR = {("div", 1), ("triangular_solve", 0), ("select_and_gather_add", 1), ("select_and_scatter_add", 1)}
# Defined for Hermitian matrices, and so along Hermitian directions.
HERMITIAN = {"cholesky", "eigh"}


def _outer(columns: Any, rows: Any) -> Any:
    """The product of each of the columns (..., m, k) with its row (..., k, n)."""
    return columns[..., :, :, None] * rows[..., None, :, :]


def _adjoint(x: Any) -> Any:
    return x.swapaxes(-1, -2).conj()


def _svd_determined(s: Any, *vectors: Any) -> list[Any]:
    if not vectors:
        return [s]
    u, vh = vectors
    return [s, _outer(u, vh), _outer(u, _adjoint(u)), _outer(_adjoint(vh), vh)]


# Vectors come with signs or phases that LAPACK chooses; here are functions of them on which these have no effect.
DETERMINED: dict[str, Callable[..., list[Any]]] = {
    "eigh": lambda v, w: [_outer(v, _adjoint(v)), w],
    "svd": _svd_determined,
}


def bound(primitive: Primitive, params: dict[str, Any]) -> Callable[..., list[Any]]:
    """The primitive as a function of its operands that gives a list."""

    def function(*operands: Any) -> list[Any]:
        out = bind(primitive, *operands, **params)
        return list(out) if primitive.multiple_results else [out]

    return function


def determined(name: str, params: dict[str, Any]) -> Callable[..., list[Any]]:
    """The same, of what the operands determine."""
    function, of_results = bound(REGISTRY[name], params), DETERMINED.get(name, lambda *results: list(results))
    return lambda *operands: of_results(*function(*operands))


def widened(array: np.ndarray) -> np.ndarray:
    if not is_inexact(array.dtype):
        return array
    return array.astype(np.complex128 if is_complex(array.dtype) else np.float64)


@functools.cache
def cases(name: str) -> tuple[Case, ...]:
    """The samples with floats and complex numbers in 64 bits, one for each set of dtypes and params."""
    found: dict[Any, Case] = {}
    for arrays, params in samples(name):
        dtypes = [np.dtype(p) for key, p in params.items() if key.endswith("dtype")]
        if any(d.kind in "fVc" and d.itemsize < (16 if d.kind == "c" else 8) for d in dtypes):
            continue
        if name == "bitcast_convert_type" and arrays[0].dtype != np.dtype("float64"):
            continue
        wide = tuple(map(widened, arrays))
        found.setdefault(str([(a.dtype, a.shape) for a in wide]) + str(params), (wide, params))
    return tuple(found.values())


def inexact(array: Any) -> bool:
    return differentiable(type_of(array))


@functools.cache
def derivable(name: str) -> tuple[Case, ...]:
    """The cases in which some result may depend smoothly on some operand."""
    primitive = REGISTRY[name]
    kept = []
    of_any_dtype = primitive.fusion is Fusion.MOVEMENT and not primitive.file.endswith("random.py")
    for arrays, params in [_in_floats(name, *case) for case in cases(name)] if of_any_dtype else cases(name):
        if getattr(params.get("mode"), "name", "") == "PROMISE_IN_BOUNDS":
            continue  # some samples break the promise
        if name == "svd" and params == {"full_matrices": True, "compute_uv": True} and len({*arrays[0].shape[-2:]}) > 1:
            continue  # an error: tests/transforms/test_linalg_rules.py
        if name in WITHOUT_DERIVATIVE | EXPANDED_INTO or (name == "eig" and params["compute_right_eigenvectors"]):
            continue
        result = primitive.rule("type")(*map(type_of, arrays), **params)
        results = result if primitive.multiple_results else (result,)
        if any(map(inexact, arrays)) and any(map(differentiable, results)):
            kept.append((tuple(ADAPTED.get(name, lambda *a: a)(*arrays)), params))
    return tuple(kept)


def _in_floats(name: str, arrays: Sequence[np.ndarray], params: dict[str, Any]) -> Case:
    """Movement's samples are of any dtype."""
    rng, end = np.random.default_rng(0), POSITIONS.get(name, len(arrays))
    return (*(np.asarray(rng.uniform(-3, 3, a.shape)) for a in arrays[:end]), *arrays[end:]), params


DERIVABLE = [name for name in ALL if derivable(name)]
WITH_JVP = [n for n in DERIVABLE if REGISTRY[n].jvp is not None or (REGISTRY[n].linear and len(cases(n)[0][0]) == 1)]


def directions(name: str, arrays: Sequence[np.ndarray], seed: int = 0) -> Iterator[tuple[int | None, list[Any]]]:
    """Tangents: of each operand alone, then of all (None) where there are several."""
    rng = np.random.default_rng(seed)
    given = [direction(rng, a) if inexact(a) else None for a in arrays]
    if name in HERMITIAN:
        given = [t if t is None else t + _adjoint(t) for t in given]
    refused = {*UNDERIVABLE, ("scatter-mul", 2)}
    known = [t is not None and (name, n) not in refused for n, t in enumerate(given)]
    for number, use in enumerate(known):
        if use:
            yield number, [t if n == number else None for n, t in enumerate(given)]
    if sum(known) > 1:
        yield None, [t if use else None for t, use in zip(given, known)]


def direction(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    values = np.asarray(rng.uniform(-1, 1, array.shape))
    return np.asarray(values + 1j * rng.uniform(-1, 1, array.shape)) if array.dtype.kind == "c" else values


def tangents_of(function: Any, arrays: Sequence[Any], tangents: Sequence[Any]) -> list[np.ndarray]:
    """The tangents of a function's differentiable results, as NumPy arrays."""
    zeros = [Zero(type_of(a)) if t is None else Array(t) for a, t in zip(arrays, tangents)]
    _, out = jvp(function, list(map(Array, map(np.asarray, arrays))), zeros)
    return [np.asarray(instantiate(t)) for t in out if differentiable(type_of(t) if type(t) is not Zero else t.aval)]


def slope_of(function: Any, tangents: Sequence[Any], *values: Any) -> list[Any]:
    """The derivative along fixed tangents, as a function of where it is taken."""
    zeros = [Zero(type_of(a)) if t is None else Array(t) for a, t in zip(values, tangents)]
    return [instantiate(t) for t in jvp(function, values, zeros)[1]]


def values_of(function: Any, *arrays: Any) -> list[np.ndarray]:
    out = function(*map(Array, arrays))
    return [np.asarray(v) for v in out if inexact(v)]


def difference(values: Callable[..., list[np.ndarray]], arrays: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """For each result the derivative by differences, and how far it may be off.

    Central differences at steps h and h/2 are extrapolated to step 0, which leaves an error below their distance; rounding
    adds some eps·|value|/h. With h of 1e-3 both are about 1e-12 for functions that vary over lengths of 1.
    """
    step = 1e-3

    def central(h: float) -> list[np.ndarray]:
        above, below = (
            values(*(a if t is None else np.asarray(a + s * h * t) for a, t in zip(arrays, tangents)))
            for s in (1.0, -1.0)
        )
        with np.errstate(all="ignore"):
            return [(a - b) / (2 * h) for a, b in zip(above, below)]

    found = []
    with np.errstate(all="ignore"):
        for at, wide, near in zip(values(*arrays), central(step), central(step / 2)):
            slack = np.abs(wide - near) + 256 * np.finfo(np.float64).eps * (1 + np.abs(at)) / step
            found.append(((4 * near - wide) / 3, slack))
    return found


def assert_derivative(name: str, found: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    assert len(found) == len(expected)
    for tangent, (value, slack) in zip(found, expected):
        assert tangent.shape == value.shape
        bad = ~(np.abs(tangent - value) <= slack) & ~np.isnan(value)
        assert not bad.any(), f"{name} {what}: {tangent[bad][:3]}, by differences {value[bad][:3]}"
        sharp = (slack <= 1e-4 * (1 + np.abs(value)))[~np.isnan(value)]
        assert sharp.mean() > 0.8 or not sharp.size, f"{name} {what}: the differences say too little"


@pytest.fixture(autouse=True)
def _in_64_bits() -> Iterator[None]:
    with config.using(enable_x64=True):
        yield


# The table.


def test_every_primitive_has_a_batch_rule() -> None:
    assert [n for n in ALL if REGISTRY[n].batch is None and any(arrays for arrays, _ in samples(n))] == []


def test_every_primitive_has_a_jvp_unless_its_result_is_never_differentiable() -> None:
    assert [n for n in DERIVABLE if n not in WITH_JVP] == []


def test_every_linear_primitive_has_a_transpose() -> None:
    assert [n for n in DERIVABLE if REGISTRY[n].linear and REGISTRY[n].transpose is None] == []


# Derivatives.


@pytest.mark.parametrize("name", [n for n in WITH_JVP if n not in STEPS])
def test_jvp_agrees_with_differences(name: str) -> None:
    for arrays, params in derivable(name):
        if name == "sign" and arrays[0].dtype.kind == "c":
            continue  # its derivative is not zero, but defined so
        function = determined(name, params)
        for operand, tangents in directions(name, arrays):
            expected = difference(functools.partial(values_of, function), arrays, tangents)
            assert_derivative(name, tangents_of(function, arrays, tangents), expected, f"{params} operand {operand}")


@pytest.mark.parametrize("name", WITH_JVP)
def test_tangents_have_the_type_of_the_result(name: str) -> None:
    """In every dtype, for weak operands too: a tangent has its result's shape and dtype, and is weak only if that is."""
    some = {tuple(a.dtype for a in arrays): (arrays, params) for arrays, params in samples(name)}
    for arrays, params in some.values():
        function = bound(REGISTRY[name], params)
        for weak in (False, True):
            primals = [Array(np.array(a), weak) for a in arrays]
            for operand, a in enumerate(arrays):
                if not inexact(a) or (name, operand) in {*UNDERIVABLE, ("scatter-mul", 2)}:
                    continue
                tangents = [Array(np.ones_like(p)) if n == operand else Zero(type_of(p)) for n, p in enumerate(arrays)]
                for out, tangent in zip(*jvp(function, primals, tangents)):
                    aval = tangent.aval if type(tangent) is Zero else type_of(tangent)
                    types = f"{name}: {type_of(out)} has tangents {aval}"
                    assert (aval.shape, aval.dtype) == (out.shape, out.dtype) and aval.weak_type <= out.weak_type, types


@pytest.mark.parametrize("name", [n for n in WITH_JVP if n not in STEPS])
def test_second_derivative_agrees_with_differences(name: str) -> None:
    for arrays, params in derivable(name):
        function = determined(name, params)
        for operand, tangents in directions(name, arrays):
            if operand is None or (name, operand) in ONCE:
                continue
            slope = functools.partial(slope_of, function, tangents)
            [(_, along)] = [d for d in directions(name, arrays, seed=1) if d[0] == operand]
            expected = difference(functools.partial(values_of, slope), arrays, along)
            assert_derivative(name, tangents_of(slope, arrays, along), expected, f"{params} operand {operand}, twice")


@pytest.mark.parametrize(("name", "operand"), sorted(UNDERIVABLE))
def test_an_unknown_derivative_is_an_error(name: str, operand: int) -> None:
    [(arrays, params)] = derivable(name)
    tangents = [np.ones_like(a) if n == operand else None for n, a in enumerate(arrays)]
    with pytest.raises(UnsupportedError, match=r"has no derivative with respect to .*; hold .* constant with fuser"):
        tangents_of(bound(REGISTRY[name], params), arrays, tangents)


@pytest.mark.parametrize("name", sorted({*WITHOUT_DERIVATIVE, "eig"}))
def test_a_factorisation_without_derivative_says_so(name: str) -> None:
    arrays, params = next((a, p) for a, p in samples(name) if p.get("compute_right_eigenvectors", True))
    with pytest.raises(UnsupportedError, match=f"{name} has no derivative with respect to its matrix"):
        tangents_of(bound(REGISTRY[name], params), arrays, [np.ones_like(a) for a in arrays])


def inner(x: np.ndarray, y: np.ndarray) -> float:
    """The pairing of tangents and cotangents: the real part of Σ x·y, not conjugated, as JAX has it."""
    return float(np.sum(x * y).real)


@pytest.mark.parametrize("name", WITH_JVP)
def test_reverse_mode_agrees_with_jvp(name: str) -> None:
    """⟨J·t, y⟩ = ⟨t, Jᵀ·y⟩: what jvp rules record is linear, and each primitive in it has its transpose."""
    for arrays, params in derivable(name):
        function = bound(REGISTRY[name], params)
        for operand, tangents in directions(name, arrays):
            places = [n for n, t in enumerate(tangents) if t is not None]
            on_places = functools.partial(_at_places, function, arrays, places)
            outs, linear = linearize(on_places, [arrays[n] for n in places])
            forward = tangents_of(function, arrays, tangents)
            rng = np.random.default_rng(2)
            cotangents = [direction(rng, np.asarray(o)) if inexact(o) else None for o in outs]
            back = linear.pullback([c if c is None else Array(c) for c in cotangents])
            given, answers = [tangents[n] for n in places], [c for c in cotangents if c is not None]
            left = sum(inner(t, c) for t, c in zip(forward, answers, strict=True))
            right = sum(inner(t, np.asarray(instantiate(b))) for t, b in zip(given, back, strict=True))
            scale = sum(float(np.abs(t * c).sum()) for t, c in zip(forward, answers))
            agree = abs(left - right) <= 1e-11 * (1 + scale) or name in STEPS
            assert agree, f"{name} {params} operand {operand}: {left} and {right}"
            for t, b in zip(given, back):
                assert type_of(instantiate(b)) == type_of(t)


def _at_places(function: Any, arrays: Sequence[Any], places: Sequence[int], *values: Any) -> list[Any]:
    found = dict(zip(places, values))
    return function(*(found.get(n, a) for n, a in enumerate(arrays)))


LINEAR = [n for n in ALL if REGISTRY[n].transpose is not None]


@pytest.mark.parametrize("name", LINEAR)
def test_transpose_agrees_with_the_primitive(name: str) -> None:
    """⟨A·x, y⟩ = ⟨x, Aᵀ·y⟩ in each operand in which the primitive is linear; of rank 0 beside arrays too."""
    primitive, tried = REGISTRY[name], 0
    for arrays, params in derivable(name):
        for number in [n for n, a in enumerate(arrays) if inexact(a)]:
            if (name, number) in NOT_LINEAR | NEEDS_UNIQUE:
                continue
            for given in _with_scalar(primitive, arrays, number):
                _check_transpose(primitive, given, params, number)
                tried += 1
    assert tried or name == "scatter"


def _with_scalar(primitive: Primitive, arrays: Sequence[Any], number: int) -> list[list[Any]]:
    whole = list(arrays)
    if primitive.fusion is not Fusion.ELEMENTWISE or len(arrays) < 2:
        return [whole]
    alone = [a.reshape(-1)[0].reshape(()) if n == number else a for n, a in enumerate(whole)]
    return [whole, alone]


def _check_transpose(primitive: Primitive, arrays: Sequence[Any], params: dict[str, Any], number: int) -> None:
    rng = np.random.default_rng(3)

    def on_one(value: Any) -> list[np.ndarray]:
        operands = [value if n == number else a for n, a in enumerate(arrays)]
        return [np.asarray(o) for o in bound(primitive, params)(*map(Array, operands))]

    x = direction(rng, arrays[number])
    image = [a - b for a, b in zip(on_one(x), on_one(np.zeros_like(x)))]  # without what other operands and nan add
    image = [np.where(np.isnan(i), 0, i) for i in image]
    cotangents = [direction(rng, i) for i in image]
    given = list(map(Array, cotangents)) if primitive.multiple_results else Array(cotangents[0])
    operands = [Undefined(type_of(a)) if n == number else Array(a) for n, a in enumerate(arrays)]
    back = np.asarray(instantiate(primitive.rule("transpose")(given, *operands, **params)[number]))
    assert (back.shape, back.dtype) == (arrays[number].shape, arrays[number].dtype)
    left, right = sum(inner(i, c) for i, c in zip(image, cotangents)), inner(x, back)
    if primitive.name in STEPS:
        return
    assert abs(left - right) <= 1e-11 * (1 + sum(float(np.abs(i * c).sum()) for i, c in zip(image, cotangents)))


# Against JAX.

# Ties, zeros, domain ends, bounds that meet.
POINTS = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
COMPLEX_POINTS = np.array([0, 1, -1, 1j, -1j, 0.5 - 0.25j, -2 + 1j])


def _grid(pools: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.ascontiguousarray(g.ravel()) for g in np.meshgrid(*pools, indexing="ij")]


@functools.cache
def jax_cases(name: str) -> tuple[tuple[Case, list[Any]], ...]:
    """Cases with the tangents of each direction; for elementwise primitives also those at special points."""
    found = []
    for arrays, params in derivable(name):
        every = [(arrays, params)]
        if REGISTRY[name].fusion is Fusion.ELEMENTWISE or name in ("igamma", "igammac"):
            every.append((_special(name, arrays), params))
        found += [((a, p), t) for a, p in every for _, t in directions(name, a)]
    return tuple(found)


def _special(name: str, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    pools = {
        "f": POINTS,
        "c": COMPLEX_POINTS,
        "i": np.arange(-2, 3),
        "u": np.arange(0, 4),
        "b": np.array([False, True]),
    }
    return tuple(g.astype(a.dtype) for g, a in zip(_grid([pools[a.dtype.kind] for a in arrays]), arrays))


IN_JAX = [
    n
    for n in WITH_JVP
    if n not in NOT_IN_JAX
    and jax_oracle.has(n)
    and (REGISTRY[n].fusion is Fusion.ELEMENTWISE or REGISTRY[n].file.endswith("incomplete.py"))
]


@functools.cache
def jax_tangents() -> dict[str, list[list[np.ndarray]]]:
    """JAX's tangents of all cases of all primitives, compiled as one program."""
    import jax

    def one(name: str, case: Case, tangents: Sequence[Any]) -> list[Any]:
        arrays, params = case
        places = [n for n, t in enumerate(tangents) if t is not None]

        def function(*inputs: Any) -> Any:
            rest = dict(zip(places, inputs))
            out = jax_oracle.call(name, tuple(rest.get(n, a) for n, a in enumerate(arrays)), params)
            return list(out) if isinstance(out, (list, tuple)) else [out]

        primals = [jax.numpy.asarray(arrays[n]) for n in places]
        out = jax.jvp(function, primals, [jax.numpy.asarray(tangents[n]) for n in places])[1]
        return [t for t in out if t.dtype != jax.dtypes.float0]

    with jax.enable_x64(True):
        results = jax.jit(lambda: {n: [one(n, c, t) for c, t in jax_cases(n)] for n in IN_JAX})()
    return {n: [[np.asarray(t) for t in ts] for ts in r] for n, r in results.items()}


@pytest.mark.parametrize("name", IN_JAX)
def test_jvp_agrees_with_jax(name: str) -> None:
    for (case, tangents), theirs in zip(jax_cases(name), jax_tangents()[name], strict=True):
        arrays, params = case
        ours = tangents_of(bound(REGISTRY[name], params), arrays, tangents)
        for x, y in zip(ours, theirs, strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            bad = ~np.isclose(x, y, rtol=1e-9, atol=1e-9, equal_nan=True)
            if x.dtype.kind == "c":  # in which direction a complex number is infinite, and where nan, is chance
                bad &= np.isfinite(x) | np.isfinite(y)
            if bad.any():
                where = [tuple(np.asarray(a)[bad][:4] if np.shape(a) == bad.shape else a for a in arrays)]
                pytest.fail(f"{name} {params} at {where}: {x[bad][:4]}, JAX {y[bad][:4]}")


# Batching.


# One key draws for a whole batch there, as in JAX: tests/random compares with it.
DRAWING = ("random.py", "philox.py")


@pytest.mark.parametrize("name", [n for n in ALL if REGISTRY[n].batch and not REGISTRY[n].file.endswith(DRAWING)])
def test_batch_agrees_with_a_loop(name: str) -> None:
    primitive, size = REGISTRY[name], 3
    for arrays, params in cases(name):
        function = bound(primitive, params)
        lanes = [[np.roll(a, n).reshape(a.shape) for a in arrays] for n in range(size)]
        for dims in _batchings(arrays):
            values = [
                a if d is None else np.stack([lane[n] for lane in lanes], d)
                for n, (a, d) in enumerate(zip(arrays, dims))
            ]
            found, out_dims = batch(function, [Array(np.array(v)) for v in values], dims, size)
            for number in range(size):
                operands = [a if d is None else lanes[number][n] for n, (a, d) in enumerate(zip(arrays, dims))]
                expected = function(*map(Array, operands))
                for x, d, y in zip(found, out_dims, expected, strict=True):
                    got, wanted = np.asarray(x), np.asarray(y)
                    got = got if d is None else np.take(got, number, d)
                    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), f"{name} {params} at {dims}"
                    exact = wanted.dtype.kind not in "fc"
                    same = np.array_equal(got, wanted) if exact else np.allclose(got, wanted, 1e-12, 1e-12, True)
                    assert same, f"{name} {params} batched at {dims}, lane {number}: {got} and {wanted}"


def _batchings(arrays: Sequence[np.ndarray]) -> list[list[int | None]]:
    """Each operand alone, at its first and its last dimension; then all, at different ones."""
    found: list[list[int | None]] = []
    for number, array in enumerate(arrays):
        for dim in dict.fromkeys((0, array.ndim)):
            found.append([dim if n == number else None for n in range(len(arrays))])
    if len(arrays) > 1:
        found.append([0 for _ in arrays])
        found.append([min(n, a.ndim) for n, a in enumerate(arrays)])
        found.append([a.ndim - min(n, a.ndim) for n, a in enumerate(arrays)])
    return found
