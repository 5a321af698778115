"""A signature's first calls go by turns to its program and to NumPy; the faster stays, each call has its effects once, explain() says so."""

from __future__ import annotations

import itertools
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate, trial


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No other process takes the processor away."""
    monkeypatch.setattr(trial, "_preemptions", lambda: 0)


def clock(program: float, numpy: float) -> Any:
    """`time` in which turns of the program and of NumPy last so long."""
    now = itertools.accumulate(itertools.chain([0.0], itertools.cycle([program, 0.0, numpy, 0.0])))
    return SimpleNamespace(perf_counter=lambda: next(now))


def steps(x: np.ndarray, seen: list[Any]) -> Any:
    x += 1
    return x.sum()


def decides(x: np.ndarray) -> np.ndarray:
    x[0] += 1
    return x * 2 if str(x.max()) == "inf" else x + 1


@pytest.mark.parametrize(("program", "numpy", "taken"), [(2.0, 1.0, "by NumPy; "), (1.0, 2.0, ""), (1.0, 1.01, "")])
@pytest.mark.parametrize(("function", "how"), [(steps, "compiled whole"), (decides, "in segments")])
def test_the_faster_stays(monkeypatch, program, numpy, taken, function, how):
    monkeypatch.setattr(trial, "time", clock(program, numpy))
    monkeypatch.setattr(trial, "_preemptions", lambda: 0)
    monkeypatch.setattr(sys.modules["fuser.interop.accelerate"], "time", SimpleNamespace(perf_counter=lambda: None))
    accelerated, x, rest = accelerate(function, measure=True), np.zeros(5), ([],) if function is steps else ()
    assert "not been called" in accelerated.explain()
    for turn in range(1, 50):
        found = accelerated(x, *rest)
        np.testing.assert_array_equal(x, np.full(5, turn) if function is steps else [turn, 0, 0, 0, 0])
        np.testing.assert_array_equal(found, x.sum() if function is steps else x + 1)
        assert accelerated.measuring or "being timed" not in accelerated.explain()
    assert not accelerated.measuring
    assert f": {taken}{how}" in accelerated.explain() and "times NumPy's time" in accelerated.explain()
    assert accelerated._outline == ((5, *map(type, rest)) if taken else None)
    np.testing.assert_array_equal(accelerated(x := np.ones(7), *rest), x.sum() if function is steps else x + 1)
    copied = pickle.loads(pickle.dumps(accelerated))
    assert copied.measure and not copied._entries


def test_what_a_call_takes_before_its_program_counts(monkeypatch):
    times = iter([*range(1, 100)])
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    monkeypatch.setattr(trial, "_preemptions", lambda: 0)
    verdicts = []
    one = trial.Trial(lambda: 0, lambda: 0, lambda: 0, verdicts.append)
    while not verdicts:
        one.began = -1.0
        one()
    assert verdicts[0] == 2  # the program's turns take 1 from the start of the call on, and NumPy's 1


def test_a_turn_that_was_lucky_does_not_decide(monkeypatch):
    """Threads of a library that wait for work take the processors away in most turns: the rest are not what a call takes."""
    turns = itertools.cycle([1e-4, 5e-4, 5e-4, 5e-4, 5e-4])
    lengths = itertools.chain.from_iterable((next(turns), 0.0, 2e-4, 0.0) for _ in itertools.count())
    now, verdicts = itertools.accumulate(itertools.chain([0.0], lengths)), []
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    one = trial.Trial(lambda: 0, lambda: 0, lambda: 0, verdicts.append)
    while not verdicts:
        one()
    assert verdicts == [pytest.approx(2.5)]


def test_a_turn_in_which_the_processor_was_taken_away_counts_by_processor_time(monkeypatch):
    now, switches, verdicts = itertools.count(), itertools.count(), []
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: float(next(now))))
    monkeypatch.setattr(trial, "_preemptions", lambda: next(switches))
    worked = itertools.accumulate(itertools.cycle([0.0, 3.0, 0.0, 1.0]))
    monkeypatch.setattr(trial, "thread_time", lambda: next(worked))
    one = trial.Trial(lambda: 0, lambda: 0, lambda: 0, verdicts.append)
    while not verdicts:
        one()
    assert verdicts[0] == 3  # by the clock on the wall both take 1
    monkeypatch.setattr(trial, "thread_time", lambda: 0.0)
    short = trial.Trial(lambda: 0, lambda: 0, lambda: 0, verdicts.append)
    for _ in range(50):
        short()
    assert len(verdicts) == 1  # short turns are timed again


def test_what_is_not_timed():
    forced, reference = accelerate(steps, measure=False), accelerate(steps, measure=True, backend="reference")
    for accelerated in (forced, reference):
        accelerated(np.zeros(3), [])
        assert not accelerated.measuring and accelerated.explain() == "steps(f64[3]): compiled whole"


def test_a_trial_waits_for_traces_and_segments():
    ran, state, verdicts = [], [None], []
    one = trial.Trial(lambda: ran.append("program"), lambda: ran.append("numpy"), lambda: state[0], verdicts.append)
    for _ in range(20):
        one()
    state[0] = 1
    for _ in range(trial.WARM_CALLS):
        one()
    assert set(ran) == {"program"}
    one()
    one()
    assert ran[-2:] == ["program", "numpy"]


def test_slow_functions_are_decided_early(monkeypatch):
    monkeypatch.setattr(trial, "time", clock(0.1, 1.0))
    verdicts: list[float] = []
    one = trial.Trial(lambda: None, lambda: None, lambda: 0, verdicts.append)
    for _ in range(trial.WARM_CALLS + 4):
        one()
    assert len(verdicts) == 1 and verdicts[0] == pytest.approx(0.1)


def test_waiting_for_segments_ends_where_it_takes_long(monkeypatch):
    """A function in thousands of short segments, which are timed themselves, is slower than NumPy for no more than a second."""
    ways = []
    seconds = {"program": 0.1, "numpy": 0.001}
    now = [0.0]

    def run(way):
        ways.append(way)
        now[0] += seconds[way]

    verdicts = []
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(trial, "_preemptions", lambda: 0)
    one = trial.Trial(lambda: run("program"), lambda: run("numpy"), lambda: None, verdicts.append)
    while not verdicts:
        one()
    assert verdicts == [pytest.approx(100)] and ways.count("program") <= trial.WARM_CALLS + 8
