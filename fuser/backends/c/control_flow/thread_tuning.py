"""Thread tuning: C code of a loop that measures whether several threads pay, a few steps with a team and a few without.

What a second thread is worth inside a loop cannot be derived from sizes: a team costs a microsecond on an idle machine, and
as long as a time slice where another process has the processor. The loop goes on with what was faster, and looks again
after ever more steps. Results do not depend on the number of threads, so they do not depend on this either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fuser.backends.c.function import THREADS, Do, Function, Statement, Symbol, code, expanded, rewritten

HELPERS = (
    """#include <stdint.h>
#include <time.h>
// Threads that kernels of the running loops may use: one number for all files of a library, as a loop's kernels may be in others.
__attribute__((weak, visibility("hidden"))) _Thread_local int team_most = 1 << 20;
static inline __attribute__((unused)) int team_size(void) { return fuser_threads < team_most ? fuser_threads : team_most; }
typedef struct {
  int64_t left, pause, began, spent[2], woken;  // steps to the next trial, and from one to the next; nanoseconds
  int length, turn, timed, together;  // steps of each half of a trial
} tuner;
static int64_t nanoseconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
// A step begins, in which `most` threads are allowed at most. The first half of a trial goes on as before.
static __attribute__((unused)) void tuner_begin(tuner *state, int most) {
  state->timed = 0;
  if (most == 1 || fuser_threads == 1) return;
  if (state->left > 0) {
    --state->left;
    team_most = state->together ? most : 1;
    return;
  }
  if (state->turn == 0) state->length = LEAST + state->pause / SHARE;
  team_most = state->together == (state->turn < state->length) ? most : 1;
  state->timed = 1;
  state->began = nanoseconds_now();
}
// It ends. The first steps of a new team are not counted: threads that sleep have to be woken, and find a processor. A
// trial in which that has cost twice what the steps cost alone is over; later ones are longer and outlast it.
static __attribute__((unused)) void tuner_end(tuner *state) {
  if (!state->timed) return;
  const int64_t spent = nanoseconds_now() - state->began;
  const int waking = state->together ? 0 : state->length / 4 + 1;
  const int team = state->together == (state->turn < state->length);
  const int step = state->turn++ - (state->together ? 0 : state->length);
  if (team && !state->together) state->woken += spent;
  if (!team || step >= waking) state->spent[team] += spent;
  const int lost = state->woken > 2 * state->spent[0];
  if (state->turn < 2 * state->length && !lost) return;
  const int together = !lost && state->spent[1] * state->length <= state->spent[0] * (state->length - waking);
  state->pause = state->pause == 0 || together != state->together ? SOON : state->pause < LATE ? 2 * state->pause : LATE;
  state->together = together;
  state->left = state->pause;
  state->turn = 0;
  state->spent[0] = state->spent[1] = state->woken = 0;
}""".replace("LEAST", "4")
    .replace("SHARE", "32")
    .replace("SOON", "64")
    .replace("LATE", "8192")
)

# Marks in a loop, in whose places these lines stand if a kernel of the loop has a team.
BEGIN, END, DECLARE, RESTORE = (Do(code(f"@tuner {what}")) for what in ("begin", "end", "declare", "restore"))
TEAM_SIZE, TUNER = Symbol("team_size"), Symbol("tuner")  # what files that need `HELPERS` name
_LINES = {
    DECLARE: (code("static _Thread_local {} state;", TUNER), code("const int most = team_most;")),
    BEGIN: (code("tuner_begin(&state, most);"),),
    END: (code("tuner_end(&state);"),),
    RESTORE: (code("team_most = most;"),),
}


def inside(function: Function) -> Function:
    """A kernel's function where a loop calls it: its teams are as large as the loop allows."""
    team = code("{}()", TEAM_SIZE)
    return replace(function, body=rewritten(function.body, lambda part: team if part == THREADS else part))


def tuned(body: Iterable[Statement], teams: bool) -> tuple[Statement, ...]:
    """A loop's statements with the marks replaced, or left out where no kernel of the loop has a team."""

    def lines(statement: Statement) -> list[Statement] | None:
        if statement not in _LINES:
            return None
        return [Do(line) for line in _LINES[statement]] if teams else []  # type: ignore[index]

    return expanded(body, lines)
