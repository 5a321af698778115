"""On real GPUs, two or more: collectives bit by bit as on the CPU's devices, and the programs of the benchmark.

Elsewhere each test is skipped with the reason.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

import fuser
from bench.gpus import MOST_ERROR, over
from bench.sharded_programs import PROGRAMS
from fuser import config
from fuser.backends.triton.device import overlap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parallel"))
import processes_on_gpus

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("gpu"),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two GPUs"),
]


def counts() -> list[int]:
    return [count for count in (2, 4, 8) if count <= torch.cuda.device_count()]


def test_arrays_go_from_gpu_to_gpu() -> None:
    x = np.random.default_rng(0).normal(size=(1 << 20,)).astype(np.float32)
    cards = fuser.devices("cuda")
    here = fuser.device_put(x, cards[0])
    for _ in range(20):  # the memory of one copy is the next one's
        there = fuser.device_put(here + 1, cards[1])
        here = fuser.device_put(there - 1, cards[0])
    assert there.device == cards[1]
    np.testing.assert_allclose(np.asarray(here), x, 0, 1e-5)


@pytest.mark.parametrize("fork_seconds", [overlap.FORK_SECONDS, 0.0])  # on one stream, and on two wherever that can be
def test_what_is_moved_and_summed_has_the_bits_of_the_cpu(monkeypatch: pytest.MonkeyPatch, fork_seconds: float) -> None:
    monkeypatch.setattr(overlap, "FORK_SECONDS", fork_seconds)
    for count in counts():
        found = processes_on_gpus.results(count, "cuda")
        with config.using(num_cpu_devices=count):
            wanted = processes_on_gpus.results(count, "cpu")
        for name, x in found.items():
            if not any(
                part in name for part in ("long", "short floats", "uneven", "max")
            ):  # tanh is the GPU's own there
                assert np.asarray(x).tobytes() == np.asarray(wanted[name]).tobytes(), name


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_the_cpu(name: str) -> None:
    for count in counts():
        function, args = PROGRAMS[name](over(fuser, fuser.devices("cuda")[:count]), count, 4)
        with config.using(num_cpu_devices=count):
            on_host, host_args = PROGRAMS[name](over(fuser, fuser.devices("cpu")[:count]), count, 4)
            wanted = [np.asarray(x) for x in fuser.tree.leaves(on_host(*host_args))]
        for _ in range(4):  # launched, captured, replayed
            got = [np.asarray(x) for x in fuser.tree.leaves(function(*args))]
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_allclose(a, b, MOST_ERROR, MOST_ERROR * max(np.abs(b).max(), 1e-3))
