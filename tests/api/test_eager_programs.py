"""Control flow and factorisations outside of jit: what a second call compiles, and that results are those under jit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
import fuser.scipy.linalg as sl
from fuser import lax
from fuser.experimental.ode import odeint
from fuser.runtime import blas_threads
from fuser.runtime.core import native

X = np.linspace(0.1, 0.9, 6, dtype=np.float32)
RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((40, 40)).astype(np.float32)
COMPLEX = (MATRIX + 1j * MATRIX.T).astype(np.complex64)


@contextlib.contextmanager
def lowerings() -> Iterator[list[str]]:
    """The names of the programs that the block lowers."""
    names: list[str] = []

    def listener(event: str, seconds: float, fun_name: str = "") -> None:
        if "jaxpr_to_mlir" in event:
            names.append(fun_name)

    fuser.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield names
    finally:
        fuser.monitoring.unregister_event_duration_listener(listener)


# Each defines the functions of its loop anew in every call.
def scanned(x: Any) -> Any:
    return lax.scan(lambda c, e: (c * 1.5 + fnp.sin(e), c), 0.0, x)[0]


def looped(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: c * 1.5 + i, x)


def waited(x: Any) -> Any:
    return lax.while_loop(lambda c: fnp.all(c < 10), lambda c: c * 2.5, x)


def chosen(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda v: v * v, lambda v: v + 1, x)


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "plain": lambda f: f,
    "jvp": lambda f: lambda x: fuser.jvp(f, (x,), (x,)),
    "vjp": lambda f: lambda x: fuser.vjp(f, x)[1](f(x)),
    "vmap": lambda f: lambda x: fuser.vmap(f)(fnp.stack([x, x])),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", [scanned, looped, waited, chosen], ids=lambda f: f.__name__)
def test_functions_defined_anew_compile_once(function: Any, transform: str) -> None:
    run = TRANSFORMS[transform](function)
    if (function, transform) == (waited, "vjp"):
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
            run(fnp.asarray(X))
        return
    first = run(fnp.asarray(X))
    with lowerings() as names:
        second = run(fnp.asarray(X))
    assert names == []
    for a, b in zip(fuser.tree.leaves(first), fuser.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_programs_are_told_apart_by_numbers_and_by_arrays() -> None:
    def shifted(by: Any) -> Any:
        return lax.fori_loop(0, 1, lambda i, c: c + by, fnp.asarray([-0.0, 1.0]))

    assert np.signbit(np.asarray(shifted(-0.0))[0]) and not np.signbit(np.asarray(shifted(0.0))[0])
    arrays = [fnp.asarray(np.float32([n, n])) for n in (1, 2)]
    found = [np.asarray(shifted(a)).tolist() for a in arrays]
    assert found == [[1.0, 2.0], [2.0, 3.0]]
    # Functions of the same text on one line, which call others.
    made = [lambda x, f=f: lax.map(lambda e: fuser.pure_callback(f, e, e), x) for f in (np.sin, np.cos)]
    for run, f in zip(made, (np.sin, np.cos)):
        np.testing.assert_allclose(np.asarray(run(fnp.asarray(X))), f(X), rtol=1e-6)


def test_a_second_solution_of_an_equation_compiles_nothing() -> None:
    decay = lambda y, t, rate: -rate * y
    times = fnp.asarray([0.0, 1.0, 2.0])
    solve = lambda rate: odeint(decay, fnp.asarray([1.0, 2.0]), times, rate, rtol=1e-5, atol=1e-5).sum()
    found = solve(0.5), fuser.grad(solve)(0.5)
    with lowerings() as names:
        again = solve(0.5), fuser.grad(solve)(0.5)
    assert names == []
    assert found == again
    np.testing.assert_allclose(float(found[0]), 3 * (1 + np.exp(-0.5) + np.exp(-1)), rtol=1e-4)


@pytest.mark.skipif(native is None, reason="without the native core they are not compiled outside of jit")
@pytest.mark.parametrize("matrix", [MATRIX, COMPLEX], ids=["float32", "complex64"])
@pytest.mark.parametrize(
    "function",
    [
        fnp.linalg.inv,
        fnp.linalg.det,
        fnp.linalg.qr,
        fnp.linalg.svd,
        lambda a: fnp.linalg.solve(a, a[0]),
        lambda a: fnp.linalg.tensorsolve(a, a[0]),
        sl.lu_factor,
        sl.expm,
        lambda a: sl.solve_sylvester(a, a, a),
        lambda a: lax.linalg.triangular_solve(a, a[:, :1], left_side=True, lower=True),
    ],
)
def test_factorisations_round_as_under_jit(function: Any, matrix: np.ndarray) -> None:
    matrix = fnp.asarray(matrix)
    eager, compiled = fuser.tree.leaves(function(matrix)), fuser.tree.leaves(fuser.jit(function)(matrix))
    for e, c in zip(eager, compiled, strict=True):
        np.testing.assert_array_equal(np.asarray(e), np.asarray(c))


def test_libraries_get_their_threads_back() -> None:
    limit = blas_threads.setter("numpy.linalg._umath_linalg")
    if limit is None:
        pytest.skip("the library behind NumPy has no function that sets its threads")
    before = limit(3)
    try:
        with blas_threads.one_thread(10, 100), blas_threads.one_thread(10, 100):
            assert limit(1) == 1
        assert limit(3) == 3
        with blas_threads.one_thread(1000, 100):
            assert limit(3) == 3
    finally:
        limit(before)
