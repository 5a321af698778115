"""C that lets a long loop be interrupted: now and then the calling thread asks Python whether a signal has arrived.

`fuser_poll` is set when a library is loaded (`connect`). It runs the handlers of pending signals and answers nonzero if
one raised; the loops are then left, on the other threads by a flag that all of them see, and whoever called the kernel
finds the exception. A loop counts its steps and looks at a coarse clock every so many, so that it takes no time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Any

from fuser.backends.c.function import Do, Symbol, code
from fuser.runtime import toolchain

LONGEST_PACE = 256  # steps of any length from one look to the next
STEPS = 2048  # of a loop inside a kernel, from one look at the clock to the next
LEAVING = frozenset({"more_steps", "interrupted_at", "from_host"})
START = Do(code("{} = 0;", Symbol("stopped")))  # of a function that is called from outside its file

TEAM = """#ifdef _OPENMP
int omp_get_thread_num(void), omp_get_num_threads(void);
#else
#define omp_get_thread_num() 0
#define omp_get_num_threads() 1
#endif
#ifdef FUSER_TEAM  // shares of a region are run by whoever is there (runtime/kernels/team)
int team_is_caller(void), team_unclaimed(void);
#else
#define team_is_caller() (omp_get_thread_num() == 0)
#define team_unclaimed() 0
#endif
"""
HELPERS = (
    TEAM
    + """#include <stdint.h>
#include <time.h>
#ifndef CLOCK_MONOTONIC_COARSE
#define CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC
#endif
__attribute__((weak)) int (*fuser_poll)(void);
__attribute__((weak, visibility("hidden"))) _Thread_local int stopped;  // one for all files of a library
static _Thread_local int64_t looked_at, polled_at;  // milliseconds
// Whether the loop is to be left; only the thread that called the kernel can tell.
static __attribute__((noinline)) int interrupted(void) {
  struct timespec now;
  if (!team_is_caller()) return 0;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  looked_at = now.tv_sec * 1000 + now.tv_nsec / 1000000;
  if (stopped || looked_at - polled_at < 50) return stopped;
  polled_at = looked_at;
  return stopped = fuser_poll && fuser_poll();
}
// The same for steps of any length: at each of them while they are slow, after ever more of them while they are quick.
static __attribute__((noinline, unused)) int interrupted_at(int64_t *left, int64_t *pace) {
  const int64_t before = looked_at;
  const int answer = interrupted();
  *pace = looked_at - before > 8 ? 1 : *pace < PACE ? *pace * 2 : PACE;
  *left = *pace;
  return answer;
}
// A step of Python's, unless the loops are to be left; so they are where it raises.
static __attribute__((noinline, unused)) void from_host(void **buffers, const int64_t *sizes) {
  if (!stopped) stopped = ((int (*)(void **, const int64_t *))sizes[0])(buffers, sizes + 1);
}
// Steps that a loop inside a kernel may go on for; none once a thread has seen that it is to be left.
static __attribute__((noinline, unused)) int64_t more_steps(volatile int *stop) {
  *stop |= interrupted();
  return *stop ? 0 : STEPS;
}
// At the end of a share's blocks: the calling thread goes on to look, while the others work on theirs.
static __attribute__((noinline, unused)) void attend(volatile int *ended, volatile int *stop) {
  __atomic_fetch_add(ended, 1, __ATOMIC_RELEASE);
  if (!team_is_caller() || team_unclaimed()) return;  // it takes another share
  for (int64_t turn = 0; __atomic_load_n(ended, __ATOMIC_ACQUIRE) < omp_get_num_threads() && !*stop; ++turn) {
    if (turn < 5000) continue;
    nanosleep(&(struct timespec){0, 50000}, 0);
    *stop |= interrupted();
  }
}""".replace("STEPS", str(STEPS)).replace("PACE", str(LONGEST_PACE))
)


def interruptible(used: Collection[str]) -> bool:
    """Whether functions that name these have a loop that can be interrupted, or a step that can raise."""
    return not LEAVING.isdisjoint(used)


def connect(handle: Any, used: Collection[str]) -> None:
    """Give a loaded library whose functions name `used` the function to poll with, if it polls."""
    if interruptible(used):
        connect_library(handle)


def connect_library(handle: Any) -> None:
    """The same for a library that is known to poll."""
    if hasattr(handle, "fuser_poll"):  # an override by hand may do without
        ctypes.c_void_p.in_dll(handle, "fuser_poll").value = toolchain.poll_address()
