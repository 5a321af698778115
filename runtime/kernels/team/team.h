// What libraries of kernels call of the process's team of threads (pool.c). The entry points of OpenMP are made of these (openmp.c).
#ifndef FUSER_TEAM_H
#define FUSER_TEAM_H

typedef struct {
  long start, end, step, chunk;  // of a loop whose iterations are handed out `chunk` at a time
} iterations;

typedef struct {
  // Run `function(data)` for each of `threads` numbers (0: as many as allowed). Where `loop` is not null, they share it.
  void (*parallel)(void (*function)(void *), void *data, unsigned threads, const iterations *loop);
  int (*begin_loop)(const iterations *loop, long *first, long *last);  // the first iterations of a loop in a region; 0: none are left
  int (*next)(long *first, long *last);                                // more of them
  int (*number)(void), (*size)(void);                                  // of the share that runs here, and how many there are
  int (*most)(void);                                                   // threads that a region may have
  int (*inside)(void);                                                 // whether a region of several shares surrounds this
  int (*is_caller)(void);                                              // whether this thread is none of the team's own
  int (*unclaimed)(void);                                              // whether a share of this region has not begun
  // Shares that are worth it for more than `most` work, which takes one thread Target.alone: one, where the others sleep.
  int (*awake)(long work, long most, int threads);
  void (*set_most)(int threads);                                       // for the whole process
  int (*set_limit)(int threads);                                       // for this thread, 0: none; gives the limit before
  void (*reset)(void);                                                 // in a child of fork()
} team_calls;

extern const team_calls process_team;

#endif
