"""Functions that run in NumPy between compiled kernels: values, warnings and errors are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.test_events import as_numpy, events

rng = np.random.default_rng(0)
A = rng.normal(size=(4, 4)) + 4 * np.eye(4)
V = rng.normal(size=4)
STACK = A + rng.normal(size=(3, 4, 4)) * 0.1

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda a, v: np.linalg.solve(a * 2, v) + 1,
    "inv": lambda a, v: np.linalg.inv(a) @ v,
    "det": lambda a, v: np.linalg.det(a) * 2,
    "qr": lambda a, v: np.linalg.qr(a)[1] @ v,
    "eigh": lambda a, v: np.linalg.eigh(a @ a.T).eigenvalues + v,
    "svd": lambda a, v: np.linalg.svd(a),
    "singular values": lambda a, v: np.linalg.svd(a, compute_uv=False).sum() + v,
    "cholesky": lambda a, v: np.linalg.cholesky(a @ a.T),
    "slogdet": lambda a, v: np.linalg.slogdet(a),
    "spectral norm": lambda a, v: np.linalg.norm(a, 2) + np.linalg.norm(a, "nuc"),
    "stack of matrices": lambda a, v: np.linalg.inv(a[None] + np.zeros((3, 1, 1))),
    "pinv and powers": lambda a, v: np.linalg.pinv(a[:3]) @ np.linalg.matrix_power(a, 3)[:3],
    "fft": lambda a, v: np.abs(np.fft.fft(v)) ** 2,
    "rfft": lambda a, v: np.fft.irfft(np.fft.rfft(a, axis=0), axis=0),
    "fft2": lambda a, v: np.fft.fftshift(np.fft.fft2(a).real),
    "lexsort": lambda a, v: np.lexsort((v, a[0])),
    "partition": lambda a, v: np.partition(v * 2, 2),
    "block": lambda a, v: np.block([[a, a], [a, a * 2]]),
    "histogram": lambda a, v: np.histogram(a * 2, 5),
    "density": lambda a, v: np.histogram(a, 5, (-1, 1), density=True)[0] + V[0],
    "weights": lambda a, v: np.cov(a, aweights=np.abs(v)),
    "gradient": lambda a, v: np.gradient(v, edge_order=2),
    "nanmedian": lambda a, v: np.nanmedian(a, axis=0) + v,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_run_in_numpy_between_kernels(name: str) -> None:
    for a in (A, np.asfortranarray(A)):
        assert events(as_numpy(FUNCTIONS[name], a, V)) == 0


def test_compiled_programs_call_numpy() -> None:
    assert events(as_numpy(FUNCTIONS["solve"], A, V, backend="c")) == 0
    plan = accelerate(FUNCTIONS["solve"]).lower(A, V).plan
    assert any("numpy_call" in group.name for group in plan.groups)


@pytest.mark.parametrize(
    "function",
    [np.linalg.inv, np.linalg.cholesky, lambda a: np.linalg.solve(a, a) + 1],
    ids=["inv", "cholesky", "solve"],
)
def test_errors_of_theirs_are_numpys(function: Callable[[Any], Any]) -> None:
    as_numpy(function, -np.ones((3, 3)) * 0)
    as_numpy(function, np.array([[np.nan, 1.0], [1.0, 1.0]]))
