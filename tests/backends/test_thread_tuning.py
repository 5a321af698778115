"""Loops that find out whether a team of threads pays: which are tuned, what is decided by a clock that is made up, results."""

from __future__ import annotations

import ctypes
import re

import jax
import numpy as np
import pytest

import fuser
from fuser.backends.c.control_flow.thread_tuning import HELPERS
from fuser.runtime import toolchain

SIMULATION = """
#include <stdint.h>
static int fuser_threads = 2;
static int64_t clock_now;
%s
// Runs steps that take so long alone and with a team, which takes `waking` longer for its first `slow` steps after steps
// alone; gives the number of steps that a team ran. Not `fresh`, it goes on where it was.
int64_t simulate(int64_t steps, int64_t alone, int64_t team, int threads, int64_t waking, int slow, int fresh) {
  static tuner state;
  if (fresh) state = (tuner){0};
  const int most = team_most;
  int64_t teams = 0, together = 0;
  fuser_threads = threads;
  for (int64_t step = 0; step < steps; ++step) {
    tuner_begin(&state, most);
    teams += team_size() > 1;
    together = team_size() > 1 ? together + 1 : 0;
    clock_now += team_size() > 1 ? team + (together <= slow ? waking : 0) : alone;
    tuner_end(&state);
  }
  team_most = most;
  return teams;
}
"""


@pytest.fixture(scope="module")
def simulate():
    """The tuner with a clock that only the steps move."""
    stopped = re.sub(r"  struct timespec now;.*?return [^\n]*\n", "  return clock_now;\n", HELPERS, flags=re.DOTALL)
    assert "clock_gettime" not in stopped
    library = toolchain.load_shared(toolchain.compile_shared(SIMULATION % stopped).path)
    library.simulate.restype = ctypes.c_int64
    times, count = ctypes.c_int64, ctypes.c_int
    library.simulate.argtypes = [times, times, times, count, times, count, count]
    return lambda steps, alone, team, threads, waking=0, slow=0, fresh=1: library.simulate(
        steps, alone, team, threads, waking, slow, fresh
    )


def test_the_faster_way_is_taken(simulate) -> None:
    """And another one within as many steps as have passed so far, where the machine changes."""
    assert simulate(10_000, 1000, 600, 2) > 9_500  # a team pays
    assert (
        simulate(40_000, 1000, 400_000, 2, fresh=0) < 9_000
    )  # another process has its processor: found out at the next trial
    assert simulate(10_000, 1000, 400_000, 2, fresh=0) < 100
    assert simulate(40_000, 1000, 600, 2, fresh=0) > 30_000
    assert simulate(1000, 1000, 600, 1) == 0


def test_a_team_that_wakes_slowly(simulate) -> None:
    """It is given time to, where it pays from then on; and costs little where it does not."""
    assert simulate(20_000, 6000, 3000, 2, 80_000, 4) > 12_000
    assert simulate(40_000, 6000, 7000, 2, 80_000, 4) < 2_000


def field(number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((300, 320)).astype(np.float32)


def waves(lax, x, y):
    def step(state, _):
        x, y = state
        x = x.at[1:, :].add(-0.5 * (y[1:, :] - y[:-1, :]))
        return (x, y.at[:-1, :].add(-0.5 * (x[1:, :] - x[:-1, :]))), x[3, 4]

    return lax.scan(step, (x, y), None, length=15)


def nested(lax, x, y):
    step = lambda _, s: (s[1] * 0.5, waves(lax, *s)[0][0])
    return lax.fori_loop(0, 3, step, (x, y))


def is_tuned(function, *arguments) -> bool:
    return any("tuner_begin" in s.text for s in fuser.jit(function).lower(*arguments).sources)


def test_what_is_tuned() -> None:
    assert is_tuned(lambda x, y: waves(fuser.lax, x, y), field(0), field(1))
    assert is_tuned(lambda x, y: nested(fuser.lax, x, y), field(0), field(1))
    assert not is_tuned(lambda x, y: waves(fuser.lax, x, y), field(0)[:40, :50], field(1)[:40, :50])  # no team at all
    assert not is_tuned(lambda x: x + 1, field(0))


@pytest.mark.parametrize("function", [waves, nested])
def test_every_call_gives_the_same(function) -> None:
    """Over many calls, in which trials come and go."""
    x, y = field(0), field(1)
    run = fuser.jit(lambda x, y: function(fuser.lax, x, y))
    first = fuser.tree.leaves(run(x, y))
    for ours, theirs in zip(first, jax.tree.leaves(jax.jit(lambda x, y: function(jax.lax, x, y))(x, y)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    for _ in range(30):
        for a, b in zip(fuser.tree.leaves(run(x, y)), first, strict=True):
            np.testing.assert_array_equal(a, b)
