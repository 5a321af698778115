"""Programs with calls of cuSOLVER, cuBLAS and cuFFT, alone, in loops and differentiated; factors are multiplied again, as their signs are a library's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import lax

linalg, fft = fnp.linalg, fnp.fft


def _eigh(a: Any) -> Any:
    values, vectors = linalg.eigh(a)
    return values, (vectors * values[..., None, :]) @ fnp.swapaxes(vectors, -1, -2).conj()


def _svd(a: Any) -> Any:
    u, s, vh = linalg.svd(a, full_matrices=False)
    return s, (u * s[..., None, :]) @ vh


def _qr(a: Any) -> Any:
    q, r = linalg.qr(a)
    return q @ r, abs(fnp.diagonal(r, axis1=-2, axis2=-1)), fnp.swapaxes(q, -1, -2).conj() @ q


def _repeated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ten times in a loop of the device's."""
    return lambda a: lax.fori_loop(0, 10, lambda i, x: function(x) / (1 + abs(function(x)).max()) + a * 0.1, a)


def _until(a: Any) -> Any:
    """A loop whose predicate the device reads, with a factorisation in its body."""
    body = lambda c: (c[0] + 1, linalg.solve(c[1], a) * 0.5 + 0.5 * c[1])
    return lax.while_loop(lambda c: (c[0] < 12) & (abs(c[1]).max() > 1e-3), body, (0, a))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a: linalg.cholesky(a),
    "solve": lambda a: linalg.solve(a, fnp.swapaxes(a, -1, -2) + 1),
    "inverse": lambda a: linalg.inv(a),
    "determinant": lambda a: linalg.slogdet(a),
    "eigh": _eigh,
    "svd": _svd,
    "qr": _qr,
    "lu": lambda a: fuser.scipy.linalg.lu_solve(fuser.scipy.linalg.lu_factor(a), a[..., :2]),
    "least squares": lambda a: linalg.pinv(a[..., :-3]) @ a,
    "triangular": lambda a: lax.linalg.triangular_solve(fnp.tril(a), a, left_side=True, lower=True),
    "fft": lambda a: fft.ifft(fft.fft(a, axis=-1) * 2, axis=-1),
    "fft of two axes": lambda a: fft.fft2(a),
    "real fft": lambda a: fft.irfft(fft.rfft(a.real) * 3, n=a.shape[-1]),
}
OF_LOOPS = ("cholesky", "solve", "fft")


def cases() -> Iterator[tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]]:
    """Name, function, and a well-conditioned Hermitian stack or matrix, real or complex, in two precisions."""
    random = np.random.default_rng(5)
    for shape in ((12, 12), (65, 65), (3, 20, 20), (40, 6, 6), (2, 1, 1)):
        for dtype in (np.float32, np.float64, np.complex128):
            a = random.standard_normal(shape)
            a = a + 1j * random.standard_normal(shape) if np.dtype(dtype).kind == "c" else a
            definite = (a @ np.swapaxes(a, -1, -2).conj() / shape[-1] + 2 * np.eye(shape[-1])).astype(dtype)
            for name, function in FUNCTIONS.items():
                if shape[-1] < 4 and name == "least squares":
                    continue
                yield f"library {name} of {np.dtype(dtype).name}{shape}", function, (definite,)
    matrix = (np.eye(30) * 3 + random.standard_normal((30, 30)) / 8).astype(np.float64)
    definite = matrix @ matrix.T
    for name in OF_LOOPS:
        function = FUNCTIONS[name]
        step = (
            (lambda x, function=function: function(x @ x.T + fnp.eye(30)).real)
            if name != "fft"
            else lambda x: fft.fft(x).real
        )
        yield f"library loop of {name}", _repeated(step), (definite,)
    yield "library loop until", _until, (definite,)
    gradient = lambda a: fuser.grad(
        lambda a: linalg.slogdet(a)[1] + linalg.cholesky(a).sum() + linalg.eigh(a)[0].max()
    )(a)
    yield "library gradient", gradient, (definite,)
    batched = fuser.vmap(lambda a: linalg.solve(a, a[0]))
    yield "library batched", batched, (np.stack([definite, definite.T * 2]),)
