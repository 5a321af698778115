"""Several processes on loopback: the numbers of one process bit by bit; and what the others say of one that fails."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import ranks

import fuser

pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.slow  # they wait for each other

PROGRAMS = pathlib.Path(__file__).with_name("programs_of_processes.py")
TIMEOUT, LONG = 5.0, 60.0  # seconds that a process waits for others


def start(name: str, count: int, devices: int, **variables: str) -> list[subprocess.Popen[str]]:
    """The processes of a program, each with so many devices."""
    said = {"FUSER_NUM_CPU_DEVICES": str(devices), "FUSER_COLLECTIVE_TIMEOUT": str(TIMEOUT), **variables}
    return ranks.start(count, [str(PROGRAMS), name], said)


def said(result: tuple[int, str, str]) -> Any:
    """What a process printed."""
    code, out, err = result
    assert code == 0, err[-3000:]
    return json.loads(out.strip().splitlines()[-1])


@pytest.mark.parametrize(("count", "devices"), [(2, 4), (8, 1)])
def test_processes_give_the_bits_of_one(count: int, devices: int) -> None:
    import programs_of_processes

    processes = start("same_numbers", count, devices, FUSER_COLLECTIVE_TIMEOUT="600")
    wanted = programs_of_processes.digests(programs_of_processes.results())
    merged: dict[str, dict[int, str]] = {}
    for result in ranks.finish(processes):
        for name, parts in said(result).items():
            merged.setdefault(name, {}).update({int(device): text for device, text in parts.items()})
    assert {n: len(p) for n, p in merged.items()} == dict.fromkeys(wanted, 8)
    assert merged == wanted


def faulty(fault: str, count: int = 4) -> list[tuple[int, str, str]]:
    return ranks.finish(start("endless", count, 1, FAULT=fault))


def hit(number: int, timeout: float = TIMEOUT) -> list[tuple[int, str, str]]:
    """A signal to process 1 once all of four have started; each waits so many seconds for others."""
    processes = start("endless", 4, 1, FUSER_COLLECTIVE_TIMEOUT=str(timeout))
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
        time.sleep(0.5)
        processes[1].send_signal(number)
        return ranks.finish([p for n, p in enumerate(processes) if n != 1])
    finally:
        for process in processes:
            process.kill()
            process.wait()


COLLECTIVE = "psum of f32[4,4] over 'x', 'y' at programs_of_processes.py:"


def test_a_process_that_is_killed_is_named() -> None:
    for result in hit(signal.SIGKILL, LONG):
        found = said(result)
        assert COLLECTIVE in found["error"] and "process 1 has died or ended" in found["error"], found
        assert found["seconds"] < LONG  # that nobody waits for


def test_a_process_that_hangs_is_named_in_time() -> None:
    for result in hit(signal.SIGSTOP):
        found = said(result)
        assert f"process 1 did not come within {TIMEOUT:g} s" in found["error"], found
        assert COLLECTIVE in found["error"] and TIMEOUT - 1 < found["seconds"] < TIMEOUT + 5


def test_a_process_that_disagrees_is_named_with_both_collectives() -> None:
    texts = [said(r)["error"] for r in faulty("disagree", 2)]
    assert (
        "process 1 is in psum of f32[16,4] over 'x', 'y'" in texts[0]
        and COLLECTIVE.replace("[4,4]", "[8,4]") in texts[0]
    )
    assert any("every process must run the same programs" in t for t in texts)


def test_an_interrupt_ends_the_process_and_the_others() -> None:
    for result in hit(signal.SIGINT):
        assert "process 1" in said(result)["error"]


def test_the_error_of_one_process_reaches_the_others() -> None:
    results = faulty("raise", 2)
    assert results[1][0] != 0 and "ValueError: no such number" in results[1][2]
    assert "process 1 has died or ended" in said(results[0])["error"]


def test_a_checkpoint_is_restored_on_another_number_of_processes(tmp_path: pathlib.Path) -> None:
    variables = {"FOLDER": str(tmp_path / "step"), "FUSER_BACKEND": "reference", "FUSER_COLLECTIVE_TIMEOUT": "600"}
    wanted = [said(result) for result in ranks.finish(start("saved", 2, 2, **variables))]
    found = [said(result) for result in ranks.finish(start("restored", 4, 1, **variables))]
    found += [said(result) for result in ranks.finish(start("restored", 1, 8, **variables))]
    assert wanted == [wanted[0]] * 2 and found == [wanted[0]] * 5


def test_what_initialize_needs() -> None:
    with pytest.raises(
        ValueError, match=r"needs coordinator_address, num_processes and a process_id below it, got None"
    ):
        fuser.distributed.initialize()
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:1234"):
        fuser.distributed.initialize("127.0.0.1:1234", 2, 2)
    assert not fuser.distributed.is_initialized() and fuser.process_count() == 1


def test_the_example_learns_alike_with_one_process_and_two() -> None:
    script = pathlib.Path(__file__).parents[2] / "examples" / "sharded_transformer.py"
    arguments = [sys.executable, str(script), "--steps", "21", "--batch", "16"]
    runs = [
        subprocess.Popen(
            [*arguments, "--processes", str(count)],
            env={**os.environ, "FUSER_NUM_CPU_DEVICES": str(devices), "FUSER_BACKEND": "reference"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for count, devices in ((1, 4), (2, 2))
    ]
    lines = []
    for code, out, err in ranks.finish(runs):
        assert code == 0, err[-3000:]
        lines.append(out.splitlines())
    assert lines[0][:-1] == lines[1][:-1]
    assert lines[1][-1].startswith("2 processes, 4 devices: loss from ")
    first, last = (float(word) for word in lines[1][-1].split("loss from ")[1].split(" to "))
    assert last < first - 0.2
