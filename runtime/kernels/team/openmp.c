// The entry points of OpenMP that gcc's code calls, for one library: they go to the process's team of threads.
//
// A library keeps these to itself, so that no other OpenMP in the process takes their place. A library that was loaded
// without a team works with the calling thread alone. There are no barriers: a share never waits for one that has not begun.
#ifndef __clang__  // whose code calls other ones, of its own OpenMP
#include "team.h"

#include <sched.h>

__attribute__((weak)) const team_calls *fuser_team;  // set when the library is loaded

#pragma GCC visibility push(hidden)
typedef unsigned char truth;

void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags) {
  if (fuser_team) fuser_team->parallel(function, data, threads, 0);
  else function(data);
}

static __thread iterations whole;  // what a thread without a team has yet to run
static truth take_whole(long *first, long *last) {
  *first = whole.start, *last = whole.end;
  whole.start = whole.end;
  return *first != *last;
}

void GOMP_parallel_loop_nonmonotonic_dynamic(void (*function)(void *), void *data, unsigned threads, long start, long end,
                                             long step, long chunk, unsigned flags) {
  const iterations loop = {start, end, step, chunk};
  if (fuser_team) {
    fuser_team->parallel(function, data, threads, &loop);
  } else {
    whole = loop;
    function(data);
  }
}

truth GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *first, long *last) {
  const iterations loop = {start, end, step, chunk};
  if (fuser_team) return (truth)fuser_team->begin_loop(&loop, first, last);
  whole = loop;
  return take_whole(first, last);
}

truth GOMP_loop_nonmonotonic_dynamic_next(long *first, long *last) {
  return fuser_team ? (truth)fuser_team->next(first, last) : take_whole(first, last);
}

void GOMP_loop_end_nowait(void) {}

static char busy;  // what a reduction's results are added up under
void GOMP_atomic_start(void) {
  while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) sched_yield();
}
void GOMP_atomic_end(void) { __atomic_clear(&busy, __ATOMIC_RELEASE); }

int omp_get_thread_num(void) { return fuser_team ? fuser_team->number() : 0; }
int omp_get_num_threads(void) { return fuser_team ? fuser_team->size() : 1; }
int omp_get_max_threads(void) { return fuser_team ? fuser_team->most() : 1; }
int omp_in_parallel(void) { return fuser_team ? fuser_team->inside() : 0; }
int team_awake(long work, long most, int threads) {
  return fuser_team ? fuser_team->awake(work, most, threads) : 1;
}
int team_is_caller(void) { return fuser_team ? fuser_team->is_caller() : 1; }
int team_unclaimed(void) { return fuser_team ? fuser_team->unclaimed() : 0; }
#pragma GCC visibility pop
#endif
