"""Several processes with GPUs of their own, by stand-ins: the numbers of one process bit by bit; and what is said of one that fails."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch.distributed")
pytest.importorskip("triton")

import cuda_stand_in
import processes_on_gpus
import ranks

from fuser import config
from fuser.runtime.core import native

PROGRAM = pathlib.Path(processes_on_gpus.__file__)
TIMEOUT = 5.0  # seconds that a process waits for others
pytestmark = [
    pytest.mark.slow,  # they wait for each other
    pytest.mark.skipif(native is None, reason="the native core is not built, or turned off"),
]


@pytest.fixture(autouse=True)
def folder() -> Iterator[None]:
    with cuda_stand_in.meeting_place():
        yield


def start(count: int, gpus: int, *arguments: str, timeout: float = TIMEOUT) -> list[subprocess.Popen[str]]:
    """The processes of a program, each of which sees so many GPUs that no other sees."""
    said = {"GPUS": str(gpus), "FUSER_COLLECTIVE_TIMEOUT": str(timeout)}
    return ranks.start(count, [str(PROGRAM), *arguments], said, gpus=True)


@pytest.mark.parametrize(("count", "gpus"), [(2, 2), (4, 1)])
def test_processes_give_the_bits_of_one(count: int, gpus: int) -> None:
    processes = start(count, gpus, "same_numbers", timeout=300)
    with config.using(num_cpu_devices=count * gpus):
        wanted = processes_on_gpus.digests(processes_on_gpus.results(count * gpus, "cpu"))
    merged: dict[str, dict[str, str]] = {}
    for code, out, err in ranks.finish(processes):
        assert code == 0, err[-3000:]
        for name, parts in json.loads(out.strip().splitlines()[-1]).items():
            merged.setdefault(name, {}).update(parts)
    assert merged == wanted


EXPECTED = {
    "raise": "ValueError: it is a test|process 1 has died or hangs|process 1",
    "disagree": "process 1",
    "die": r"process 1 has died or hangs: nothing was heard of it for 5 s|process 1 has died or ended",
    "hang": r"process 1 has died or hangs: nothing was heard of it for 5 s|process 1 did not come within 5 s",
}


@pytest.mark.parametrize("how", EXPECTED)
def test_others_are_told_of_one_that_fails(how: str) -> None:
    processes = start(2, 1, "failing", how)
    try:
        _, err = processes[0].communicate(timeout=300)
    finally:
        if how == "hang":
            processes[1].kill()
        ranks.finish(processes[1:], 60)
    last = err.strip().splitlines()[-1]
    assert processes[0].returncode == 1 and "DeviceError" in last, err[-2000:]
    assert "psum of f32[] over 'x', 'y' at processes_on_gpus.py" in last
    assert any(words in last for words in EXPECTED[how].split("|")), last


def test_one_machine_shares_its_gpus_out() -> None:
    """Processes that see the same ones get equal shares in their order; what is said stands, and is checked."""
    import torch.distributed as dist

    from fuser.parallel import distributed
    from fuser.runtime import device

    stores: dict[str, Any] = {}
    store = type("Store", (), {"set": staticmethod(stores.__setitem__), "get": staticmethod(stores.__getitem__)})
    assert dist.is_available()
    saved, device.local_gpus = device.local_gpus, lambda: [0, 1, 2, 3]
    try:
        place = json.dumps([[socket.gethostname(), None, True], [0, 1, 2, 3]])
        stores |= {"fuser/gpus/0": place, "fuser/gpus/2": json.dumps([["elsewhere", None, True], [0]])}
        stores["fuser/gpus/3"] = json.dumps([["elsewhere", None, False], [1]])
        assert distributed._gpus(store, 4, 1, None) == ((0, 1), (2, 3), (0,), (1,))
        assert distributed._gpus(store, 4, 1, [3]) == ((0, 1, 2, 3), (3,), (0,), (1,))
        with pytest.raises(
            ValueError, match=r"local_device_ids \[7\] are to be among the GPUs of this process, \[0, 1, 2, 3\]"
        ):
            distributed._gpus(store, 4, 1, 7)
    finally:
        device.local_gpus = saved
