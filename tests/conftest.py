"""Settings of the whole suite: graphs are checked after each pass, JAX, the oracle, runs on the CPU, and compiled kernels
go to a cache of their own, which later runs find again."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("FUSER_CHECK", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # for tests/parallel
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # the oracle compiles much and runs little
os.environ.setdefault("FUSER_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"fuser-tests-{os.getuid()}"))
# For agreement.py and differential.py, comparisons with JAX; last, as folders here are named as modules of others.
sys.path += [str(Path(__file__).parent / "numpy"), str(Path(__file__).parent)]


CASES = 3  # of a test with many that a run without arguments takes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="slow tests too, and every case of tests that have many")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without arguments: no slow tests, and a few cases of each test that has many. Whatever is asked for runs whole."""
    option = config.option
    if option.all or option.file_or_dir or option.keyword or option.markexpr:
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for found in cases.values() for item in _spread(found)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _spread(cases: list[pytest.Item]) -> list[pytest.Item]:
    """The first case, the last and some between."""
    if cases[0].get_closest_marker("slow"):
        return []
    if len(cases) <= CASES or cases[0].get_closest_marker("whole"):
        return cases
    return [cases[n * (len(cases) - 1) // (CASES - 1)] for n in range(CASES)]


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind() -> Iterator[None]:
    """What the oracle has compiled goes with its module: 5 GB at the end of the suite, and seconds for each collection."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # GNU's C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
