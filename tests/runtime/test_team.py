"""The process's team of threads: every share of a region is run once, by whoever is there."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fuser.config import config
from fuser.runtime import toolchain

TEXT = (
    toolchain.THREADS
    + """
#include <omp.h>
#include <stdint.h>
#include <unistd.h>
// How often each share runs, and each iteration; shares sleep so that several threads take some.
void shares(int32_t *times, int threads, int microseconds) {
#pragma omp parallel num_threads(threads)
  {
    if (microseconds) usleep(microseconds);
    __atomic_fetch_add(&times[omp_get_thread_num()], 1, __ATOMIC_RELAXED);
  }
}
void split(int32_t *times, int64_t count, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) ++times[i];
}
void handed_out(int32_t *times, int64_t count, int threads) {
#pragma omp parallel for schedule(dynamic, 3) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) ++times[i];
}
void backwards(int32_t *times, int64_t count, int threads) {
#pragma omp parallel for schedule(dynamic, 5) num_threads(threads)
  for (int64_t i = count - 1; i > -1; i -= 2) ++times[i];
}
void many_loops(int32_t *times, int64_t count, int threads) {
#pragma omp parallel num_threads(threads)
  for (int loop = 0; loop < 20; ++loop) {
#pragma omp for schedule(dynamic, 2) nowait
    for (int64_t i = 0; i < count; ++i) __atomic_fetch_add(&times[i], 1, __ATOMIC_RELAXED);
  }
}
void alone(int32_t *times, int64_t count) {  // a loop whose iterations are handed out, outside of all regions
#pragma omp for schedule(dynamic, 2) nowait
  for (int64_t i = 0; i < count; ++i) ++times[i];
}
int inner_size(int threads) {
  int most = 0, inside = 0;
#pragma omp parallel num_threads(threads) reduction(max : most) reduction(+ : inside)
  {
#pragma omp parallel num_threads(threads) reduction(max : most)
    most = omp_get_num_threads();
    inside = omp_in_parallel() ? 1 : 0;
  }
  return most * 100 + inside;
}
int region_size(void) {
  int size = 0;
#pragma omp parallel num_threads(fuser_threads)
#pragma omp atomic write
  size = omp_get_num_threads();
  return size;
}
"""
)


@pytest.fixture(scope="module")
def path():
    return toolchain.compile_shared(TEXT).path


@pytest.fixture(scope="module", params=["team", "none"])
def library(path, request, tmp_path_factory):
    """The library with the process's team, and as a program of another's would load it."""
    if request.param == "team":
        before = config.threads
        config.update("threads", 5)
        yield toolchain.load_shared(path)
        config.update("threads", before)
    else:
        yield ctypes.CDLL(shutil.copy(path, tmp_path_factory.mktemp("copy")))  # a library is loaded once


def times(function, count: int, *arguments) -> np.ndarray:
    found = np.zeros(count, np.int32)
    function(found.ctypes.data_as(ctypes.c_void_p), *arguments)
    return found


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_every_iteration_runs_once(library, count, threads) -> None:
    for function in (library.split, library.handed_out):
        np.testing.assert_array_equal(times(function, count, ctypes.c_int64(count), threads), np.ones(count))
    expected = np.zeros(count)
    expected[::-1][::2] = 1
    np.testing.assert_array_equal(times(library.backwards, count, ctypes.c_int64(count), threads), expected)
    np.testing.assert_array_equal(times(library.many_loops, count, ctypes.c_int64(count), threads), np.full(count, 20))
    np.testing.assert_array_equal(times(library.alone, count, ctypes.c_int64(count)), np.ones(count))


@pytest.mark.parametrize("microseconds", [0, 200])
def test_shares_of_many_callers(path, microseconds) -> None:
    """More callers than there is room for regions: those that find none run theirs alone."""
    library = toolchain.load_shared(path)
    before = config.threads
    config.update("threads", 4)
    start = threading.Barrier(24)

    def call(_: int) -> np.ndarray:
        start.wait()
        return sum(times(library.shares, 4, 4, microseconds) for _ in range(20))

    try:
        with ThreadPoolExecutor(24) as pool:
            found = list(pool.map(call, range(24)))
    finally:
        config.update("threads", before)
    for one in found:  # a region alone has one share
        assert (one[0] == 20) and (one[1:] <= 20).all() and len(set(one[1:])) == 1


def test_a_region_in_a_region_is_one_share(path) -> None:
    library = toolchain.load_shared(path)
    before = config.threads
    config.update("threads", 3)
    try:
        assert library.inner_size(3) == 100 + 3
        assert library.region_size() == 3
        with toolchain.without_team():
            assert library.region_size() == 1
        assert library.region_size() == 3
    finally:
        config.update("threads", before)


def test_numbers_of_shares_stay_below_those_asked_for(path) -> None:
    """More threads than one word of the mask has bits."""
    library = toolchain.load_shared(path)
    before = config.threads
    config.update("threads", 150)
    try:
        for size in (63, 64, 65, 128, 150):
            np.testing.assert_array_equal(times(library.shares, 160, size, 50), np.arange(160) < size)
    finally:
        config.update("threads", before)


def test_no_other_openmp_takes_part(path) -> None:
    """The entry points are the library's own, so that another OpenMP in the process (PyTorch's) is never called."""
    if "clang" in toolchain.compiler_version(toolchain.find_compiler()) or not shutil.which("nm"):
        pytest.skip("needs gcc and nm")
    wanted = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
    assert "GOMP" not in wanted and "omp_" not in wanted


def test_without_a_core_or_a_compiler_there_is_no_team_to_leave(monkeypatch) -> None:
    """The reference backend runs members of a group too."""
    toolchain._team.cache_clear()
    monkeypatch.setattr(toolchain, "native", None)
    monkeypatch.setattr(toolchain, "find_compiler", lambda: pytest.fail("asked for a compiler"))
    with toolchain.without_team():
        pass
