// The process's team of threads: the shares of a parallel region are taken by whoever is there.
//
// A region has as many shares as it asks for threads, and the thread that begins it runs the first one. Threads of the team
// that are awake take the others; what nobody has taken by then the calling thread runs too. So a region on a busy machine,
// where a thread that is woken waits for a time slice, takes as long as the work alone at worst. A share must not wait for
// another one to begin: there are no barriers. Any number of threads may begin regions at once; one inside of a region is
// run by the thread that is there.
//
// Shares are bits of a mask, set once they are taken. There may be more of them than threads, so that one that comes late finds
// some left. Each thread begins with the part of them that is its own by its number, whose data its cache has from the region before.
#define _GNU_SOURCE
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define REGIONS 16    // at the same time; a thread that finds no room runs its region alone
#define WORDS 4       // of a mask
#define LOOPS 8       // in a region whose iterations are handed out; those of later ones are cut evenly
#define IDLE 10000    // nanoseconds that a thread of the team looks for a next region before it sleeps
#define ALONE 15000   // that the most work takes which is one thread's (Target.alone)
#define SPLIT 4       // shares for each thread, at most
#define WAKING 4      // times that much work, for which sleeping threads are woken
#define JOINING 50000 // that a caller looks for the end of shares which others run

#if defined(__x86_64__) || defined(__i386__)
#define pause_briefly() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define pause_briefly() __asm__ volatile("yield")
#else
#define pause_briefly() ((void)0)
#endif
#define load(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)

typedef struct {
  uint64_t taken[WORDS];  // shares that have begun, and numbers beyond them
  void (*function)(void *);
  void *data;
  const iterations *loop;
  int size, threads;  // shares, and how many threads are expected
  int processor;      // where the caller was as it began
  long handed[LOOPS];  // iterations of each loop
  uint32_t ended;      // shares that threads of the team have run
  int waiting;         // whether the caller sleeps
} __attribute__((aligned(128))) region;

typedef struct {
  region *in;  // null: the only share
  int number, size, loops;
  iterations loop;  // the one being run
  long *handed;     // null: all of its iterations are this share's
} share;

static region regions[REGIONS];
static uint32_t used, published;  // bits of regions: that a caller has; whose shares can be taken
static uint32_t epoch;            // raised whenever one is published
static int sleepers, workers, most_threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static __thread share here = {0, 0, 1, 0, {0}, 0};
static __thread int around, is_worker, limit;  // `around`: regions of several shares

static int here_processor(void) {
#ifdef __linux__
  return sched_getcpu();
#else
  return -1;
#endif
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

// Sleep while `*at` is `value`, or wake up for no reason; wake some of those that sleep so.
#ifdef __linux__
static void sleep_while(uint32_t *at, uint32_t value) { syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, 0, 0, 0); }
static void wake(uint32_t *at, int count) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, count, 0, 0, 0); }
#else
static pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void sleep_while(uint32_t *at, uint32_t value) {
  pthread_mutex_lock(&sleeping);
  if (load(at) == value) pthread_cond_wait(&changed, &sleeping);
  pthread_mutex_unlock(&sleeping);
}
static void wake(uint32_t *at, int count) {
  (void)at, (void)count;
  pthread_mutex_lock(&sleeping);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&sleeping);
}
#endif

// Look for a while until `*at` is no longer `value` (or at least `value`, if `least`); whether it is.
static int became(const uint32_t *at, uint32_t value, int least, int64_t most) {
  for (int64_t end = 0;;) {
    for (int turn = 0; turn < 32; ++turn) {
      const uint32_t found = load(at);
      if (least ? found >= value : found != value) return 1;
      pause_briefly();
    }
    const int64_t now = nanoseconds();
    if (!end) end = now + most;
    if (now > end) return 0;
  }
}

// Take a share that nobody has, the first one from `from` on, around the end; -1: there is none.
static int take(region *r, int from) {
  for (int turn = 0; turn <= WORDS; ++turn) {
    const int word = (from / 64 + turn) % WORDS;
    const uint64_t ahead = turn == 0 ? ~0ull << from % 64 : ~0ull;
    for (uint64_t left; (left = ~load(&r->taken[word]) & ahead);) {
      const uint64_t bit = left & -left;
      if (!(__atomic_fetch_or(&r->taken[word], bit, __ATOMIC_ACQ_REL) & bit)) return word * 64 + __builtin_ctzll(bit);
    }
  }
  return -1;
}

static void run(region *r, int number) {
  here = (share){r, number, r->size, 0, {0}, 0};
  if (r->loop) here.loop = *r->loop, here.handed = &r->handed[here.loops++];
  r->function(r->data);
}

// Leave the processor to the caller, where the system woke this thread on its: it would take turns with it there.
static void make_way(int processor) {
  (void)processor;
#ifdef __linux__
  cpu_set_t allowed, others;
  if (here_processor() != processor || sched_getaffinity(0, sizeof allowed, &allowed)) return;
  others = allowed;
  CPU_CLR(processor, &others);
  if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
#endif
}

static void *serve(void *argument) {
  const int number = (int)(intptr_t)argument;
  is_worker = around = 1;
  for (;;) {
    const uint32_t seen = load(&epoch);
    int ran = 0;
    for (uint32_t open = load(&published); open; open &= open - 1) {
      region *const r = &regions[__builtin_ctz(open)];
      const int threads = __atomic_load_n(&r->threads, __ATOMIC_RELAXED), size = __atomic_load_n(&r->size, __ATOMIC_RELAXED);
      int taken = threads > 0 ? number % threads * size / threads % (WORDS * 64) : 0;
      for (; (taken = take(r, taken)) >= 0; ran = 1) {
        make_way(r->processor);
        run(r, taken);
        __atomic_add_fetch(&r->ended, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&r->waiting, __ATOMIC_SEQ_CST)) wake(&r->ended, 1);
      }
    }
    if (ran || became(&epoch, seen, 0, IDLE)) continue;
    __atomic_add_fetch(&sleepers, 1, __ATOMIC_SEQ_CST);
    while (load(&epoch) == seen) sleep_while(&epoch, seen);
    __atomic_sub_fetch(&sleepers, 1, __ATOMIC_SEQ_CST);
  }
  return 0;
}

// To be called in a child of fork(), which has the calling thread alone.
__attribute__((constructor)) static void reset(void) {
  pthread_mutex_init(&lock, 0);
  for (int n = 0; n < REGIONS; ++n) memset(regions[n].taken, 0xff, sizeof regions[n].taken);
  used = published = 0;
  sleepers = workers = around = 0;
  here = (share){0, 0, 1, 0, {0}, 0};
}

// Have so many threads, or as many as the system gives.
static void hire(int wanted) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_mutex_lock(&lock);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's
  for (pthread_t thread; workers < wanted; ++workers) {
    if (pthread_create(&thread, 0, serve, (void *)(intptr_t)(workers + 1))) break;
    pthread_detach(thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, 0);
  pthread_mutex_unlock(&lock);
}

static int most(void) {
  if (limit) return limit;
  if (!most_threads) most_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
  return most_threads;
}

static region *reserve(void) {
  for (uint32_t known = load(&used); ~known & ((1u << REGIONS) - 1);) {
    const uint32_t bit = ~known & (known + 1);
    if (__atomic_compare_exchange_n(&used, &known, known | bit, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return &regions[__builtin_ctz(bit)];
  }
  return 0;
}

static void publish(region *r) {
  for (int word = 0; word < WORDS; ++word) {
    const int left = r->size - word * 64;
    const uint64_t beyond = left >= 64 ? 0 : left <= 0 ? ~0ull : ~0ull << left;
    __atomic_store_n(&r->taken[word], beyond | (word == 0), __ATOMIC_RELEASE);
  }
  __atomic_fetch_or(&published, 1u << (r - regions), __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&epoch, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST)) wake(&epoch, r->threads - 1);
}

// Wait for `shares` that others run, and give the region back.
static void join(region *r, uint32_t shares) {
  if (!became(&r->ended, shares, 1, JOINING)) {
    __atomic_store_n(&r->waiting, 1, __ATOMIC_SEQ_CST);
    for (uint32_t ended; (ended = __atomic_load_n(&r->ended, __ATOMIC_SEQ_CST)) < shares;) sleep_while(&r->ended, ended);
    __atomic_store_n(&r->waiting, 0, __ATOMIC_SEQ_CST);
  }
  const uint32_t bit = 1u << (r - regions);
  __atomic_fetch_and(&published, ~bit, __ATOMIC_RELEASE);
  __atomic_fetch_and(&used, ~bit, __ATOMIC_RELEASE);
}

static void parallel(void (*function)(void *), void *data, unsigned threads, const iterations *loop) {
  const int allowed = around ? 1 : most();
  int size = allowed == 1 ? 1 : threads ? (int)threads : allowed;
  size = size < WORDS * 64 ? size : WORDS * 64;
  const int expected = size < allowed ? size : allowed;
  if (expected > 1 && workers < expected - 1) hire(expected - 1);
  region *const r = size > 1 && workers ? reserve() : 0;
  const share before = here;
  if (!r) {
    here = (share){0, 0, 1, 0, loop ? *loop : (iterations){0}, 0};
    function(data);
    here = before;
    return;
  }
  r->function = function, r->data = data, r->loop = loop, r->size = size, r->ended = 0;
  r->threads = expected, r->processor = here_processor();
  memset(r->handed, 0, sizeof r->handed);
  publish(r);
  around = 1;
  uint32_t own = 0;
  for (int number = 0; number >= 0; number = take(r, number)) run(r, number), ++own;
  around = 0;
  here = before;
  join(r, (uint32_t)size - own);
}

static long count_of(const iterations *l) {
  const long across = l->step > 0 ? l->step : -l->step, length = l->step > 0 ? l->end - l->start : l->start - l->end;
  return length > 0 ? (length + across - 1) / across : 0;
}

static int next(long *first, long *last) {
  const iterations *const l = &here.loop;
  if (l->step == 0) return 0;
  if (!here.handed) {
    *first = l->start, *last = l->end;
    const int any = l->step > 0 ? l->start < l->end : l->start > l->end;
    here.loop.start = l->end;
    return any;
  }
  const long count = count_of(l);
  const long from = __atomic_fetch_add(here.handed, l->chunk, __ATOMIC_RELAXED);
  if (from >= count) return 0;
  *first = l->start + from * l->step;
  *last = from + l->chunk >= count ? l->end : *first + l->chunk * l->step;
  return 1;
}

static int begin_loop(const iterations *loop, long *first, long *last) {
  here.loop = *loop;
  here.handed = here.in && here.loops < LOOPS ? &here.in->handed[here.loops++] : 0;
  if (here.in && !here.handed) {  // this share's part of it
    const long count = count_of(loop);
    here.loop.start = loop->start + count * here.number / here.size * loop->step;
    here.loop.end = loop->start + count * (here.number + 1) / here.size * loop->step;
  }
  return next(first, last);
}

static int number(void) { return here.number; }
static int size(void) { return here.size; }
static int inside(void) { return around; }
static int is_caller(void) { return !is_worker; }
static int unclaimed(void) {
  uint64_t left = 0;
  for (int word = 0; here.in && word < WORDS; ++word) left |= ~load(&here.in->taken[word]);
  return left != 0;
}
// How many shares work of `work` is worth, of which one thread does `most_alone` sooner by itself: several for each thread, if they are
// as long as that. Threads that sleep take some 25 us to wake on virtual machines, half of that from the caller. They are worth it for much
// work, or where such pieces follow each other closely, so that they find the team awake from then on.
static int awake(long work, long most_alone, int threads) {
  static int64_t before;  // when the last piece began
  const long lengths = work / (most_alone > 0 ? most_alone : 1), finest = threads > 1 ? (long)threads * SPLIT : 1;
  const int shares = (int)(lengths < threads ? threads : lengths < finest ? lengths : finest);
  if (work > most_alone * WAKING || __atomic_load_n(&sleepers, __ATOMIC_RELAXED) == 0) return shares;
  const int64_t now = nanoseconds(), gap = now - __atomic_exchange_n(&before, now, __ATOMIC_RELAXED);
  return gap < IDLE + 2 * ALONE * work / most_alone ? shares : 1;
}
static void set_most(int threads) { most_threads = threads; }
static int set_limit(int threads) {
  const int before = limit;
  limit = threads;
  return before;
}

const team_calls process_team = {parallel, begin_loop, next, number, size, most, inside, is_caller, unclaimed, awake, set_most, set_limit, reset};
