"""Settings of the whole suite: graphs are checked after each pass, JAX, the oracle, runs on the CPU, and compiled kernels
go to a cache of their own, which later runs find again."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("FUSER_CHECK", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # for tests/parallel
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # the oracle compiles much and runs little
if importlib.util.find_spec("jax") and importlib.metadata.version("jaxlib").startswith("0.10."):
    # In half the time without generated fusions, whose ends of ranges `jax_oracle.AS_USERS_RUN_IT` keeps. Later versions and
    # libtpu, which reads the variable later, do not know the flag: a process that sets it ends there.
    flags = os.environ["XLA_FLAGS"]
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_use_fusion_emitters=false"
    importlib.import_module("jax").devices()
    os.environ["XLA_FLAGS"] = flags
os.environ.setdefault("FUSER_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"fuser-tests-{os.getuid()}"))
# For agreement.py and differential.py, comparisons with JAX; last, as folders here are named as modules of others.
sys.path += [str(Path(__file__).parent / "numpy"), str(Path(__file__).parent)]


TESTS = 5  # of each file that a run without arguments takes
GENERATORS: dict[int, tuple[np.random.Generator, Any]] = {}  # of the tests' modules, with their states
FEW = 4  # cases of a test: of fewer, all are in each share


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="slow tests too, and every test and case of each file")
    parser.addoption(
        "--share",
        default="0/1",
        help="K/N: of tests with many cases every Nth one; the shares 0 to N - 1 together are all of them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without arguments: no slow tests, and a few of each file. Whatever is asked for runs whole."""
    option = config.option
    if not (option.markexpr or option.keyword or option.file_or_dir):
        apart = [item for item in items if item.get_closest_marker("ecosystem")]
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if item not in apart]
    if option.all or option.file_or_dir or option.keyword or option.markexpr:
        kept = set(_shared(items, *_share(config)))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
        return
    files: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        files.setdefault(test.partition("::")[0], {}).setdefault(test, []).append(item)
    kept = {item for tests in files.values() for item in _sampled(list(tests.values()))}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _share(config: pytest.Config) -> tuple[int, int]:
    number, _, shares = config.option.share.partition("/")
    return int(number), int(shares)


@pytest.fixture
def share(request: pytest.FixtureRequest) -> tuple[int, int]:
    """The share of many cases that this run takes, and of how many: for tests that go through theirs by themselves."""
    return _share(request.config)


def _shared(items: list[pytest.Item], number: int, shares: int) -> Iterator[pytest.Item]:
    """Of tests with many cases those of one share. Tests begin at different cases, so that no share has the first of all."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        if len(cases) < FEW or cases[0].get_closest_marker("whole"):
            yield from cases
        else:
            every = min(shares, len(cases))  # a share has one case of each test at least
            yield from cases[(number + zlib.crc32(name.encode())) % every :: every]


def _sampled(tests: list[list[pytest.Item]]) -> list[pytest.Item]:
    """Of a file's tests some from its beginning to its end, one case of each; and all cases of those that are marked so."""
    whole = [item for cases in tests if cases[0].get_closest_marker("whole") for item in cases]
    quick = [cases for cases in tests if not any(map(cases[0].get_closest_marker, ("slow", "whole")))]
    count = min(len(quick), TESTS)
    chosen = [quick[n * len(quick) // count] for n in range(count)]
    return whole + [cases[len(cases) // 2] for cases in chosen]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Random numbers do not depend on which tests ran before: every test finds its module's generators as they began."""
    folder = str(Path(__file__).parent)
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(folder):
            for value in list(vars(module).values()):
                if isinstance(value, np.random.Generator):
                    GENERATORS[id(value)] = value, value.bit_generator.state


@pytest.fixture(autouse=True)
def numbers_as_they_began() -> None:
    for generator, state in GENERATORS.values():
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def no_programs_of_other_tests() -> None:
    """A function that several tests jit is compiled in each of them, under what that test has patched."""
    if "fuser.api.program_cache" in sys.modules:
        sys.modules["fuser.api.program_cache"].forget()


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind() -> Iterator[None]:
    """What the oracle has compiled goes with its module: 5 GB at the end of the suite, and seconds for each collection."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # GNU's C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
