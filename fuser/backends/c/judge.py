"""C by which a loop finds out whether a team of threads pays: now and then it times a few steps with one and without.

What a second thread is worth inside a loop cannot be told from sizes: a team costs a microsecond on an idle machine, and
as long as a time slice where another process has the processor. The loop goes on with what was faster, and looks again
after ever more steps. Results do not depend on the number of threads, so they do not depend on this either.
"""

from __future__ import annotations

import re

HELPERS = (
    """#include <stdint.h>
#include <time.h>
static _Thread_local int team_most = 1 << 20;  // threads that kernels of the running loops may use
static inline __attribute__((unused)) int team_size(void) { return fuser_threads < team_most ? fuser_threads : team_most; }
typedef struct {
  int64_t left, pause, began, spent[2], woken;  // steps to the next trial, and from one to the next; nanoseconds
  int length, turn, timed, together;  // steps of each half of a trial
} judge;
static int64_t nanoseconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
// A step begins, in which `most` threads are allowed at most. The first half of a trial goes on as before.
static __attribute__((unused)) void judge_begin(judge *told, int most) {
  told->timed = 0;
  if (most == 1 || fuser_threads == 1) return;
  if (told->left > 0) {
    --told->left;
    team_most = told->together ? most : 1;
    return;
  }
  if (told->turn == 0) told->length = LEAST + told->pause / SHARE;
  team_most = told->together == (told->turn < told->length) ? most : 1;
  told->timed = 1;
  told->began = nanoseconds_now();
}
// It ends. The first steps of a new team are not counted: threads that sleep have to be woken, and find a processor. A
// trial in which that has cost twice what the steps cost alone is over; later ones are longer and outlast it.
static __attribute__((unused)) void judge_end(judge *told) {
  if (!told->timed) return;
  const int64_t spent = nanoseconds_now() - told->began;
  const int waking = told->together ? 0 : told->length / 4 + 1;
  const int team = told->together == (told->turn < told->length);
  const int step = told->turn++ - (told->together ? 0 : told->length);
  if (team && !told->together) told->woken += spent;
  if (!team || step >= waking) told->spent[team] += spent;
  const int lost = told->woken > 2 * told->spent[0];
  if (told->turn < 2 * told->length && !lost) return;
  const int together = !lost && told->spent[1] * told->length <= told->spent[0] * (told->length - waking);
  told->pause = told->pause == 0 || together != told->together ? SOON : told->pause < LATE ? 2 * told->pause : LATE;
  told->together = together;
  told->left = told->pause;
  told->turn = 0;
  told->spent[0] = told->spent[1] = told->woken = 0;
}""".replace("LEAST", "4")
    .replace("SHARE", "32")
    .replace("SOON", "64")
    .replace("LATE", "8192")
)

BEGIN, END, DECLARE, RESTORE = "@judge begin", "@judge end", "@judge declare", "@judge restore"
_LINES = {
    DECLARE: "static _Thread_local judge told;\n{0}const int most = team_most;",
    BEGIN: "judge_begin(&told, most);",
    END: "judge_end(&told);",
    RESTORE: "team_most = most;",
}


def inside(text: str) -> str:
    """A kernel's text where a loop calls it: its teams are as large as the loop allows."""
    return re.sub(r"\bfuser_threads\b", "team_size()", text)


def judged(lines: list[str], kernels: list[str]) -> list[str]:
    """A loop's lines with the marks replaced, or left out where no kernel of the loop has a team."""
    teams = any("team_size()" in text for text in kernels)
    result = []
    for line in lines:
        mark = line.strip()
        if mark not in _LINES:
            result.append(line)
        elif teams:
            indent = line[: len(line) - len(line.lstrip())]
            result.append(indent + _LINES[mark].format(indent))
    return result
