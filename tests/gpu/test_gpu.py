"""On a real GPU: every case of the backend, the workloads at real sizes, residency and streams.

Elsewhere each test is skipped with the reason. `python -m pytest -m gpu` runs these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from bench.workloads import WORKLOADS
from fuser import config, jit
from tests.backends import triton_cases
from tests.gpu import every_case

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("gpu"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    with config.using(backend="triton", enable_x64=True):
        yield


def test_every_case() -> None:
    rows = list(every_case.run(8, 900.0, 120.0, every_case.SUITES))
    assert len(rows) > 800
    assert {f"{row['suite']}: {row['case']}": row["error"] for row in rows if row["error"]} == {}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_workloads_are_right_at_real_sizes(name: str) -> None:
    workload = WORKLOADS[name]
    inputs = workload.inputs("medium")
    got = jit(lambda *a: workload.run(fuser, a))(*inputs)
    results = tuple(np.asarray(r) for r in (got if isinstance(got, tuple) else (got,)))
    assert workload.error(results, workload.reference(inputs)) <= workload.tolerance("float32")


def test_long_rows_and_chunks() -> None:
    x = np.random.default_rng(0).standard_normal((3, 200_000)).astype(np.float32)
    got = np.asarray(jit(triton_cases.softmax)(x))
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_all_reciprocals_and_roots_are_rounded_to_nearest() -> None:
    both = jit(lambda x: (1 / x, fnp.sqrt(x)))
    for first in range(-(2**31), 2**31, 1 << 27):
        x = torch.arange(first, first + (1 << 27), dtype=torch.int64, device="cuda").to(torch.int32).view(torch.float32)
        for got, want in zip(both(x), (1 / x, x.double().sqrt().float()), strict=True):
            got = torch.from_dlpack(got)
            assert ((got.view(torch.int32) == want.view(torch.int32)) | (got.isnan() & want.isnan())).all()


def test_results_do_not_change_from_run_to_run() -> None:
    x = torch.randn(1 << 22, device="cuda")
    total = jit(lambda x: fnp.sum(x))
    results = {np.asarray(total(_array(x))).tobytes() for _ in range(20)}
    assert len(results) == 1


def test_arrays_stay_on_the_gpu_between_calls() -> None:
    double = jit(lambda x: x * 2)
    first = double(np.ones(1000, np.float32))
    assert first.device.platform == "cuda"
    second = double(first)
    assert second.device.platform == "cuda"
    assert np.asarray(second).tolist() == [4.0] * 1000


def test_kernels_run_on_the_current_stream() -> None:
    stream = torch.cuda.Stream()
    x = torch.zeros(1 << 24, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(50):
            x += 1
        result = jit(lambda x: x * 2)(_array(x))
    stream.synchronize()
    assert float(result.torch()[0]) == float(result.torch()[-1]) == 100.0


def _array(tensor: Any) -> Any:
    from fuser.runtime.array import from_torch

    return from_torch(tensor)
