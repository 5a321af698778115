"""Schedules by measurement against the stand-in: a clock that counts programs decides, and the winner is found again on disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser import config
from fuser.backends.triton import tuning
from fuser.backends.triton.device.compilation import Job, compile_together
from fuser.errors import UnsupportedError
from fuser.kernel.schedule import Schedule
from fuser.runtime.array import Array
from fuser.runtime.cache import default_cache
from fuser.runtime.core import native
from tests import cuda_stand_in
from tests.backends.product_cases import biased, f32, of

pytestmark = [
    pytest.mark.xdist_group("triton"),
    pytest.mark.skipif(native is None, reason="the native core is not built, or turned off"),
]


@pytest.fixture
def device(monkeypatch: Any, tmp_path: Any) -> Iterator[Any]:
    # The stand-in of the cache that all tests share: memory of one library cannot be given back to another one.
    with cuda_stand_in.opened() as opened, config.using(cache_dir=str(tmp_path)):
        monkeypatch.setattr(tuning, "clock", lambda: 1e-6 * opened.programs)
        monkeypatch.setattr(tuning, "compile_together", lambda jobs: 0)
        yield opened


def launches(compiled: Any, *arrays: Any) -> Any:
    (source,) = compiled.lower(*arrays).compile().sources
    return source.launch["launches"]


def put(*shape: int) -> Array:
    return Array(native.device_upload(np.random.default_rng(0).standard_normal(shape).astype(np.float32)))


def test_the_fastest_candidate_is_chosen_and_kept(device: Any, monkeypatch: Any) -> None:
    function, x = lambda x: fnp.tanh(x) * 2, put(1 << 16)
    (planned,) = launches(fuser.jit(function, backend="triton"), x)
    tuned = fuser.jit(function, backend="triton", tune=True)
    (chosen,) = launches(tuned, x)
    assert chosen.grid < planned.grid  # the clock counts programs
    np.testing.assert_allclose(np.asarray(tuned(x)), np.tanh(np.asarray(x)) * 2, 1e-6, 1e-6)

    def no(*_: Any) -> float:
        raise AssertionError("a kept schedule is measured again")

    monkeypatch.setattr(tuning, "measure", no)
    again = fuser.jit(lambda x: fnp.tanh(x) * 2, backend="triton", tune=True)
    assert launches(again, x) == (chosen,)
    with pytest.raises(AssertionError, match="measured again"):
        launches(again, put(1 << 12))


def test_noise_decides_nothing(device: Any, monkeypatch: Any) -> None:
    times = iter([1.0, 0.99, 0.98, 0.975])
    monkeypatch.setattr(tuning, "measure", lambda *_: next(times))
    function, x = lambda x: fnp.exp(x) + 1, put(1 << 16)
    planned = launches(fuser.jit(function, backend="triton"), x)
    assert launches(fuser.jit(function, backend="triton", tune=True), x) == planned


def test_a_damaged_or_foreign_entry_is_no_schedule() -> None:
    assert tuning._schedule({"warps": 8, "tile": [1, 256], "unheard_of": 3}) == Schedule(tile=(1, 256), warps=8)


def test_candidates_of_a_product_are_tiles_and_parts() -> None:
    lowered = fuser.jit(biased, backend="triton").lower(
        of("bfloat16", 16, 2048), of("bfloat16", 2048, 64), of("bfloat16", 64)
    )
    from fuser.backends import triton

    (group,), (source,) = lowered.plan.groups, lowered.sources
    found = dict(tuning.variants(triton.BACKEND, group, source))
    assert {s.split_k for s in found} >= {1, 2, 4} and all(s.tile for s in found)
    parts = {s.split_k: len(made.launch["launches"]) for s, made in found.items()}
    assert parts[1] == 1 and parts[4] == 2


def test_the_setting_asks_for_measurements_too(device: Any, monkeypatch: Any) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(tuning, "tuned", lambda backend, group, source: asked.append(group) or source)
    with config.using(tune=True):
        fuser.jit(lambda x: x + 3, backend="triton").lower(put(8)).compile()
        fuser.jit(lambda x: x + 4, backend="triton", tune=False).lower(put(8)).compile()
    assert len(asked) == 1


def test_kernels_are_compiled_by_several_processes_once(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    with config.using(cache_dir=str(tmp_path / "cache")):
        sources = fuser.jit(lambda x: (x.sum(), fnp.exp(x[::-1])), backend="triton").lower(f32(1 << 20)).sources
        jobs = [Job(s, n, "cuda", 90) for s in sources for n in range(len(s.launch["launches"]))]
        assert len(jobs) >= 2
        assert compile_together(jobs, processes=2) == 2
        assert all(default_cache().get(job.key) for job in jobs)
        assert len(list((tmp_path / "triton").rglob("*.cubin"))) == len(jobs)
        assert compile_together(jobs, processes=2) == 0


def test_a_backend_that_measures_nothing_says_so() -> None:
    with pytest.raises(UnsupportedError, match="the c backend has none to measure"):
        fuser.jit(lambda x: x + 1, backend="c", tune=True)(np.ones(3, np.float32))
    with config.using(tune=True):
        assert fuser.jit(lambda x: x + 1, backend="c")(np.ones(3, np.float32))[0] == 2
