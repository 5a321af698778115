"""Kernels of a GPU's benchmark, compiled where there is no GPU."""

from __future__ import annotations

import pathlib
import pickle

import pytest

from bench import gpu, gpu_ahead, gpu_variants
from fuser import config
from fuser.backends.triton.device import code
from fuser.backends.triton.device.compilation import Job
from tests import cuda_stand_in
from tests.gpu import every_case

pytestmark = pytest.mark.xdist_group("triton")


def test_what_a_run_compiles_is_on_disk_before_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = code._loaded
    monkeypatch.setattr(gpu, "PARTS", {"calls": gpu.PARTS["calls"]})
    monkeypatch.setattr(gpu_variants, "PARTS", {})
    monkeypatch.setattr(every_case, "SUITES", ("eager",))
    jobs = gpu_ahead.record(90)
    assert code._loaded is loaded and len(jobs) == len({job.key for job in jobs}) > 5
    with cuda_stand_in.opened() as device:  # the driver that runs nothing is gone
        assert device.switch.execute.value and device.switch.checking.value
    assert {(job.platform, job.arch) for job in jobs} == {("cuda", 90)}
    file = tmp_path / "kernels.pickle"
    file.write_bytes(pickle.dumps(jobs[:3]))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    with config.using(cache_dir=str(tmp_path / "fuser")):
        assert gpu_ahead.main(["compile", str(file), "--processes", "1"]) == 0
        kept = {path.suffix for path in (tmp_path / "triton").glob("*/*")}
        assert kept == set(gpu_ahead.KEPT)
        assert len(list((tmp_path / "triton").glob("*/*.cubin"))) >= 3
        assert gpu_ahead.compiled(jobs[:3], 1) == 0


def test_variants_are_recorded_under_the_keys_that_a_run_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {name: lambda log, cases=gpu_variants.PARTS[name]: cases(13) for name in ("order", "steps")}
    monkeypatch.setattr(gpu_variants, "PARTS", parts)
    monkeypatch.setattr(gpu, "PARTS", {})
    monkeypatch.setattr(every_case, "SUITES", ())
    recorded = {job.key for job in gpu_ahead.record(90)}
    asked: set[str] = set()

    def noted(source: object, number: int, passing: code.Passing) -> object:
        asked.add(Job(source, number, "cuda", 90, passing.values, passing.loose).key)
        return loaded(source, number, passing)

    loaded = code._loaded
    monkeypatch.setattr(code, "_loaded", noted)
    assert gpu_variants.main(["--dry-run"]) == 0
    assert recorded and recorded == asked
