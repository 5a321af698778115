// Whether a signal's handler has raised: a long function is left then, and whoever called it finds the exception.
//
// Only the thread that came from Python can ask, and at most every 50 ms; the others of a team see what it was told.
#include <omp.h>
#include <stdint.h>
#include <time.h>

#if defined(FUSER_TEAM) && !defined(__clang__)  // clang brings its own OpenMP along
int team_is_caller(void);  // whether this thread came from Python
#else
static inline int team_is_caller(void) {
  int first = 1;
  for (int level = omp_get_level(); level > 0; --level) first &= omp_get_ancestor_thread_num(level) == 0;
  return first;
}
#endif
__attribute__((weak)) int (*fuser_poll)(void);  // set when the library is loaded

typedef struct {
  volatile int raised;
  int64_t at;  // milliseconds of the last question; 0: of none
} poller;

static poller new_poller(void) { return (poller){0, 0}; }

static __attribute__((noinline)) int interrupted(poller *p) {
  if (p->raised || !fuser_poll || !team_is_caller()) return p->raised;
  struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
  clock_gettime(CLOCK_MONOTONIC, &now);
#endif
  const int64_t time = now.tv_sec * 1000 + now.tv_nsec / 1000000;
  if (p->at == 0) p->at = time;
  if (time - p->at < 50) return 0;
  p->at = time;
  if (fuser_poll()) p->raised = 1;
  return p->raised;
}
