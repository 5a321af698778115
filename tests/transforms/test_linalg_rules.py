"""Derivatives and batching of factorisations, triangular systems and norms, against real JAX in 64 bits.

Each case goes through its value, jvp, vjp, the derivative of its vjp, and vmap around and inside; on Arrays at once, and
jitted for the C backend. Signs and phases of vectors are LAPACK's in both, so that factors can be compared as they are.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fuser
from fuser.config import config
from fuser.errors import TypeRuleError, UnsupportedError
from fuser.transforms.linear import linear_transpose
from tests.transforms.both import compare

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]

_rng = np.random.default_rng(5)


def real(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape)


def unreal(*shape: int) -> np.ndarray:
    return real(*shape) + 1j * real(*shape)


def adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


def positive(x: np.ndarray) -> np.ndarray:
    """A Hermitian matrix whose eigenvalues are positive and apart."""
    return x @ adjoint(x) + np.diag(np.arange(1.0, x.shape[-1] + 1))


def conditioned(x: np.ndarray) -> np.ndarray:
    """A matrix both of whose triangles are far from singular."""
    return 0.3 * x + 2 * np.eye(x.shape[-1])


FLAGS = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")


def triangular(lead: tuple[int, ...], make: Callable[..., np.ndarray], flags: tuple[bool, ...]) -> Case:
    shape = (3, 2) if flags[0] else (2, 3)
    call = lambda m, a, b: m.lax.linalg.triangular_solve(a, b, **dict(zip(FLAGS, flags)))
    return call, (conditioned(make(*lead, 3, 3)), make(*lead, *shape))


CASES: dict[str, list[Case]] = {
    "cholesky": [
        (lambda m, a: m.lax.linalg.cholesky(a), (positive(real(4, 4)),)),
        (lambda m, a: m.lax.linalg.cholesky(a), (positive(unreal(2, 3, 3)),)),
        (lambda m, a: m.lax.linalg.cholesky(a, symmetrize_input=False), (positive(unreal(3, 3)),)),
        (lambda m, a: m.numpy.linalg.cholesky(a, upper=True), (positive(unreal(3, 3)),)),
        (lambda m, a: m.lax.linalg.cholesky(a), (positive(real(1, 1)),)),
    ],
    "qr": [
        (lambda m, a: m.lax.linalg.qr(a, full_matrices=True), (unreal(5, 3),)),
        (lambda m, a: m.lax.linalg.qr(a, full_matrices=False), (real(2, 4, 3),)),
        (lambda m, a: m.lax.linalg.qr(a, full_matrices=False), (unreal(2, 4),)),
        (lambda m, a: m.lax.linalg.qr(a, full_matrices=True), (real(3, 5),)),
        (lambda m, a: m.lax.linalg.qr(a), (unreal(3, 3),)),
        (lambda m, a: m.lax.linalg.qr(a), (real(2, 3, 2),)),
        (lambda m, a: m.numpy.linalg.qr(a, "complete"), (real(4, 2),)),
        (lambda m, a: m.numpy.linalg.qr(a, "r"), (unreal(4, 2),)),
    ],
    "eigh": [
        (lambda m, a: m.lax.linalg.eigh(a), (positive(unreal(2, 3, 3)),)),
        (lambda m, a: m.lax.linalg.eigh(a, lower=False, symmetrize_input=False), (positive(real(4, 4)),)),
        (lambda m, a: m.lax.linalg.eigh(a, symmetrize_input=False), (positive(unreal(3, 3)),)),
        (lambda m, a: m.numpy.linalg.eigh(a, UPLO="U"), (positive(real(3, 3)),)),
        (lambda m, a: m.numpy.linalg.eigvalsh(a), (positive(unreal(3, 3)),)),
        (lambda m, a: m.numpy.linalg.eigvalsh(a), (np.diag([1.0, 2.0, 2.0]),)),
    ],
    "svd": [
        (lambda m, a: m.lax.linalg.svd(a, full_matrices=False), (unreal(4, 3),)),
        (lambda m, a: m.lax.linalg.svd(a, full_matrices=False), (real(2, 3, 4),)),
        (lambda m, a: m.lax.linalg.svd(a), (unreal(3, 3),)),
        (lambda m, a: m.lax.linalg.svd(a, compute_uv=False), (unreal(3, 4),)),
        (lambda m, a: m.numpy.linalg.svdvals(a), (real(2, 4, 2),)),
        (lambda m, a: m.numpy.linalg.svd(a, hermitian=True), (positive(real(3, 3)) - 4 * np.eye(3),)),
        (lambda m, a: m.numpy.linalg.svd(a, compute_uv=False, hermitian=True), (positive(unreal(3, 3)),)),
    ],
    "triangular_solve": [
        triangular((2,), real, (True, True, True, False, False)),
        triangular((2,), unreal, (False, False, True, True, True)),
        (lambda m, a, b: m.lax.linalg.triangular_solve(a, b), (conditioned(real(3, 3)), real(3))),
        (lambda m, a, b: m.lax.linalg.triangular_solve(a, b, left_side=True), (conditioned(real(3, 3)), real(3))),
        (
            lambda m, a, b: m.lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
            (conditioned(real(20, 20)), real(20, 2)),
        ),
        *(triangular((), unreal, flags) for flags in itertools.product((False, True), repeat=5)),
    ],
    "solve": [
        (lambda m, a, b: m.numpy.linalg.solve(a, b), (conditioned(unreal(3, 3)), unreal(3))),
        (lambda m, a, b: m.numpy.linalg.solve(a, b), (conditioned(real(3, 3)), real(2, 3, 4))),
        (lambda m, a: m.numpy.linalg.inv(a), (conditioned(real(2, 3, 3)),)),
        (lambda m, a, b: m.numpy.linalg.solve(a, b), (conditioned(real(2, 1, 3, 3)), real(4, 3, 2))),
    ],
    "vector norm": [
        (lambda m, x, ord=ord: m.numpy.linalg.norm(x, ord), (make(4),))
        for make in (real, unreal)
        for ord in (None, 2, 0, 1, 3, -1.5, np.inf, -np.inf)
    ]
    + [
        (lambda m, x: m.numpy.linalg.norm(x), (unreal(2, 3, 2),)),
        (lambda m, x: m.numpy.linalg.norm(x, axis=1, keepdims=True), (real(2, 3, 2),)),
        (lambda m, x: m.numpy.linalg.norm(x, 3, axis=-1), (real(2, 3),)),
        (lambda m, x: m.numpy.linalg.vector_norm(x, axis=(0, 2)), (real(2, 3, 2),)),
        (lambda m, x: m.numpy.linalg.vector_norm(x, ord=1, keepdims=True), (real(2, 3),)),
    ],
    "matrix norm": [
        (lambda m, x, ord=ord, axis=axis, kept=kept: m.numpy.linalg.norm(x, ord, axis, kept), (real(3, 4, 2),))
        for ord, axis, kept in (
            ("fro", (0, 1), False),
            ("nuc", (0, -1), True),
            (1, (2, 0), False),
            (-1, (0, 2), True),
            (2, (1, 2), True),
            (-2, (1, 0), False),
            (np.inf, (2, 1), True),
            (-np.inf, (0, 1), False),
        )
    ]
    + [(lambda m, x: m.numpy.linalg.matrix_norm(x, ord="nuc"), (unreal(2, 3, 3),))],
}


@pytest.fixture(autouse=True)
def _in_64_bits() -> Iterator[None]:
    with config.using(enable_x64=True), jax.enable_x64(True):
        yield


def leaves(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def rules(lib: Any, case: Case) -> Iterator[tuple[str, Any]]:
    """What every rule gives for a case; `lib` is jax or fuser."""
    call, operands = case
    rng = np.random.default_rng(zlib.crc32(repr([o.shape for o in operands]).encode()))

    def like(aval: Any) -> np.ndarray:
        values = rng.normal(size=aval.shape)
        return values + 1j * rng.normal(size=aval.shape) if np.dtype(aval.dtype).kind == "c" else values

    function = lambda *inputs: leaves(call(lib, *inputs))
    primals = [lib.numpy.asarray(o) for o in operands]
    tangents = [like(p) for p in primals]
    tangents = [t + adjoint(t) if is_hermitian(o) else t for t, o in zip(tangents, operands)]
    cotangents = [like(o) for o in lib.eval_shape(function, *primals)]
    back = lambda *xs: lib.vjp(function, *xs)[1](cotangents)
    yield "value and jvp", lib.jvp(function, primals, tangents)
    yield "vjp", back(*primals)
    yield "jvp of vjp", lib.jvp(back, primals, tangents)
    stacked = [lib.numpy.asarray(np.stack([o, 1.5 * o, adjoint(o) if is_square(o) else -o], -1)) for o in operands]
    for axes in {tuple(-1 for _ in operands), *(_alone(len(operands)))}:
        given = [s if a is not None else p for s, p, a in zip(stacked, primals, axes)]
        over = lambda *xs, axes=axes: lib.vmap(function, in_axes=axes)(*xs)
        yield f"vmap over {axes}", over(*given)
    yield "vmap of vjp", lib.vmap(back, in_axes=-1)(*stacked)
    wide = lambda *xs: lib.vmap(function, in_axes=-1)(*xs)
    yield "vjp of vmap", lib.vjp(wide, *stacked)[1]([np.stack([c, c, 2 * c]) for c in cotangents])


def is_square(x: np.ndarray) -> bool:
    return x.ndim > 1 and x.shape[-1] == x.shape[-2]


def is_hermitian(x: np.ndarray) -> bool:
    return is_square(x) and bool(np.allclose(x, adjoint(x)))


def _alone(count: int) -> Iterator[tuple[int | None, ...]]:
    for n in range(count) if count > 1 else ():
        yield tuple(-1 if m == n else None for m in range(count))


Found = dict[str, Any]


def eager(lib: Any, cases: list[Case]) -> Found:
    return {f"case {n}: {what}": value for n, case in enumerate(cases) for what, value in rules(lib, case)}


def compiled(lib: Any, cases: list[Case]) -> Found:
    """All rules of some cases in one program."""
    names: list[str] = []

    def program() -> list[Any]:
        found = eager(lib, cases)
        names[:] = found
        return list(found.values())

    return dict(zip(names, lib.jit(program)()))


_known: dict[str, Found] = {}


def oracle(name: str) -> Found:
    if name not in _known:
        _known[name] = compiled(jax, CASES[name])
    return _known[name]


def plain(value: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(value)]


def check(name: str, found: Found) -> None:
    expected = oracle(name)
    wrong = []
    for key, value in found.items():
        for x, y in zip(plain(value), plain(expected[key]), strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{name} {key}"
            scale = np.abs(y[np.isfinite(y)]).max(initial=1)
            if not np.allclose(x, y, rtol=1e-8, atol=1e-9 * scale, equal_nan=True):
                wrong.append(f"{name} {key}:\n{x}\nexpected\n{y}")
    assert not wrong, "\n".join(wrong[:6])


@pytest.mark.parametrize("name", list(CASES))
def test_rules_agree_with_jax(name: str) -> None:
    check(name, eager(fuser, CASES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_rules_in_c_agree_with_jax(name: str) -> None:
    """The first two cases of each kind, where compiling takes its time."""
    check(name, compiled(fuser, CASES[name][:2]))


# What the cases do not show.


def test_a_derivative_leaves_the_value_as_it_is() -> None:
    """Where one triangle is read, the other may hold anything, under jvp too."""
    a = np.tril(positive(real(3, 3))) + np.triu(np.full((3, 3), 7.0), 1)
    for function in (
        lambda x: fuser.lax.linalg.cholesky(x, symmetrize_input=False),
        lambda x: fuser.lax.linalg.eigh(x, symmetrize_input=False),
    ):
        for x, y in zip(plain(fuser.jvp(function, (a,), (a,))[0]), plain(function(a)), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("ord", [None, 2, 0, 1, 3, 0.5, np.inf, -np.inf])
def test_gradients_of_vector_norms_at_0_are_those_of_jax(ord: Any) -> None:
    for x in (np.zeros(3), np.array([0.0, 1.0, -2.0]), np.array([2.0, 2.0, 1.0]), np.zeros(3, complex)):
        found, expected = (lib.grad(lambda v, m=lib: m.numpy.linalg.norm(v, ord))(x) for lib in (fuser, jax))
        compare(found, expected)


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_gradients_of_matrix_norms_at_0_are_those_of_jax(ord: Any) -> None:
    for x in (np.zeros((2, 3)), np.diag([2.0, 1.0, 0.0])):
        found, expected = (lib.grad(lambda v, m=lib: m.numpy.linalg.norm(v, ord))(x) for lib in (fuser, jax))
        compare(found, expected, 1e-12)


def test_equal_eigenvalues_and_singular_values_have_finite_gradients() -> None:
    for name in ("eigvalsh", "svdvals"):
        function = getattr(fuser.numpy.linalg, name)
        slope = fuser.grad(lambda x, function=function: function(x).sum())(np.eye(3))
        np.testing.assert_allclose(np.asarray(slope), np.eye(3), atol=1e-12)


def test_what_lapack_cannot_factor_is_nan_alone() -> None:
    good = positive(real(3, 3))
    stack = np.stack([good, np.full((3, 3), np.nan), good])
    indefinite = np.stack([good, -good])
    linalg = fuser.lax.linalg
    for name, a in (("cholesky", indefinite), ("eigh", stack), ("svd", stack)):
        for together, alone in zip(leaves(getattr(linalg, name)(a)), leaves(getattr(linalg, name)(good)), strict=True):
            np.testing.assert_allclose(np.asarray(together)[0], np.asarray(alone), rtol=1e-12)
            bad = np.asarray(together)[1]
            assert np.isnan(np.tril(bad)[np.tril_indices(3)] if name == "cholesky" else bad).all()


def test_singular_triangles_divide_by_zero_as_in_jax() -> None:
    a, b = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[1.0, 0.0], [2.0, 3.0]])
    found, expected = (
        np.asarray(lib.lax.linalg.triangular_solve(a, b, left_side=True, lower=True)) for lib in (fuser, jax)
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("left_side", [False, True])
def test_many_right_sides_of_one_matrix_are_one_system(left_side: bool) -> None:
    a, b = conditioned(real(3, 3)), real(5, 3, 3)
    solve = lambda right: fuser.lax.linalg.triangular_solve(a, right, left_side=left_side)
    graph = fuser.make_jaxpr(fuser.vmap(solve))(b)
    (eqn,) = [e for e in graph.eqns if e.primitive.name == "triangular_solve"]
    assert sorted(eqn.outvars[0].aval.shape) == [3, 15]


def test_solve_and_its_gradient_share_one_factorisation() -> None:
    a, b = conditioned(real(3, 3)), real(3)
    graph = fuser.make_jaxpr(fuser.grad(lambda a, b: fuser.numpy.linalg.solve(a, b).sum(), (0, 1)))(a, b)
    assert [e.primitive.name for e in graph.eqns].count("lu") == 1


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.complex64])
def test_dtypes_are_those_of_jax(dtype: Any) -> None:
    a = np.array([[4, 1], [1, 3]], dtype)
    with config.using(enable_x64=False), jax.enable_x64(False):
        for name in ("cholesky", "qr", "eigh", "eigvalsh", "svd", "svdvals", "inv", "norm"):
            found, expected = (leaves(getattr(lib.numpy.linalg, name)(a)) for lib in (fuser, jax))
            compare(found, [np.asarray(e) for e in expected], 1e-5)


def test_results_have_names() -> None:
    a = positive(real(3, 3))
    linalg = fuser.numpy.linalg
    assert linalg.eigh(a)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.svd(a)._fields == ("U", "S", "Vh")
    assert linalg.qr(a)._fields == ("Q", "R")


def test_refusals() -> None:
    a, wide = real(3, 3), real(2, 3)
    lax, linalg = fuser.lax.linalg, fuser.numpy.linalg
    with pytest.raises(
        UnsupportedError, match=r"svd of f64\[2,3\] has no derivative with full_matrices=True: .*=False"
    ):
        fuser.jvp(lax.svd, (wide,), (wide,))
    with pytest.raises(TypeRuleError, match=r"cholesky takes square matrices, got f64\[2,3\]"):
        lax.cholesky(wide)
    with pytest.raises(TypeRuleError, match="triangular_solve needs equal leading dimensions, and as many columns"):
        lax.triangular_solve(a, real(3, 2))
    with pytest.raises(TypeRuleError, match="triangular_solve needs equal dtypes"):
        lax.triangular_solve(a, unreal(3, 3))
    with pytest.raises(TypeRuleError, match="triangular_solve is not linear in its matrix"):
        linear_transpose(lambda x: lax.triangular_solve(x, a), a)(a)
    with pytest.raises(ValueError, match=r"solve takes a \(\.\.\., m, m\) and b"):
        linalg.solve(a, real(2, 3))
    with pytest.raises(ValueError, match="inv takes a stack of square matrices"):
        linalg.inv(wide)
    with pytest.raises(ValueError, match="UPLO must be one of None, 'L', or 'U', got l"):
        linalg.eigh(a, "l")
    with pytest.raises(ValueError, match='qr takes the modes "reduced", "complete", "r" and "raw", got \'other\''):
        linalg.qr(a, "other")
    with pytest.raises(ValueError, match="norm of matrices takes"):
        linalg.norm(a, 3)
    with pytest.raises(ValueError, match="norm takes one axis for vectors or two for matrices"):
        linalg.norm(real(2, 2, 2), 2)
    with pytest.raises(ValueError, match="vector_norm takes a number as ord, got 'inf'"):
        linalg.norm(a, "inf", axis=0)


@pytest.mark.parametrize(("left", "right"), [(True, True), (False, True), (False, False)])
def test_eigenvectors_have_jaxs_derivatives_where_they_are_asked_for(left: bool, right: bool) -> None:
    a, t = unreal(4, 4), unreal(4, 4)[::-1]

    def derivatives(m: Any) -> list[Any]:
        find = lambda a: m.lax.linalg.eig(
            a, compute_left_eigenvectors=left, compute_right_eigenvectors=right, enable_eigvec_derivs=True
        )
        total = lambda a: sum((v * v.conj() * (1 + v)).real.sum() + (v.imag**3).sum() for v in find(a))
        second = m.jvp(lambda a: m.jvp(total, (a,), (t,))[1], (a,), (t,))[1]
        return [*m.jvp(find, (a,), (t,))[1], m.grad(total)(a), second]

    for found, expected in zip(derivatives(fuser), derivatives(jax), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


def test_products_in_derivatives_of_factorisations_are_exact() -> None:
    """Also where products that name no precision are not."""
    a = positive(unreal(3, 3))
    for f in (fuser.numpy.linalg.cholesky, fuser.numpy.linalg.eigh, fuser.numpy.linalg.qr, fuser.numpy.linalg.inv):
        with fuser.default_matmul_precision("bfloat16"):
            graph = fuser.make_jaxpr(lambda a, f=f: fuser.jvp(f, (a,), (a,)))(a)
        products = [eqn for eqn in graph.eqns if eqn.primitive is fuser.lax.dot_general_p]
        assert all(eqn.params["precision"] is fuser.lax.Precision.HIGHEST for eqn in products)


@pytest.mark.parametrize("name", ["svd", "qr", "eigh", "cholesky"])
def test_rules_of_factorisations_under_strict_promotion(name):
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))).astype(np.complex64)
    a = a @ a.conj().swapaxes(-1, -2) + 3 * np.eye(3, dtype=np.complex64)
    direction = np.ones_like(a)
    function = getattr(fuser.numpy.linalg, name)
    wanted = fuser.jvp(function, (a,), (direction,))
    with fuser.numpy_dtype_promotion("strict"), fuser.numpy_rank_promotion("raise"):
        found = fuser.jvp(function, (a,), (direction,))
    for part, other in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(part, other)
