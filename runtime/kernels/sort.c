// Sorting along one dimension, stable: keys become unsigned integers of the same order, which are sorted by their digits.
//
// Short rows go LANES at a time through Batcher's merge exchange (Knuth, TAOCP 3, 5.2.2, algorithm M), one row a vector
// lane; other rows are sorted digit by digit from the least (Knuth 5.2.5), one row a thread or a long row by all threads.
// BITS and KIND (0 unsigned, 1 signed, 2 floating point with the infinity INFINITE) say what the keys are; -0.0 equals
// 0.0 and all nans are equal and last. PAYLOAD is the size of what travels with a key: 0, 4 or 8 bytes.
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define JOIN_(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_(a, b, c)
typedef JOIN(uint, BITS, _t) KEY;
#define SIGN ((KEY)1 << (BITS - 1))
#define NAN_KEY ((KEY)-1)
#define INLINE static inline __attribute__((always_inline))
#define LANES (64 / (int)sizeof(KEY) < 16 ? 64 / (int)sizeof(KEY) : 16)
#define SHORT (BITS == 8 ? 64 : 256)  // the longest row that a merge exchange sorts
#define WIDE 11                       // bits of a digit where there are many keys
#define MANY (1 << 16)
#define PARTS 16
#define BLOCK 256
#define SPREAD 12  // bits that digits have beyond the number of items, so that they tell nearly all apart
#define FEW 64     // items that are sorted by insertion where digits of all their bits would take longer
#define GLANCE 16  // elements that are looked at together for one that is greater than those held
#define EACH (1 << 16)  // items between two looks at whether to stop

#if PAYLOAD
typedef JOIN(uint, PAYLOAD_BITS, _t) PAY;
typedef struct {
  KEY key;
  PAY pay;
} item;
#else
typedef struct {
  KEY key;
} item;
#endif

INLINE KEY key_of(KEY bits) {
#if KIND == 0
  return bits;
#elif KIND == 1
  return bits ^ SIGN;
#else
  const KEY size = bits & ~SIGN, key = bits ^ (bits & SIGN ? NAN_KEY : SIGN);
  return size > INFINITE ? NAN_KEY : size == 0 ? SIGN : key;
#endif
}

INLINE KEY bits_of(KEY key) {
#if KIND == 0
  return key;
#elif KIND == 1
  return key ^ SIGN;
#else
  return key & SIGN ? key ^ SIGN : ~key;
#endif
}

// Whether the key tells less than the element did: nans, and -0.0.
INLINE int lossy(KEY bits) {
#if KIND == 2
  return ((KEY)(bits & ~SIGN) > INFINITE) | (bits == SIGN);
#else
  return 0;
#endif
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Moves the items of a to b in the order of one digit, which `counts` has counted.
static void deal(const item *restrict a, item *restrict b, int64_t n, int shift, const uint32_t *counts) {
  uint32_t at[256], total = 0;
  for (int d = 0; d < 256; ++d) {
    at[d] = total;
    total += counts[d];
  }
  for (int64_t i = 0; i < n; ++i) b[at[a[i].key >> shift & 255]++] = a[i];
}

// Whether insertion sorts what is nearly in order with at most `most` moves; what it leaves is no less in order, and as stable.
static int put_right(item *a, int64_t n, int64_t most) {
  for (int64_t i = 1; i < n; ++i) {
    if (a[i - 1].key <= a[i].key) continue;
    const item moved = a[i];
    int64_t j = i;
    for (; j > 0 && a[j - 1].key > moved.key; --j) a[j] = a[j - 1];
    a[j] = moved;
    if ((most -= i - j) < 0) return 0;
  }
  return 1;
}

// Sorts a by the lowest `bits` of its keys, with b as room; gives the one of them that holds the result.
//
// The highest digits that differ tell nearly all items apart where keys are spread: then few moves put the rest right. Where
// they do not, all digits are gone through.
static item *by_digits(item *a, item *b, int64_t n, int bits) {
  uint32_t counts[BITS / 8][256];
  int digits[BITS / 8], found = 0, enough = 1;
  const int all = (bits + 7) / 8;
  memset(counts, 0, all * sizeof counts[0]);
  for (int64_t i = 0; i < n; ++i)
    for (int digit = 0; digit < all; ++digit) ++counts[digit][a[i].key >> 8 * digit & 255];
  for (int digit = 0; digit < all; ++digit)
    if (counts[digit][a[0].key >> 8 * digit & 255] != n) digits[found++] = digit;
  while (enough < BITS / 8 && (8 * enough <= SPREAD || n >> (8 * enough - SPREAD))) ++enough;
  for (int first = found > enough + 1 ? found - enough : 0;; first = 0) {
    for (int k = first; k < found; ++k) {
      deal(a, b, n, 8 * digits[k], counts[digits[k]]);
      item *const other = a;
      a = b;
      b = other;
    }
    if (!first || put_right(a, n, n)) return a;
  }
}

static void by_insertion(item *a, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const item moved = a[i];
    int64_t j = i;
    for (; j > 0 && a[j - 1].key > moved.key; --j) a[j] = a[j - 1];
    a[j] = moved;
  }
}

// Where a row's elements lie: element i at `base + i * step`.
typedef struct {
  const KEY *x;
  const void *payload;  // 0: the position
  KEY *out;             // 0: not wanted
  void *carried;        // 0: not wanted
  int64_t base, step, n;
  int through;  // the payload says where the key is
} row;

INLINE int take(row r, int64_t i, item *to) {
  int64_t position = i;
#if PAYLOAD
  const PAY pay = r.payload ? ((const PAY *)r.payload)[r.base + i * r.step] : (PAY)i;
  to->pay = pay;
  if (r.through) position = (int64_t)pay;
#endif
  const KEY bits = r.x[r.base + position * r.step];
  to->key = key_of(bits);
  return lossy(bits);
}

INLINE void give(row r, int64_t i, item from) {
  if (r.out) r.out[r.base + i * r.step] = bits_of(from.key);
#if PAYLOAD
  if (r.carried) ((PAY *)r.carried)[r.base + i * r.step] = from.pay;
#endif
}

// Zeros and nans as they were, in the order in which they came; the sorted row is in `out`.
static void restore(row r) {
#if KIND == 2
  if (!r.out) return;
  int64_t zero = 0, nan = r.n;
  for (int64_t i = 0; i < r.n; ++i) {
    const KEY key = key_of(r.x[r.base + i * r.step]);
    zero += key < SIGN;
    nan -= key == NAN_KEY;
  }
  for (int64_t i = 0; i < r.n; ++i) {
    const KEY bits = r.x[r.base + i * r.step], key = key_of(bits);
    if (key == SIGN) r.out[r.base + zero++ * r.step] = bits;
    if (key == NAN_KEY) r.out[r.base + nan++ * r.step] = bits;
  }
#endif
}

// LANES rows side by side. Of equal keys the lower position comes first, so that the exchanges are stable.
static void exchange(KEY (*key)[LANES], KEY (*position)[LANES], int64_t n) {
  int64_t top = 1;
  while (2 * top < n) top *= 2;
  for (int64_t p = top; p > 0; p /= 2) {
    int64_t r = 0, d = p;
    for (int64_t q = top;; d = q - p, q /= 2, r = p) {
      for (int64_t i = 0; i < n - d; ++i) {
        if ((i & p) != r) continue;
        KEY *const restrict a = key[i], *const restrict b = key[i + d];
#if PAYLOAD
        KEY *const restrict s = position[i], *const restrict t = position[i + d];
        #pragma omp simd
        for (int l = 0; l < LANES; ++l) {
          const KEY x = a[l], y = b[l], u = s[l], v = t[l];
          const int swap = (x > y) | ((x == y) & (u > v));
          a[l] = swap ? y : x;
          b[l] = swap ? x : y;
          s[l] = swap ? v : u;
          t[l] = swap ? u : v;
        }
#else
        #pragma omp simd
        for (int l = 0; l < LANES; ++l) {
          const KEY x = a[l], y = b[l];
          a[l] = x < y ? x : y;
          b[l] = x < y ? y : x;
        }
#endif
      }
      if (q == p) break;
    }
  }
}

// Up to LANES short rows at once.
static void together(const row *rows, int count, int64_t n) {
  KEY key[SHORT][LANES] __attribute__((aligned(64)));
#if PAYLOAD
  KEY position[SHORT][LANES] __attribute__((aligned(64)));
#else
  KEY (*position)[LANES] = 0;
#endif
  int again[LANES] = {0};
  for (int l = 0; l < LANES; ++l) {
    const row r = rows[l < count ? l : 0];
    for (int64_t i = 0; i < n; ++i) {
      item found;
      again[l] |= take(r, i, &found);
      key[i][l] = found.key;
#if PAYLOAD
      position[i][l] = (KEY)i;
#endif
    }
  }
  exchange(key, position, n);
  for (int l = 0; l < count; ++l) {
    const row r = rows[l];
    for (int64_t i = 0; i < n; ++i) {
      item found;
      found.key = key[i][l];
#if PAYLOAD
      const int64_t from = (int64_t)position[i][l];
      found.pay = r.payload ? ((const PAY *)r.payload)[r.base + from * r.step] : (PAY)from;
#endif
      give(r, i, found);
    }
    if (again[l]) restore(r);
  }
}

// One row by one thread.
static void alone(row r, item *a, item *b) {
  int again = 0;
  for (int64_t i = 0; i < r.n; ++i) again |= take(r, i, a + i);
  if (r.n <= 24) by_insertion(a, r.n);
  else a = by_digits(a, b, r.n, BITS);
  for (int64_t i = 0; i < r.n; ++i) give(r, i, a[i]);
  if (again) restore(r);
}

// One long row by all threads: its highest digit that differs deals the items out to buckets, which threads then sort one
// after the other while they lie in the cache. The row is cut into PARTS, so that no thread waits for one that is late.
static void shared(poller *poll, row r, item *a, item *b, int64_t (*counts)[1 << WIDE], int threads) {
  const int width = r.n > 1 << 21 ? WIDE : 8, buckets = 1 << width;
  int again = 0;
  KEY differing = 0;
  const KEY some = key_of(r.x[r.base]);
  #pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(| : again, differing)
  for (int part = 0; part < PARTS; ++part)
    for (int64_t i = r.n * part / PARTS; i < r.n * (part + 1) / PARTS && !(i % EACH == 0 && interrupted(poll)); ++i) {
      again |= take(r, i, a + i);
      differing |= a[i].key ^ some;
    }
  if (poll->raised) return;
  int shift = 0;
  while (differing >> shift >> 1 >> (width - 1)) ++shift;
  #pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int part = 0; part < PARTS; ++part) {
    memset(counts[part], 0, buckets * sizeof(int64_t));
    if (interrupted(poll)) continue;
    for (int64_t i = r.n * part / PARTS; i < r.n * (part + 1) / PARTS; ++i) ++counts[part][a[i].key >> shift & (buckets - 1)];
  }
  if (poll->raised) return;
  int64_t first[(1 << WIDE) + 1], total = 0;
  for (int d = 0; d < buckets; ++d) {
    first[d] = total;
    for (int part = 0; part < PARTS; ++part) {
      const int64_t count = counts[part][d];
      counts[part][d] = total;
      total += count;
    }
  }
  first[buckets] = total;
  #pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int part = 0; part < PARTS; ++part)
    for (int64_t i = r.n * part / PARTS; i < r.n * (part + 1) / PARTS && !(i % EACH == 0 && interrupted(poll)); ++i)
      b[counts[part][a[i].key >> shift & (buckets - 1)]++] = a[i];
  #pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int d = 0; d < buckets; ++d) {
    if (interrupted(poll)) continue;  // first of all where the items have not all been dealt out
    const int64_t from = first[d], count = first[d + 1] - from;
    const item *sorted = b + from;
    if (count <= 24) by_insertion(b + from, count);
    else sorted = by_digits(b + from, a + from, count, shift);
    for (int64_t i = 0; i < count; ++i) give(r, from + i, sorted[i]);
  }
  if (again && !poll->raised) restore(r);
}

// Keys of one byte alone: how often each occurs says it all.
static int counted(row r) {
#if BITS == 8 && PAYLOAD == 0
  if (r.step != 1) return 0;
  uint32_t counts[4][256] = {0};
  const KEY *const x = r.x + r.base;
  int64_t i = 0;
  for (; i + 4 <= r.n; i += 4)
    for (int k = 0; k < 4; ++k) ++counts[k][key_of(x[i + k])];
  for (; i < r.n; ++i) ++counts[0][key_of(x[i])];
  KEY *out = r.out + r.base;
  for (int d = 0; d < 256; ++d) {
    const int64_t count = (int64_t)counts[0][d] + counts[1][d] + counts[2][d] + counts[3][d];
    memset(out, bits_of(d), count);
    out += count;
  }
  return 1;
#else
  return 0;
#endif
}

// buffers: keys, payload or 0 (positions), sorted keys or 0, sorted payload or 0, room.
// sizes: rows before the dimension, its extent, elements after it, most threads, whether the payload says where keys are.
void sort(void **buffers, const int64_t *sizes) {
  const int64_t outer = sizes[0], n = sizes[1], inner = sizes[2], rows = outer * inner;
  const int threads = (int)least(sizes[3], omp_get_max_threads());
  const row whole = {buffers[0], buffers[1], buffers[2], buffers[3], 0, inner, n, (int)sizes[4]};
  if (rows == 0 || n == 0) return;
  item *const room = buffers[4];
  poller poll = new_poller();
  if (n > MANY || rows == 1) {
    for (int64_t number = 0; number < rows && !interrupted(&poll); ++number) {
      row r = whole;
      r.base = number / inner * n * inner + number % inner;
      if (counted(r)) continue;
      if (n > MANY) shared(&poll, r, room, room + n, (int64_t (*)[1 << WIDE])(((uintptr_t)(room + 2 * n) + 7) & ~(uintptr_t)7), threads);
      else alone(r, room, room + n);
    }
    return;
  }
  const int64_t lanes = n <= SHORT && !whole.through ? LANES : inner == 1 ? 1 : least(inner, 8);
  const int64_t tasks = (rows + lanes - 1) / lanes;
  #pragma omp parallel for schedule(static) num_threads(threads) if (rows * n > 4096)
  for (int64_t task = 0; task < tasks; ++task) {
    if (interrupted(&poll)) continue;
    item *const a = room + 2 * n * omp_get_thread_num();
    const int count = (int)least(lanes, rows - task * lanes);
    row part[16];
    for (int l = 0; l < count; ++l) {
      const int64_t number = task * lanes + l;
      part[l] = whole;
      part[l].base = number / inner * n * inner + number % inner;
    }
    if (lanes == LANES && n <= SHORT && count > 2) together(part, count, n);
    else
      for (int l = 0; l < count; ++l)
        if (!counted(part[l])) alone(part[l], a, a + n);
  }
}

#if PAYLOAD == 4
// The order of top_k, which tells -0.0 from 0.0 and nans by their signs and bits, as IEEE 754's totalOrder does.
INLINE KEY total_key(KEY bits) { return KIND == 2 ? bits ^ ((KEY) - (bits >> (BITS - 1)) | SIGN) : key_of(bits); }

// The k greatest, descending; of equal ones the first position comes first. What cannot be among them is passed over.
static item *cut(item *a, item *b, int64_t n, item *const to, int64_t k) {
  item *sorted = a;
  if (n <= FEW) by_insertion(a, n);
  else sorted = by_digits(a, b, n, BITS);
  if (sorted != to) memmove(to, sorted, least(n, k) * sizeof(item));
  return to;
}

// Whether one of the elements base … base + width belongs before `limit`, by complements of their keys: the least are wanted.
INLINE int any_before(row r, int64_t base, int64_t width, KEY limit) {
  const KEY *const x = r.x + r.base + base * r.step;
  int found = 0;
  if (r.step == 1) {
    #pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < width; ++i) found |= (KEY)~total_key(x[i]) < limit;
  } else {
    for (int64_t i = 0; i < width; ++i) found |= (KEY)~total_key(x[i * r.step]) < limit;
  }
  return found;
}

// A few, which are held in order all the time: most elements are passed over a vector at a time.
static int64_t greatest_few(row r, int64_t first, int64_t last, int64_t k, item *a) {
  int64_t held = 0;
  KEY limit = NAN_KEY;
  for (int64_t base = first; base < last; base += GLANCE) {
    if (held == k && last - base >= 4 * GLANCE && !any_before(r, base, 4 * GLANCE, limit)) {
      base += 3 * GLANCE;
      continue;
    }
    const int64_t width = least(GLANCE, last - base);
    if (held == k && width == GLANCE && !any_before(r, base, GLANCE, limit)) continue;
    for (int64_t i = base; i < base + width; ++i) {
      const KEY key = ~total_key(r.x[r.base + i * r.step]);
      if (held == k && key >= limit) continue;
      int64_t j = held < k ? held++ : k - 1;
      for (; j > 0 && a[j - 1].key > key; --j) a[j] = a[j - 1];
      a[j].key = key;
      a[j].pay = (PAY)i;
      limit = a[held - 1].key;
    }
  }
  return held;
}

static int64_t greatest(row r, int64_t first, int64_t last, int64_t k, item *a, item *b, int64_t room) {
  if (k <= FEW / 2) return greatest_few(r, first, last, k, a);
  int64_t held = 0;
  int full = 0;
  KEY limit = 0;  // complements of keys: the least are wanted
  for (int64_t base = first; base < last; base += BLOCK) {
    const int64_t width = least(BLOCK, last - base);
    const KEY *const x = r.x + r.base + base * r.step;
    if (full) {
      KEY better = 0;
      if (r.step == 1) {
        for (int64_t i = 0; i < width; ++i) better |= (KEY)~total_key(x[i]) < limit;
      } else {
        for (int64_t i = 0; i < width; ++i) better |= (KEY)~total_key(x[i * r.step]) < limit;
      }
      if (!better) continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      const KEY key = ~total_key(x[i * r.step]);
      a[held].key = key;
      a[held].pay = (PAY)(base + i);
      held += !full | (key < limit);
    }
    if (held + BLOCK > room) {
      cut(a, b, held, a, k);
      held = k;
      limit = a[k - 1].key;
      full = 1;
    }
  }
  if (held) cut(a, b, held, a, k);
  return least(held, k);
}

// buffers: keys, values or 0, positions or 0, room. sizes: rows before the dimension, its extent, elements after it, most
// threads, k, and the items that a thread has room for, which are twice as many.
void top_k(void **buffers, const int64_t *sizes) {
  const int64_t outer = sizes[0], n = sizes[1], inner = sizes[2], k = sizes[4], room = sizes[5], rows = outer * inner;
  const int threads = (int)least(sizes[3], omp_get_max_threads());
  if (rows == 0 || k == 0) return;
  const KEY *const x = buffers[0];
  KEY *const values = buffers[1];
  PAY *const positions = buffers[2];
  item *const items = buffers[3];
  const int split = rows < threads && n >= 1 << 16 && room * threads <= n;
  for (int64_t number = 0; split && number < rows; ++number) {
    const row r = {x, 0, 0, 0, number / inner * n * inner + number % inner, inner, n, 0};
    int64_t found[64];
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; ++t) {
      item *const a = items + 2 * room * t;
      found[t] = greatest(r, n * t / threads, n * (t + 1) / threads, k, a, a + room, room);
    }
    int64_t total = found[0];
    item *const a = items;
    for (int t = 1; t < threads; ++t) {  // room is at least twice k
      memcpy(a + total, items + 2 * room * t, found[t] * sizeof(item));
      cut(a, a + room, total + found[t], a, k);
      total = least(k, total + found[t]);
    }
    for (int64_t i = 0; i < k; ++i) {
      const int64_t to = number / inner * k * inner + number % inner + i * inner;
      if (values) values[to] = r.x[r.base + (int64_t)a[i].pay * inner];
      if (positions) positions[to] = a[i].pay;
    }
  }
  if (split) return;
  #pragma omp parallel for schedule(static) num_threads(threads) if (rows > 1 && rows * n > 16384)
  for (int64_t number = 0; number < rows; ++number) {
    const row r = {x, 0, 0, 0, number / inner * n * inner + number % inner, inner, n, 0};
    item *const a = items + 2 * room * omp_get_thread_num();
    greatest(r, 0, n, k, a, a + room, room);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t to = number / inner * k * inner + number % inner + i * inner;
      if (values) values[to] = r.x[r.base + (int64_t)a[i].pay * inner];
      if (positions) positions[to] = a[i].pay;
    }
  }
}
#endif
