"""C code that chooses how many threads share a kernel's work."""

from __future__ import annotations

from fuser.backends.c.function import Symbol

TEAM_FOR = Symbol("team_for")  # of the work, the most that one thread does alone, and the threads there are
HELPERS = """#ifdef FUSER_TEAM
int team_awake(long work, long most, int threads);  // runtime/kernels/team
#else
#define team_awake(work, most, threads) (threads)
#endif
// Shares of so much work, of which up to `most` is done sooner by one thread.
static inline int team_for(long work, long most, int threads) {
  return work <= most ? 1 : team_awake(work, most, threads);
}"""
