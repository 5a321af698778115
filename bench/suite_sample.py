"""A pytest plugin for `bench.library_suites`: fuser as `jax` where SUITE_SYSTEM says so, a sample of each file, a limit of seconds.

SUITE_RESULTS gets a line of JSON as a test begins and one as it ends, so that a process that ends early says where.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

if os.environ["SUITE_SYSTEM"] == "fuser":
    from fuser.compat import install_as_jax

    install_as_jax()

import pytest

SAMPLE = int(os.environ["SUITE_SAMPLE"])
SECONDS = int(os.environ["SUITE_SECONDS"])
SEED = os.environ["SUITE_SEED"]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keeps the tests of SUITE_WANTED, or `SAMPLE` tests of each file: cases of different functions first."""
    with open(os.environ["SUITE_WANTED"]) as file:
        wanted = json.load(file)
    if wanted is None:
        files: dict[str, list[Any]] = {}
        for item in items:
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        wanted = [name for found in files.values() for name in _sample(found)]
    kept = set(wanted)
    items[:] = [item for item in items if item.nodeid in kept]


def _sample(items: list[Any]) -> list[str]:
    cases: dict[str, list[str]] = {}
    for item in items:
        function = (getattr(item, "originalname", None) or item.name).rstrip("0123456789")
        cases.setdefault(function, []).append(item.nodeid)
    turns = [
        (turn, _rank(name), name) for found in cases.values() for turn, name in enumerate(sorted(found, key=_rank))
    ]
    return [name for _, _, name in sorted(turns)[:SAMPLE]]


def _rank(name: str) -> str:
    return hashlib.sha256((SEED + name).encode()).hexdigest()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"over the limit of {SECONDS} s")

    _write(test=item.nodeid, outcome="begun", seconds=0.0, error="")
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        error = str(report.longrepr)[-4000:] if report.outcome == "failed" else ""
        _write(test=report.nodeid, outcome=report.outcome, seconds=report.duration, error=error)


def _write(**row: Any) -> None:
    with open(os.environ["SUITE_RESULTS"], "a") as file:
        file.write(json.dumps(row) + "\n")
