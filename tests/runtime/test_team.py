"""Teams of threads: a kernel's step goes on with what was faster, a team or one thread, and looks again."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.config import config
from fuser.runtime import toolchain
from fuser.runtime.core import native
from fuser.runtime.executable import Allocation, CFunction, Executable, KernelStep

pytestmark = pytest.mark.skipif(native is None, reason="only the native core times teams")

# Takes as many microseconds as the second or the third number says, and writes how many threads it may use.
TEXT = """
#include <stdint.h>
#include <time.h>
{threads}
static int64_t now(void) {{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}}
void work(void **buffers, const int64_t *sizes) {{
  const int threads = fuser_threads;
  const int64_t end = now() + 1000 * (int64_t)((const float *)buffers[0])[threads > 1];
  while (now() < end) continue;
  *(float *)buffers[1] = threads;
}}
"""


@pytest.fixture
def run():
    before = config.threads
    library = toolchain.load_shared(toolchain.compile_shared(TEXT.format(threads=toolchain.THREADS)).path)
    config.update("threads", 3)
    step = KernelStep("work", CFunction(library.work, (), library), (0,), (Allocation(1, (1,), np.dtype(np.float32)),))
    executable = Executable([0], {}, [step], [1])

    def run(times: tuple[float, float], calls: int) -> list[int]:
        """How many threads the kernel might use in so many calls; it takes so many microseconds with one thread, and with several."""
        x = np.array(times, np.float32)
        return [int(executable.native.call(x)[0][0]) for _ in range(calls)]

    yield run
    config.update("threads", before)


def test_a_team_that_is_slower_gives_way_to_one_thread(run):
    assert run((500, 4000), 4) == [3] * 4
    assert run((500, 4000), 60)[-40:] == [1] * 40


def test_a_team_that_is_faster_stays_and_is_looked_at_ever_more_rarely(run):
    used = run((4000, 500), 1000)
    assert set(used) == {1, 3}
    alone = [n for n, threads in enumerate(used) if threads == 1]
    assert len(alone) < 40 and len([n for n in alone if n > 500]) < len([n for n in alone if n <= 500])


def test_the_way_changes_with_the_machine(run):
    assert run((500, 4000), 60)[-1] == 1
    assert run((4000, 500), 200)[-1] == 3


def test_long_calls_are_not_compared(run):
    assert run((50_000, 30_000), 6) == [3] * 6
