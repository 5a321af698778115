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
    cotangents = [like(o) for o in lib.eval_shape(function, *primals)]
    back = lambda *xs: lib.vjp(function, *xs)[1](cotangents)
    yield "value and jvp", lib.jvp(function, primals, tangents)
    yield "vjp", back(*primals)
    yield "jvp of vjp", lib.jvp(back, primals, tangents)
    stacked = [lib.numpy.asarray(np.stack([o, 1.5 * o, o + 0.1 * np.conj(adjoint_of(o))], -1)) for o in operands]
    for axes in {tuple(-1 for _ in operands), *(_alone(len(operands)))}:
        given = [s if a is not None else p for s, p, a in zip(stacked, primals, axes)]
        over = lambda *xs, axes=axes: lib.vmap(function, in_axes=axes)(*xs)
        yield f"vmap over {axes}", over(*given)
    yield "vmap of vjp", lib.vmap(back, in_axes=-1)(*stacked)
    wide = lambda *xs: lib.vmap(function, in_axes=-1)(*xs)
    yield "vjp of vmap", lib.vjp(wide, *stacked)[1]([np.stack([c, c, 2 * c]) for c in cotangents])


def adjoint_of(x: np.ndarray) -> np.ndarray:
    """A matrix of the same kind in every case: the adjoint of square ones."""
    return adjoint(x) if x.ndim > 1 and x.shape[-1] == x.shape[-2] else x


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
            scale = np.abs(y).max(initial=1)
            if not np.allclose(x, y, rtol=1e-8, atol=1e-9 * scale, equal_nan=True):
                wrong.append(f"{name} {key}:\n{x}\nexpected\n{y}")
    assert not wrong, "\n".join(wrong[:6])


@pytest.mark.parametrize("name", list(CASES))
def test_rules_agree_with_jax(name: str) -> None:
    check(name, eager(fuser, CASES[name]))


@pytest.mark.parametrize("name", list(CASES))
def test_rules_in_c_agree_with_jax(name: str) -> None:
    """The first two cases of each kind, where compiling takes its time."""
    check(name, compiled(fuser, CASES[name][:2]))
