// Scatter: windows of updates written to, or combined with, computed elements of an array. Results do not depend on the number
// of threads: each element takes its updates in their order, on the thread that owns its part of the result, or, where the
// indices turn out to be in order, on the thread that has the first of them; only where there are few elements, each of a
// fixed number of parts of the updates has a result of its own, combined in order.
//
// T is the type of an update as it is computed with, IN the type in memory, IDX that of indices; LOAD and SAVE convert,
// COMBINE(a, u) is what an update does to an element, and NEUTRAL does nothing to it (unless REPLACES); COMBINE_ONE(a, u) is the same
// for a number alone.
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define BLOCK 512
#define MOST 16  // dimensions of a walk
#define LANES (64 / (int64_t)sizeof(T) < 1 ? 1 : 64 / (int64_t)sizeof(T))
#define SHORT 32  // elements of the longest run that has code of its own
#define TOGETHER 4  // parts that a thread takes at the same time
#define PIECES 16  // of updates by indices in order, which threads take as they come

#ifndef COMBINE_ONE
#define COMBINE_ONE COMBINE
#endif

enum { IN_TURN, BY_RANGE, IN_PARTS, DISTINCT };

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

typedef struct {
  int64_t extent, update, offset;  // steps in the updates and in the result
} dimension;

typedef struct {
  int64_t step, high, wrap;  // of the result; the greatest start; what is added to negative starts
} component;

typedef struct {
  const IDX *indices;
  const IN *updates;
  T always;  // the update, where there are no `updates`
  int64_t count, clip, components, walks, windows, elements;
  const component *component;
  const dimension *walk, *window, *run;
} plan;

// For updates base … base + width: where each goes (below 0: nowhere), and where it lies.
INLINE void offsets(const plan *p, int64_t base, int64_t width, int64_t *restrict offset, int64_t *restrict from) {
  if (p->components == 1 && p->walks == 1) {
    const component c = *p->component;
    const dimension w = *p->walk;
    const IDX *const at = p->indices + base;
    #pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      int64_t i = (int64_t)at[j];
      i += i < 0 ? c.wrap : 0;
      const int64_t inside = i < 0 ? 0 : i > c.high ? c.high : i;
      offset[j] = p->clip | (i == inside) ? inside * c.step + (base + j) * w.offset : -1;
      from[j] = (base + j) * w.update;
    }
    return;
  }
  if (p->walks == 1) {
    const dimension w = *p->walk;
    const int64_t count = p->components;
    const IDX *const at = p->indices + base * count;
    #pragma omp simd
    for (int64_t j = 0; j < width; ++j) from[j] = (base + j) * w.update, offset[j] = (base + j) * w.offset;
    int64_t valid[BLOCK];
    for (int64_t j = 0; j < width; ++j) valid[j] = 1;
    for (int64_t n = 0; n < count; ++n) {
      const component c = p->component[n];
      #pragma omp simd
      for (int64_t j = 0; j < width; ++j) {
        int64_t i = (int64_t)at[j * count + n];
        i += i < 0 ? c.wrap : 0;
        const int64_t inside = i < 0 ? 0 : i > c.high ? c.high : i;
        valid[j] &= p->clip | (i == inside);
        offset[j] += inside * c.step;
      }
    }
    #pragma omp simd
    for (int64_t j = 0; j < width; ++j) offset[j] = valid[j] ? offset[j] : -1;
    return;
  }
  for (int64_t j = 0; j < width; ++j) {
    int64_t number = base + j, start = 0, lies = 0, valid = 1;
    for (int64_t c = 0; c < p->components; ++c) {
      const component part = p->component[c];
      int64_t i = (int64_t)p->indices[number * p->components + c];
      i += i < 0 ? part.wrap : 0;
      const int64_t inside = i < 0 ? 0 : i > part.high ? part.high : i;
      valid &= p->clip | (i == inside);
      start += inside * part.step;
    }
    for (int64_t w = p->walks - 1; w >= 0; --w) {
      const dimension d = p->walk[w];
      const int64_t i = number % d.extent;
      number /= d.extent;
      start += i * d.offset;
      lies += i * d.update;
    }
    offset[j] = valid ? start : -1;
    from[j] = lies;
  }
}

INLINE T update_at(const plan *p, int64_t from) {
  return p->updates ? (T)LOAD(p->updates[from]) : p->always;
}

// Combines elements that lie side by side, whole vectors first: runs are often a few vectors long.
INLINE void put_run(T *restrict to, const IN *restrict u, int64_t count) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    #pragma omp simd
    for (int64_t k = 0; k < LANES; ++k) to[i + k] = COMBINE(to[i + k], (T)LOAD(u[i + k]));
  }
#define PART(lanes) \
  if (lanes > 0 && i + lanes <= count) { \
    _Pragma("omp simd") \
    for (int64_t k = 0; k < lanes; ++k) to[i + k] = COMBINE(to[i + k], (T)LOAD(u[i + k])); \
    i += lanes; \
  }
  PART(LANES / 2)
  PART(LANES / 4)
#undef PART
  #pragma omp simd
  for (int64_t k = i; k < count; ++k) to[k] = COMBINE(to[k], (T)LOAD(u[k]));
}

// Combines one window with the array.
INLINE void put(const plan *p, T *out, int64_t offset, int64_t from) {
  const dimension run = *p->run;
  const int dense = run.offset == 1 && run.update == 1 && p->updates;
  if (dense && p->windows == 0) {
    put_run(out + offset, p->updates + from, run.extent);
    return;
  }
  int64_t at[MOST] = {0};
  for (;;) {
    T *const restrict to = out + offset;
    if (dense) {
      put_run(to, p->updates + from, run.extent);
    } else {
      for (int64_t i = 0; i < run.extent; ++i)
        to[i * run.offset] = COMBINE(to[i * run.offset], update_at(p, from + i * run.update));
    }
    int64_t w = p->windows - 1;
    for (; w >= 0; --w) {
      const dimension d = p->window[w];
      offset += d.offset;
      from += d.update;
      if (++at[w] < d.extent) break;
      offset -= d.extent * d.offset;
      from -= d.extent * d.update;
      at[w] = 0;
    }
    if (w < 0) return;
  }
}

// Combines windows that are one short run each with the array, the length of the run known to the compiler; gives whether they were.
INLINE int put_short_runs(const plan *p, T *out, const int64_t *restrict offset, const int64_t *restrict from, int64_t width) {
  const dimension run = *p->run;
  if (p->windows || run.offset != 1 || run.update != 1 || !p->updates) return 0;
  const IN *const updates = p->updates;
#define RUNS(length) \
  case length: \
    for (int64_t j = 0; j < width; ++j) { \
      if (offset[j] < 0) continue; \
      T *const to = out + offset[j]; \
      const IN *const u = updates + from[j]; \
      T sum[length]; \
      _Pragma("omp simd") \
      for (int k = 0; k < length; ++k) sum[k] = COMBINE(to[k], (T)LOAD(u[k])); \
      for (int k = 0; k < length; ++k) to[k] = sum[k]; \
    } \
    return 1;
  switch (run.extent) {
    RUNS(2) RUNS(3) RUNS(4) RUNS(5) RUNS(6) RUNS(7) RUNS(8) RUNS(16)
    default: return 0;
  }
#undef RUNS
}

// Whether updates are single elements at one index each, which need no arrays of offsets.
static int elementary(const plan *p) {
  return p->windows == 0 && p->run->extent == 1 && p->components == 1 && p->walks == 1 && p->component->high >= 0;
}

// Combines one such update with the array. In a `plain` one, indices count elements, and updates lie side by side.
INLINE void put_element(const plan *p, const component c, const dimension w, T *out, int64_t j, int plain, int valued) {
  int64_t i = (int64_t)p->indices[j];
  i += i < 0 ? c.wrap : 0;
  if (!plain && p->clip) i = i < 0 ? 0 : i > c.high ? c.high : i;
  if (__builtin_expect((uint64_t)i > (uint64_t)c.high, 0)) return;
  T *const to = out + (plain ? i : i * c.step + j * w.offset);
  *to = COMBINE_ONE(*to, valued ? (T)LOAD(p->updates[plain ? j : j * w.update]) : p->always);
}

// Updates begin[k] + j for j up to `count` into out[k * n]: one of each k in turn, since an update of an array waits for
// the last one.
INLINE void put_elements(const plan *given, T *out, const int64_t *begin, int64_t count, int64_t together, int plain, int valued) {
  const plan p = *given;  // which no store changes
  const component c = *p.component;
  const dimension w = *p.walk;
  for (int64_t j = 0; j < count; ++j) {
    #pragma GCC unroll 4
    for (int64_t k = 0; k < together; ++k) put_element(&p, c, w, out + k * p.elements, begin[k] + j, plain, valued);
  }
}

INLINE void combine_elements(const plan *p, T *out, const int64_t *begin, int64_t count, int64_t together) {
  const int plain = p->component->step == 1 && p->walk->offset == 0 && !p->clip;
  if (plain && p->updates && p->walk->update == 1) put_elements(p, out, begin, count, together, 1, 1);
  else if (plain && !p->updates) put_elements(p, out, begin, count, together, 1, 0);
  else if (p->updates) put_elements(p, out, begin, count, together, 0, 1);
  else put_elements(p, out, begin, count, together, 0, 0);
}

// Whether updates are dense runs at one index each, which need no arrays of offsets either.
static int in_rows(const plan *p) {
  const int dense = p->run->offset == 1 && p->run->update == 1 && p->updates;
  return dense && p->windows == 0 && p->components == 1 && p->walks == 1 && p->component->high >= 0;
}

// Combines such updates with the array. `packed` ones, and the rows that they go to, lie side by side, and their `length` is known to
// the compiler.
INLINE void put_rows(const plan *given, T *out, int64_t first, int64_t last, const int64_t length, const int packed) {
  const plan p = *given;  // which no store changes
  const component c = *p.component;
  const dimension w = *p.walk;
  for (int64_t j = first; j < last; ++j) {
    int64_t i = (int64_t)p.indices[j];
    i += i < 0 ? c.wrap : 0;
    if (!packed && p.clip) i = i < 0 ? 0 : i > c.high ? c.high : i;
    if (__builtin_expect((uint64_t)i > (uint64_t)c.high, 0)) continue;
    T *const to = out + (packed ? i * length : i * c.step + j * w.offset);
    const IN *const u = p.updates + j * (packed ? length : w.update);
    if (!packed) {
      put_run(to, u, length);
      continue;
    }
    T sum[SHORT];
    #pragma omp simd
    for (int k = 0; k < length; ++k) sum[k] = COMBINE(to[k], (T)LOAD(u[k]));
    for (int k = 0; k < length; ++k) to[k] = sum[k];
  }
}

static void combine_rows(const plan *p, T *out, int64_t first, int64_t last) {
  const int64_t length = p->run->extent;
  const int packed = !p->clip && p->component->step == length && p->walk->update == length && p->walk->offset == 0;
#define ROWS(length) case length: put_rows(p, out, first, last, length, 1); return;
  switch (packed ? length : 0) {
    ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14) ROWS(15) ROWS(16)
    ROWS(32)
    default: put_rows(p, out, first, last, length, 0);
  }
#undef ROWS
}

// Updates first … last, as far as they begin in low … high of the result.
static void combine_windows(const plan *p, T *restrict out, int64_t first, int64_t last, int64_t low, int64_t high) {
  int64_t offset[BLOCK], from[BLOCK];
  const int single = p->windows == 0 && p->run->extent == 1;
  const uint64_t span = high - low;
  const int all = low == 0 && high == p->elements;
  if (all && elementary(p)) {
    combine_elements(p, out, &first, last - first, 1);
    return;
  }
  if (all && !single && in_rows(p)) {
    combine_rows(p, out, first, last);
    return;
  }
  for (int64_t base = first; base < last; base += BLOCK) {
    int64_t width = least(BLOCK, last - base);
    offsets(p, base, width, offset, from);
    if (!all) {
      int64_t kept = 0;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t to = offset[j], lies = from[j];
        offset[kept] = to;
        from[kept] = lies;
        kept += (uint64_t)(to - low) < span;
      }
      width = kept;
    }
    if (!single) {
      if (!put_short_runs(p, out, offset, from, width))
        for (int64_t j = 0; j < width; ++j)
          if (offset[j] >= 0) put(p, out, offset[j], from[j]);
    } else if (p->updates) {
      for (int64_t j = 0; j < width; ++j)
        if (offset[j] >= 0) out[offset[j]] = COMBINE(out[offset[j]], (T)LOAD(p->updates[from[j]]));
    } else {
      for (int64_t j = 0; j < width; ++j)
        if (offset[j] >= 0) out[offset[j]] = COMBINE(out[offset[j]], p->always);
    }
  }
}

// Whether the indices of updates first … last + 1 ascend, a block at a time: nearly free where they do not.
static int ascend(const IDX *restrict at, int64_t first, int64_t last) {
  for (int64_t base = first; base < last; base += 4 * BLOCK) {
    const int64_t end = least(base + 4 * BLOCK, last);
    int descents = 0;
    #pragma omp simd reduction(|:descents)
    for (int64_t j = base; j < end; ++j) descents |= at[j] > at[j + 1];
    if (descents) return 0;
  }
  return 1;
}

// Whether all updates have an offset of their own, in ascending order of their indices.
static int in_order(const plan *p, int threads) {
  if (p->components != 1 || p->walks != 1 || p->walk->offset || p->count < 1) return 0;
  const IDX *const at = p->indices;
  const int64_t n = p->count - 1;
  if (at[0] < 0 || (int64_t)at[n] < 0 || (int64_t)at[n] > p->component->high || !ascend(at, 0, least(n, BLOCK))) return 0;
  int right = 1;
  #pragma omp parallel num_threads(threads) reduction(&:right)
  {
    const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
    right = ascend(at, n * me / team, n * (me + 1) / team);
  }
  return right;
}

// The first update from `j` on with another index than the one before it.
static int64_t next_run(const plan *p, int64_t j) {
  while (j > 0 && j < p->count && p->indices[j] == p->indices[j - 1]) ++j;
  return j;
}

// Updates first … last, whose indices are in order: all those of one index together.
static void combine_runs(const plan *p, T *restrict out, int64_t first, int64_t last) {
  const IDX *const at = p->indices;
  const int64_t step = p->component->step, lies = p->walk->update;
  const int single = p->windows == 0 && p->run->extent == 1;
  for (int64_t j = first; j < last;) {
    const IDX here = at[j];
    T *const to = out + here * step;
    if (single && p->updates) {
      T total = *to;
      do total = COMBINE(total, (T)LOAD(p->updates[j * lies]));
      while (++j < last && at[j] == here);
      *to = total;
    } else {
      do put(p, out, here * step, j * lies);
      while (++j < last && at[j] == here);
    }
  }
}

#ifndef REPLACES
// Parts first … first + TOGETHER of single elements at the same time.
static void combine_together(const plan *p, T *own, int64_t first, int64_t parts) {
  const int64_t n = p->elements, count = p->count;
  int64_t begin[TOGETHER], most = count;
  for (int64_t k = 0; k < TOGETHER; ++k) {
    begin[k] = count * (first + k) / parts;
    most = least(most, count * (first + k + 1) / parts - begin[k]);
  }
  combine_elements(p, own + first * n, begin, most, TOGETHER);
  for (int64_t k = 0; k < TOGETHER; ++k) {
    const int64_t rest = begin[k] + most;
    combine_elements(p, own + (first + k) * n, &rest, count * (first + k + 1) / parts - rest, 1);
  }
}

// Each part of the updates into a result of its own.
static void in_parts(const plan *p, T *out, T *own, int64_t parts, int threads) {
  const int64_t n = p->elements, step = elementary(p) && parts % TOGETHER == 0 && parts >= TOGETHER * threads ? TOGETHER : 1;
  #pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t part = 0; part < parts; part += step) {
    T *const mine = own + part * n;
    for (int64_t i = 0; i < n * step; ++i) mine[i] = NEUTRAL;
    if (step > 1) combine_together(p, own, part, parts);
    else combine_windows(p, mine, p->count * part / parts, p->count * (part + 1) / parts, 0, n);
  }
  #pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t base = 0; base < n; base += BLOCK) {
    const int64_t end = least(base + BLOCK, n);
    for (int64_t part = 0; part < parts; ++part) {
      const T *const restrict mine = own + part * n;
      #pragma omp simd
      for (int64_t i = base; i < end; ++i) out[i] = COMBINE(out[i], mine[i]);
    }
  }
}
#endif

// buffers: the array or 0 (one value everywhere), indices, updates or 0 (one value), the result, room.
// sizes: windows, elements of the result, whether starts are clipped, most threads, how, parts, numbers of components,
// walks and windows; the value of the array and of the updates where they are one; the components, the walks, the windows'
// outer dimensions and their innermost one.
void scatter(void **buffers, const int64_t *sizes) {
  const int64_t elements = sizes[1], how = sizes[4], parts = sizes[5];
  const int threads = (int)least(sizes[3], omp_get_max_threads());
  plan p = {buffers[1], buffers[2], 0, sizes[0], sizes[2], sizes[6], sizes[7], sizes[8], elements};
  p.component = (const component *)(sizes + 13);
  p.walk = (const dimension *)(p.component + p.components);
  p.window = p.walk + p.walks;
  p.run = p.window + p.windows;
  IN filling, always;
  memcpy(&filling, sizes + 9, sizeof(IN));
  memcpy(&always, sizes + 11, sizeof(IN));
  p.always = LOAD(always);
  const IN *const array = buffers[0];
  IN *const result = buffers[3];
#ifdef WIDER
  T *const out = buffers[4], *const room = out + (elements + 15) / 16 * 16;
#else
  T *const out = result, *const room = buffers[4];
#endif
  if (!array) {
    const T value = (T)LOAD(filling);
    #pragma omp parallel for simd schedule(static) num_threads(threads) if (elements > 1 << 16)
    for (int64_t i = 0; i < elements; ++i) out[i] = value;
  } else if ((const void *)array != (void *)out) {
    #pragma omp parallel for simd schedule(static) num_threads(threads) if (elements > 1 << 16)
    for (int64_t i = 0; i < elements; ++i) out[i] = (T)LOAD(array[i]);
  }
  if (p.run->extent > 0 && elements > 0) {
    if (threads == 1 && how == DISTINCT || how == IN_TURN) combine_windows(&p, out, 0, p.count, 0, elements);
#ifndef REPLACES
    else if (how == IN_PARTS) in_parts(&p, out, room, parts, threads);
#endif
    else if (how == BY_RANGE && in_order(&p, threads)) {
      #pragma omp parallel for schedule(dynamic) num_threads(threads)
      for (int64_t piece = 0; piece < PIECES; ++piece)
        combine_runs(&p, out, next_run(&p, p.count * piece / PIECES), next_run(&p, p.count * (piece + 1) / PIECES));
    } else {
      #pragma omp parallel num_threads(threads)
      {
        const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
        if (how == DISTINCT) combine_windows(&p, out, p.count * me / team, p.count * (me + 1) / team, 0, elements);
        else combine_windows(&p, out, 0, p.count, elements * me / team, elements * (me + 1) / team);
      }
    }
  }
#ifdef WIDER
  #pragma omp parallel for simd schedule(static) num_threads(threads) if (elements > 1 << 16)
  for (int64_t i = 0; i < elements; ++i) result[i] = SAVE(out[i]);
#endif
}
