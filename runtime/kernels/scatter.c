// Scatter: windows of updates written to, or combined with, computed elements of an array. Results do not depend on the number
// of threads: each element takes its updates in their order, on the thread that owns its part of the result, or, where the
// indices turn out to be in order, on the thread that has the first of them; only where there are few elements, each of a
// fixed number of parts of the updates has a result of its own, combined in order.
//
// T is the type of an update as it is computed with, IN the type in memory; LOAD and SAVE convert,
// COMBINE(a, u) is what an update does to an element, and NEUTRAL does nothing to it (unless REPLACES); COMBINE_ONE(a, u) is the same
// for a number alone.
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))  // with registers of its own, and vectors in loops over a block
#define BLOCK 512
#define MOST 16  // dimensions of a walk
#define LANES (64 / (int64_t)sizeof(T) < 1 ? 1 : 64 / (int64_t)sizeof(T))
#define SHORT 32  // elements of the longest run that has code of its own
#define TOGETHER 4  // parts that a thread takes at the same time
#define LONG_ROUND 32  // updates of a walk from which one round of it is worth a call
#define PIECES 16  // of updates by indices in order, which threads take as they come

#ifndef COMBINE_ONE
#define COMBINE_ONE COMBINE
#endif

enum { IN_TURN, BY_RANGE, IN_PARTS, DISTINCT };
enum { UNSIGNED = 16 };  // in the type of indices, beside its bytes

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

typedef struct {
  int64_t extent, update, offset;  // steps in the updates and in the result
} dimension;

typedef struct {
  int64_t step, high, wrap;  // of the result; the greatest start; what is added to negative starts
} component;

typedef struct {
  const void *indices;
  const IN *updates;
  T always;  // the update, where there are no `updates`
  int64_t count, clip, components, walks, windows, elements;
  const component *component;
  const dimension *walk, *window, *run;
  int64_t type;  // of the indices
} plan;

// Every type of an index, as CASE(number of the type, its name).
#define TYPES(CASE) \
  CASE(1, int8_t) CASE(2, int16_t) CASE(4, int32_t) CASE(8, int64_t) \
  CASE(UNSIGNED + 1, uint8_t) CASE(UNSIGNED + 2, uint16_t) CASE(UNSIGNED + 4, uint32_t) CASE(UNSIGNED + 8, uint64_t)

INLINE int64_t index_at(const plan *p, int64_t k) {
#define CASE(number, name) case number: return (int64_t)((const name *)p->indices)[k];
  switch (p->type) { TYPES(CASE) }
#undef CASE
  return -1;
}

// Indices first, first + stride, …, `count` of them, as int64; gives whether all are in 0 … high.
APART int read_indices(const plan *p, int64_t first, int64_t stride, int64_t count, int64_t high, int64_t *restrict to) {
  int inside = 0;
#define CASE(number, name) \
  case number: { \
    const name *restrict const at = (const name *)p->indices + first; \
    name low = 0, top = 0; \
    if (stride == 1) { \
      _Pragma("omp simd reduction(min:low) reduction(max:top)") \
      for (int64_t j = 0; j < count; ++j) { \
        const name i = at[j]; \
        to[j] = (int64_t)i, low = i < low ? i : low, top = i > top ? i : top; \
      } \
    } else if (stride == 2 && sizeof(name) >= 4) { /* of two components, the usual types: vectors of every other element */ \
      _Pragma("omp simd reduction(min:low) reduction(max:top)") \
      for (int64_t j = 0; j < count; ++j) { \
        const name i = at[2 * j]; \
        to[j] = (int64_t)i, low = i < low ? i : low, top = i > top ? i : top; \
      } \
    } else { \
      for (int64_t j = 0; j < count; ++j) { \
        const name i = at[j * stride]; \
        to[j] = (int64_t)i, low = i < low ? i : low, top = i > top ? i : top; \
      } \
    } \
    inside = low >= 0 && high >= 0 && (uint64_t)top <= (uint64_t)high; \
    break; \
  }
  switch (p->type) { TYPES(CASE) }
#undef CASE
  return inside;
}

// Starts from indices, in place: wrapped and held inside; -1 in `nowhere` where that changes them.
APART void hold_inside(const component *given, int64_t clip, int64_t count, int64_t *restrict to, int64_t *restrict nowhere) {
  const component c = *given;
  const int64_t tested = clip ? 0 : -1;
  #pragma omp simd
  for (int64_t j = 0; j < count; ++j) {
    const int64_t i = to[j] + (to[j] < 0 ? c.wrap : 0);
    const int64_t most = i > c.high ? c.high : i, inside = most < 0 ? 0 : most;
    nowhere[j] |= (i != inside ? -1 : 0) & tested;
    to[j] = inside;
  }
}

// For updates base … base + width, in the dimension of one walk or by their indices alone: where each goes, below 0 where that is nowhere; gives whether
// all go somewhere.
APART int targets(const plan *p, int64_t base, int64_t width, int64_t *restrict offset) {
  const int64_t count = p->components, along = p->walks == 1 ? p->walk->offset : 0;  // of several walks `offsets` adds what they add
  int64_t part[BLOCK], nowhere[BLOCK];
  int held = 0;
  if (count != 1) memset(offset, 0, width * sizeof *offset);
  for (int64_t n = 0; n < count; ++n) {
    const component *const c = p->component + n;
    int64_t *const to = count == 1 ? offset : part;
    if (!read_indices(p, base * count + n, count, width, c->high, to)) {
      if (!held) memset(nowhere, 0, width * sizeof *nowhere);
      held = 1;
      hold_inside(c, p->clip, width, to, nowhere);
    }
    const int64_t step = c->step;
    if (count != 1) {
      #pragma omp simd
      for (int64_t j = 0; j < width; ++j) offset[j] += part[j] * step;
    } else if (step != 1) {
      #pragma omp simd
      for (int64_t j = 0; j < width; ++j) offset[j] *= step;
    }
  }
  if (along) {
    #pragma omp simd
    for (int64_t j = 0; j < width; ++j) offset[j] += (base + j) * along;
  }
  if (!held) return 1;
  int64_t any = 0;
  #pragma omp simd reduction(|:any)
  for (int64_t j = 0; j < width; ++j) {
    any |= nowhere[j];
    offset[j] |= nowhere[j];
  }
  return !any;
}

// For updates base … base + width: where each goes (below 0: nowhere), and where it lies.
APART void offsets(const plan *p, int64_t base, int64_t width, int64_t *restrict offset, int64_t *restrict from) {
  if (p->walks == 1) {
    const int64_t step = p->walk->update;
    targets(p, base, width, offset);
    #pragma omp simd
    for (int64_t j = 0; j < width; ++j) from[j] = (base + j) * step;
    return;
  }
  targets(p, base, width, offset);
  int64_t at[MOST], start = 0, lies = 0, rest = base;
  for (int64_t w = p->walks - 1; w >= 0; --w) {
    const dimension d = p->walk[w];
    at[w] = rest % d.extent;
    rest /= d.extent;
    start += at[w] * d.offset;
    lies += at[w] * d.update;
  }
  for (int64_t j = 0; j < width; ++j) {
    offset[j] = offset[j] < 0 ? -1 : offset[j] + start;
    from[j] = lies;
    for (int64_t w = p->walks - 1; w >= 0; --w) {
      const dimension d = p->walk[w];
      start += d.offset;
      lies += d.update;
      if (++at[w] < d.extent) break;
      start -= d.extent * d.offset;
      lies -= d.extent * d.update;
      at[w] = 0;
    }
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

// Whether updates are single elements, which need no array of where they lie.
static int elementary(const plan *p) {
  return p->windows == 0 && p->run->extent == 1 && p->walks == 1;
}

// Updates begin[k] + j for j up to `count` into out[k * n]: one of each k in turn, since an update of an array waits for
// the last one.
INLINE void put_elements(const plan *given, T *out, const int64_t *begin, int64_t count, int64_t together, int plain, int valued) {
  const plan p = *given;  // which no store changes
  const int64_t lies = plain ? 1 : p.walk->update;
  int64_t offset[TOGETHER][BLOCK];
  for (int64_t base = 0; base < count; base += BLOCK) {
    const int64_t width = least(BLOCK, count - base);
    int somewhere = 1;
    for (int64_t k = 0; k < together; ++k) somewhere &= targets(&p, begin[k] + base, width, offset[k]);
#define PUT(all) \
  _Pragma("GCC unroll 4") \
  for (int64_t j = 0; j < width; ++j) { \
    _Pragma("GCC unroll 4") \
    for (int64_t k = 0; k < together; ++k) { \
      if (!(all) && offset[k][j] < 0) continue; \
      T *const to = out + k * p.elements + offset[k][j]; \
      *to = COMBINE_ONE(*to, valued ? (T)LOAD(p.updates[(begin[k] + base + j) * lies]) : p.always); \
    } \
  }
    if (somewhere) PUT(1) else PUT(0)
#undef PUT
  }
}

APART void combine_elements(const plan *p, T *out, const int64_t *begin, int64_t count, int64_t together) {
  if (!p->updates) put_elements(p, out, begin, count, together, 0, 0);
  else if (p->walk->update == 1) put_elements(p, out, begin, count, together, 1, 1);
  else put_elements(p, out, begin, count, together, 0, 1);
}

// Whether updates are dense runs, which need no array of where they lie either.
static int in_rows(const plan *p) {
  return p->run->offset == 1 && p->run->update == 1 && p->updates && p->windows == 0 && p->walks == 1;
}

// How many offsets are that of the update before.
INLINE int64_t repetitions(const int64_t *restrict offset, int64_t width) {
  int64_t same = 0;
  #pragma omp simd reduction(+:same)
  for (int64_t j = 1; j < width; ++j) same += offset[j] == offset[j - 1];
  return same;
}

// Combines updates of known length that lie side by side with the array, each in turn.
INLINE void put_apart(T *out, const IN *u, const int64_t *restrict offset, int64_t width, const int64_t length, const int all) {
  for (int64_t j = 0; j < width; ++j, u += length) {
    if (!all && offset[j] < 0) continue;
    T *const to = out + offset[j];
    #pragma omp simd
    for (int k = 0; k < length; ++k) to[k] = COMBINE(to[k], (T)LOAD(u[k]));
  }
}

// Those of one place in succession stay in registers.
INLINE void put_repeated(T *out, const IN *u, const int64_t *restrict offset, int64_t width, const int64_t length) {
  for (int64_t j = 0; j < width; ++j, u += length) {
    const int64_t here = offset[j];
    if (here < 0) continue;
    T *const to = out + here;
    T sum[SHORT];
    #pragma omp simd
    for (int k = 0; k < length; ++k) sum[k] = COMBINE(to[k], (T)LOAD(u[k]));
    for (; j + 1 < width && offset[j + 1] == here; ++j) {
      u += length;
      #pragma omp simd
      for (int k = 0; k < length; ++k) sum[k] = COMBINE(sum[k], (T)LOAD(u[k]));
    }
    for (int k = 0; k < length; ++k) to[k] = sum[k];
  }
}

// Combines such updates with the array. `packed` ones lie side by side, and their `length` is known to the compiler.
INLINE void put_rows(const plan *given, T *out, int64_t first, int64_t last, const int64_t length, const int packed) {
  const plan p = *given;  // which no store changes
  const int64_t lies = packed ? length : p.walk->update;
  int64_t offset[BLOCK];
  for (int64_t base = first; base < last; base += BLOCK) {
    const int64_t width = least(BLOCK, last - base);
    const int all = targets(&p, base, width, offset);
    const IN *const u = p.updates + base * lies;
    if (!packed) {
      for (int64_t j = 0; j < width; ++j)
        if (offset[j] >= 0) put_run(out + offset[j], u + j * lies, length);
    } else if (repetitions(offset, width) > width / 4) {
      put_repeated(out, u, offset, width, length);
    } else if (all) {
      put_apart(out, u, offset, width, length, 1);
    } else {
      put_apart(out, u, offset, width, length, 0);
    }
  }
}

APART void combine_rows(const plan *p, T *out, int64_t first, int64_t last) {
  const int64_t length = p->run->extent;
#define ROWS(length) case length: put_rows(p, out, first, last, length, 1); return;
  switch (p->walk->update == length ? length : 0) {
    ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14) ROWS(15) ROWS(16)
    ROWS(32)
    default: put_rows(p, out, first, last, length, 0);
  }
#undef ROWS
}

APART void combine_windows(const plan *p, T *restrict out, int64_t first, int64_t last, int64_t low, int64_t high);

// Updates first … last of several walks, each round of the innermost one by itself: what the outer walks add is the same for all of it.
APART void combine_rounds(const plan *p, T *restrict out, int64_t first, int64_t last, int64_t low, int64_t high) {
  plan q = *p;
  q.walks = 1;
  q.walk = p->walk + p->walks - 1;
  const int64_t round = q.walk->extent, all = low == 0 && high == p->elements;
  for (int64_t begin = first; begin < last;) {
    const int64_t number = begin / round, ahead = begin - number * round, count = least(round - ahead, last - begin);
    int64_t rest = number, start = 0, lies = 0;
    for (int64_t w = p->walks - 2; w >= 0; --w) {
      const dimension d = p->walk[w];
      start += rest % d.extent * d.offset;
      lies += rest % d.extent * d.update;
      rest /= d.extent;
    }
    q.indices = (const char *)p->indices + number * round * p->components * (p->type & (UNSIGNED - 1));
    if (p->updates) q.updates = p->updates + lies;
    if (all) combine_windows(&q, out + start, ahead, ahead + count, 0, q.elements);
    else combine_windows(&q, out + start, ahead, ahead + count, low - start, high - start);
    begin += count;
  }
}

// Updates first … last, as far as they begin in low … high of the result.
APART void combine_windows(const plan *p, T *restrict out, int64_t first, int64_t last, int64_t low, int64_t high) {
  int64_t offset[BLOCK], from[BLOCK];
  const int single = p->windows == 0 && p->run->extent == 1;
  const uint64_t span = high - low;
  const int all = low == 0 && high == p->elements;
  if (p->walks > 1 && p->walk[p->walks - 1].extent >= LONG_ROUND) {
    combine_rounds(p, out, first, last, low, high);
    return;
  }
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
APART int ascend(const plan *p, int64_t first, int64_t last) {
  int64_t at[BLOCK + 1];
  for (int64_t base = first; base < last; base += BLOCK) {
    const int64_t width = least(BLOCK, last - base);
    read_indices(p, base, 1, width + 1, 0, at);
    int64_t descents = 0;
    #pragma omp simd reduction(|:descents)
    for (int64_t j = 0; j < width; ++j) descents |= at[j] > at[j + 1] ? -1 : 0;
    if (descents) return 0;
  }
  return 1;
}

// Whether all updates have an offset of their own, in ascending order of their indices.
static int in_order(const plan *p, int threads) {
  if (p->components != 1 || p->walks != 1 || p->walk->offset || p->count < 1) return 0;
  const int64_t n = p->count - 1, top = index_at(p, n);
  if (index_at(p, 0) < 0 || top < 0 || top > p->component->high || !ascend(p, 0, least(n, BLOCK))) return 0;
  int right = 1;
  #pragma omp parallel num_threads(threads) reduction(&:right)
  {
    const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
    right = ascend(p, n * me / team, n * (me + 1) / team);
  }
  return right;
}

// The first update from `j` on with another index than the one before it.
static int64_t next_run(const plan *p, int64_t j) {
  while (j > 0 && j < p->count && index_at(p, j) == index_at(p, j - 1)) ++j;
  return j;
}

// Updates first … last, whose indices are in order: all those of one index together.
APART void combine_runs(const plan *p, T *restrict out, int64_t first, int64_t last) {
  const int64_t lies = p->walk->update;
  if (!elementary(p) || !p->updates) {
    combine_windows(p, out, first, last, 0, p->elements);
    return;
  }
  int64_t offset[BLOCK];
  for (int64_t base = first; base < last; base += BLOCK) {
    const int64_t width = least(BLOCK, last - base);
    targets(p, base, width, offset);
    for (int64_t j = 0; j < width;) {
      const int64_t here = offset[j];
      T total = out[here];
      do total = COMBINE_ONE(total, (T)LOAD(p->updates[(base + j) * lies]));
      while (++j < width && offset[j] == here);
      out[here] = total;
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
// walks and windows; the value of the array and of the updates where they are one; the type of the indices; the components, the
// walks, the windows' outer dimensions and their innermost one.
void scatter(void **buffers, const int64_t *sizes) {
  const int64_t elements = sizes[1], how = sizes[4], parts = sizes[5];
  const int threads = (int)least(sizes[3], omp_get_max_threads());
  plan p = {buffers[1], buffers[2], 0, sizes[0], sizes[2], sizes[6], sizes[7], sizes[8], elements, 0, 0, 0, 0, 0};
  p.type = sizes[13];
  p.component = (const component *)(sizes + 14);
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
