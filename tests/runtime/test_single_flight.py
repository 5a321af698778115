"""A function that several threads call cold is traced and compiled once; nobody waits for what does not come."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.api import advice
from fuser.errors import PerformanceWarning
from fuser.runtime.single_flight import once

THREADS = 8
HOLDERS = ("fuser.api.compiler", "fuser.interop.outputs", "fuser.interop.stages")  # of the compiler's `load`


def together(*calls: Callable[[], Any], timeout: float = 60) -> list[Any]:
    """What the calls give, made at the same time in a thread each."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(n: int) -> None:
        barrier.wait()
        try:
            results[n] = calls[n]()
        except BaseException as error:
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a thread waits for ever"
    return results


WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "jit": fuser.jit,
    "jit under grad": lambda f: fuser.grad(fuser.jit(f)),
    "jit under vmap": lambda f: fuser.vmap(fuser.jit(f)),
    "accelerate": fuser.accelerate,
}


@pytest.mark.parametrize("way", WAYS)
def test_threads_that_call_a_cold_function_trace_and_compile_it_once(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compiler = sys.modules["fuser.compile"]
    load = compiler.load
    for module in (compiler, *(m for m in map(sys.modules.get, HOLDERS) if m and getattr(m, "load", None) is load)):
        monkeypatch.setattr(module, "load", lambda low, *more: compiled.append(low.graph.name) or load(low, *more))
    traced: list[int] = []

    def function(x: Any) -> Any:
        if way != "accelerate":  # which refuses what the caller would not see
            traced.append(1)
            time.sleep(0.05)
        return (x * x).sum() if way == "jit under grad" else x * 3

    ready = WAYS[way](function)
    x = np.ones(5, np.float32)
    results = together(*[lambda: np.asarray(ready(x))] * THREADS)
    for result in results:
        np.testing.assert_array_equal(result, x * (2 if "grad" in way else 3))
    programs = {"jit under grad": 2}.get(way, 1)
    assert len(traced) == (way != "accelerate")
    assert len(compiled) == programs, compiled


def test_different_functions_compile_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def at(k: int) -> Callable[[], Any]:
        def function(x: Any) -> Any:
            meeting.wait()  # passes only if all three are being traced at once
            return x * k

        ready = fuser.jit(function)
        return lambda: float(ready(2.0))

    assert together(at(2), at(3), at(4)) == [4, 6, 8]


def test_different_signatures_compile_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def function(x: Any) -> Any:
        meeting.wait()
        return x.sum()

    ready = fuser.jit(function)
    assert together(*[lambda n=n: float(ready(np.ones(n))) for n in (2, 3, 4)]) == [2, 3, 4]


def test_every_thread_sees_an_error_of_its_own_and_a_later_call_works() -> None:
    broken = [True]

    def function(x: Any) -> Any:
        time.sleep(0.01)
        if broken:
            raise ValueError("not yet")
        return x + 1

    ready = fuser.jit(function)
    errors = together(*[lambda: ready(1.0)] * 4)
    assert [type(e) for e in errors] == [ValueError] * 4 and len({id(e) for e in errors}) == 4
    broken.clear()
    assert float(ready(1.0)) == 2


def test_an_interrupted_compilation_is_taken_over() -> None:
    first = [True]

    def function(x: Any) -> Any:
        time.sleep(0.1)
        if first:
            first.clear()
            raise KeyboardInterrupt
        return x + 1

    ready = fuser.jit(function)
    results = together(*[lambda: float(ready(1.0))] * 4)
    assert sorted(map(str, results)) == ["", "2.0", "2.0", "2.0"]


def test_a_function_that_needs_itself_while_it_is_traced_does_not_wait() -> None:
    depth: list[int] = []

    def evaluated(x: Any) -> Any:  # a call at trace time that is not of this trace
        depth.append(1)
        if len(depth) < 3:
            once("other", lambda: None, lambda: ready_at(2.0))
        return x + 1

    def ready_at(x: float) -> Any:
        from fuser.trace.core import EVALUATION, using

        with using(EVALUATION):
            return ready(x)

    ready = fuser.jit(evaluated)
    assert together(lambda: float(ready(1.0))) == [2.0]
    assert len(depth) == 3


def test_threads_that_need_each_others_work_do_not_wait_for_ever() -> None:
    meeting = threading.Barrier(2, timeout=30)
    met = threading.local()
    known: dict[str, str] = {}

    def make(own: str, other: str) -> str:
        if not getattr(met, "yes", False):
            met.yes = True
            meeting.wait()
            once(other, lambda: known.get(other), lambda: make(other, own))
        return known.setdefault(own, own)

    assert together(
        lambda: once("a", lambda: known.get("a"), lambda: make("a", "b")),
        lambda: once("b", lambda: known.get("b"), lambda: make("b", "a")),
    ) == ["a", "b"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_during_a_compilation_does_not_wait_for_it() -> None:
    started, go_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def function(x: Any) -> Any:
        if os.getpid() == parent:
            started.set()
            go_on.wait(60)
        return x + 1

    ready = fuser.jit(function)
    thread = threading.Thread(target=lambda: ready(1.0))
    thread.start()
    started.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python, about forks of processes with threads
        child = os.fork()
    if child == 0:
        os._exit(0 if float(ready(1.0)) == 2 else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    go_on.set()
    thread.join()
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert float(ready(1.0)) == 2


def test_one_cold_function_in_many_threads_is_no_reason_for_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "LEAST_SECONDS", 0.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = lambda: lambda x: x - 1
        ready = fuser.jit(made())
        together(*[lambda: ready(1.0)] * THREADS)
        for _ in range(THREADS):
            ready.clear_cache()
            ready(1.0)
        assert [str(w.message) for w in caught if w.category is PerformanceWarning] == []
        for _ in range(THREADS):
            fuser.jit(made())(1.0)  # another function each time: the same one would find its program
    told = [str(w.message) for w in caught if w.category is PerformanceWarning]
    assert len(told) == 1 and "was given to fuser.jit 8 times" in told[0]


def test_control_flow_outside_jit_compiles_once() -> None:
    bodies: list[int] = []

    def body(i: Any, c: Any) -> Any:
        bodies.append(1)
        return fnp.sin(c) + i

    results = together(*[lambda: float(fuser.lax.fori_loop(0, 3, body, 1.0))] * THREADS)
    assert len(set(results)) == 1
