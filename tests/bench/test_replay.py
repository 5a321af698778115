"""The kernel replay finds a changed kernel, a changed plan and a program that came or went, and nothing else."""

from __future__ import annotations

import itertools
import pathlib

import pytest

import fuser.numpy as fnp
from bench import replay
from fuser import jit
from fuser.ir.types import ArrayType

PROGRAMS = [
    replay.Program("workloads/one", jit(lambda x: fnp.sin(x) + 1).trace(ArrayType((8,), fnp.dtype("float32"))).graph),
    replay.Program("workloads/two", jit(lambda x: fnp.sum(x)).trace(ArrayType((8,), fnp.dtype("float32"))).graph),
]


def records(programs: list[replay.Program]) -> replay.Record:
    return {f"{p.name} {backend}": replay.record(p, backend) for p in programs for backend in replay.BACKENDS}


def compared(before: replay.Record, after: replay.Record, backends: str = "c,triton,tpu") -> list[tuple[str, str, str]]:
    return replay.differences(before, after, ["workloads"], backends.split(","))


def test_the_same_programs_have_the_same_hashes() -> None:
    assert compared(records(PROGRAMS), records(PROGRAMS)) == []


def test_another_number_changes_the_kernels_of_all_backends() -> None:
    other = jit(lambda x: fnp.sin(x) + 2).trace(ArrayType((8,), fnp.dtype("float32"))).graph
    found = compared(records(PROGRAMS), records([replay.Program("workloads/one", other), PROGRAMS[1]]))
    assert {name for name, _, _ in found} == {f"workloads/one {backend}" for backend in replay.BACKENDS}
    assert {what for _, part, what in found if part.startswith("0-")} == {"changed"}


def test_programs_that_come_and_go() -> None:
    found = compared(records(PROGRAMS[:1]), records(PROGRAMS[1:]), "c")
    assert {(name, what) for name, _, what in found} == {("workloads/one c", "gone"), ("workloads/two c", "new")}


def test_groups_that_were_not_chosen_are_not_missed() -> None:
    saved = records(PROGRAMS) | {"samples/sin/0 c": {"plan": "0"}}
    assert compared(saved, records(PROGRAMS)) == []


def test_every_sample_of_the_registry_can_be_replayed_on_every_backend() -> None:
    found = list(itertools.islice(replay.samples(), 0, None, 97))
    assert len(found) > 10
    for program in found:
        for backend in replay.BACKENDS:
            assert replay.record(program, backend)


def test_random_programs_are_drawn_alike_each_time() -> None:
    first, second = (list(itertools.islice(replay.random(), 3)) for _ in range(2))
    assert len(first) == 3 and not differences_of(first, second)


def differences_of(first: list[replay.Program], second: list[replay.Program]) -> list[tuple[str, str, str]]:
    before, after = ({f"{p.name} c": replay.record(p, "c") for p in programs} for programs in (first, second))
    return replay.differences(before, after, ["random"], ["c"])


def test_the_command_saves_and_compares(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay, "programs", lambda groups: iter(PROGRAMS))
    path = tmp_path / "kernels.json"
    assert replay.main(["--save", str(path)]) == 0
    assert replay.main(["--compare", str(path)]) == 0
    monkeypatch.setattr(replay, "programs", lambda groups: iter(PROGRAMS[:1]))
    assert replay.main(["--compare", str(path)]) == 1
    assert "gone" in capsys.readouterr().out
