// What all forms of matrix products share: vectors and parts of them, memory to work in, and what is done with results.
//
// IN, T and OUT are the types in memory, of the accumulators, and of the result; LOAD and SAVE convert. SAME says that
// IN is T, WHOLE that T is OUT.
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define BYTES 64
#if defined(BY_TABLES) && !defined(ROWS_OF_KERNELS)
#define MR 7  // columns are kernels of a convolution, mostly a multiple of 64
#define NV 4
#else
#define MR 8
#define NV 3
#endif
#define DR 8
#elif defined(__AVX__)
#include <immintrin.h>
#define BYTES 32
#define MR 6
#define NV 2
#define DR 4
#else
#define BYTES 16
#define MR 6
#define NV 2
#define DR 4
#endif
#define VL (BYTES / (int)sizeof(T))
// Elements that lie together in a step of packed panels: two of 16 bits, which one instruction multiplies and adds up, or four of 8
// bits (FOURFOLD), where the processor has that, which is found out at run time if the text was compiled for others too.
#if defined(PAIRED) && !defined(BY_TABLES) && (defined(__AVX512BW__) || (defined(__AVX2__) && BYTES == 32))
#define PAIR 2
#else
#define PAIR 1
#endif
#if PAIR == 1 || !defined(FOURFOLD) || BYTES < 64
#define QUADS 0
#elif defined(__AVX512VNNI__)
#define QUADS 1
#else
#define QUADS (__builtin_cpu_supports("avx512vnni") != 0)
#endif
#define GROUP (QUADS ? 4 : PAIR)
#define FUSED __attribute__((optimize("fp-contract=fast")))
#define INSIDE static inline __attribute__((always_inline)) FUSED

typedef T vec __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t parts(int64_t total, int64_t size) { return (total + size - 1) / size; }

// The first n lanes of a vector. What lies behind them in memory is neither read nor written.
#if defined(__AVX512F__)
typedef uint32_t lanes;
INSIDE lanes lanes_of(int64_t n) { return n >= VL ? (lanes)((1ull << VL) - 1) : (lanes)((1u << n) - 1); }
INSIDE vec load_part(const T *p, lanes m) {
  return sizeof(T) == 4 ? (vec)_mm512_maskz_loadu_epi32(m, p) : (vec)_mm512_maskz_loadu_epi64(m, p);
}
INSIDE void store_part(T *p, vec v, lanes m) {
  if (sizeof(T) == 4) _mm512_mask_storeu_epi32(p, m, (__m512i)v);
  else _mm512_mask_storeu_epi64(p, m, (__m512i)v);
}
#elif defined(__AVX2__)
typedef __m256i lanes;
INSIDE lanes lanes_of(int64_t n) {
  if (sizeof(T) == 4) return _mm256_cmpgt_epi32(_mm256_set1_epi32(least(n, VL)), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(least(n, VL)), _mm256_set_epi64x(3, 2, 1, 0));
}
INSIDE vec load_part(const T *p, lanes m) {
  return sizeof(T) == 4 ? (vec)_mm256_maskload_epi32((const int *)p, m) : (vec)_mm256_maskload_epi64((const void *)p, m);
}
INSIDE void store_part(T *p, vec v, lanes m) {
  if (sizeof(T) == 4) _mm256_maskstore_epi32((int *)p, m, (__m256i)v);
  else _mm256_maskstore_epi64((void *)p, m, (__m256i)v);
}
#else
typedef int64_t lanes;
INSIDE lanes lanes_of(int64_t n) { return least(n, VL); }
INSIDE vec load_part(const T *p, lanes n) {
  vec v = {0};
  if (n == VL) return *(const vec *)p;
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
INSIDE void store_part(T *p, vec v, lanes n) {
  if (n == VL) *(vec *)p = v;
  else
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}
#endif

// out[p][x] = in[x][p] for a square of VL, rows of both some way apart; or of columns anywhere, the first n of each.
#if defined(__AVX512F__)
typedef __typeof__((vec){0} < (vec){0}) comparison;
INSIDE void turn(vec *v, int lines) {  // `lines` vectors, a power of 2 of them, whose lanes are squares side by side
#pragma GCC unroll 4
  for (int s = 1; s < lines; s *= 2) {
    comparison low, high;
#pragma GCC unroll 16
    for (int l = 0; l < VL; ++l) low[l] = l & s ? VL + (l ^ s) : l, high[l] = l & s ? VL + l : l ^ s;
#pragma GCC unroll 16
    for (int i = 0; i < lines; ++i)
      if (!(i & s)) {
        const vec a = v[i], b = v[i + s];
        v[i] = __builtin_shuffle(a, b, low), v[i + s] = __builtin_shuffle(a, b, high);
      }
  }
}
#endif
#if SAME && defined(__AVX512F__)
#define SQUARES 1
INSIDE void transpose(const T *in, int64_t from, T *out, int64_t to) {
  vec v[VL];
#pragma GCC unroll 16
  for (int i = 0; i < VL; ++i) v[i] = *(const vec *)(in + i * from);
  turn(v, VL);
#pragma GCC unroll 16
  for (int i = 0; i < VL; ++i) *(vec *)(out + i * to) = v[i];
}
INSIDE void transpose_columns(const T *in, const int64_t *column, int64_t n, T *out, int64_t to) {
  const lanes there = lanes_of(n);
  vec v[VL];
#pragma GCC unroll 16
  for (int i = 0; i < VL; ++i) v[i] = load_part(in + column[i], there);
  turn(v, VL);
#pragma GCC unroll 16
  for (int i = 0; i < VL; ++i)
    if (i < n) *(vec *)(out + i * to) = v[i];
}
#else
#define SQUARES 0
#define transpose(in, from, out, to)
#define transpose_columns(in, column, n, out, to)
#endif

// The sums of runs of 2 · half lanes, halved: those of a's runs come first. Each lane meets the one that is half a run away.
// Their places are read: compilers would make them of constants, lane by lane.
#define WHOLE_OF(bytes, type, other) __builtin_choose_expr(sizeof(T) == bytes, (type)0, other)
typedef __typeof__(WHOLE_OF(1, int8_t, WHOLE_OF(2, int16_t, WHOLE_OF(4, int32_t, (int64_t)0)))) place;
typedef place places __attribute__((vector_size(BYTES)));
#define RUN(l, half) (l) / half * 2 * half + (l) % half
#define RUNS(l, half) RUN(l, half), RUN(l + 1, half), RUN(l + 2, half), RUN(l + 3, half)
#define MANY_RUNS(l, half) RUNS(l, half), RUNS(l + 4, half), RUNS(l + 8, half), RUNS(l + 12, half)
#define ALL_RUNS(half) {MANY_RUNS(0, half), MANY_RUNS(16, half), MANY_RUNS(32, half), MANY_RUNS(48, half)}
static const place first_of_runs[][64] __attribute__((aligned(64))) = {
  ALL_RUNS(1), ALL_RUNS(2), ALL_RUNS(4), ALL_RUNS(8), ALL_RUNS(16), ALL_RUNS(32)
};
INSIDE vec halved(vec a, vec b, int half) {
  const places low = *(const places *)first_of_runs[__builtin_ctz(half)];
  return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, low + half);
}

// c[0 … lines) = the sums of the lanes of each vector, a power of 2 of them.
INSIDE void sums_of_lanes(vec *v, int lines, T *c) {
  int count = lines;
#pragma GCC unroll 8
  for (int half = VL / 2; half > 0; half /= 2) {
    if (count == 1) v[0] = halved(v[0], v[0], half);
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i) v[i] = halved(v[2 * i], v[2 * i + 1], half);
    count = count > 1 ? count / 2 : 1;
  }
  memcpy(c, v, lines * sizeof(T));
}

// q[p · width + x] = element (p, x) of k×n numbers, with zeros from column n to `width`.
static FUSED void lay_out(const IN *B, int64_t rb, int64_t cb, int64_t k, int64_t n, T *q, int64_t width) {
  int64_t done = 0;  // columns
  if (cb == 1 && n == width) {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t x = 0; x < n; ++x) q[p * width + x] = LOAD(B[p * rb + x]);
    return;
  }
  if (cb == 1) {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t x = 0; x < width; ++x) q[p * width + x] = x < n ? LOAD(B[p * rb + x]) : 0;
    return;
  }
  for (; SQUARES && rb == 1 && done + VL <= n; done += VL) {
    int64_t p = 0;
    for (; p + VL <= k; p += VL) transpose((const T *)B + done * cb + p, cb, q + p * width + done, width);
    for (; p < k; ++p)
      for (int x = 0; x < VL; ++x) q[p * width + done + x] = LOAD(B[p + (done + x) * cb]);
  }
  for (; done < width; done += 4)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t x = done; x < least(width, done + 4); ++x) q[p * width + x] = x < n ? LOAD(B[p * rb + x * cb]) : 0;
}

// Memory to work in: a thread keeps what it has had, for new memory costs a page fault every 4 KiB.
enum { PACKED_A, PACKED_B, BLOCK, PARTIAL, TURNED, TRANSPOSED, TABLES, ROOMS };
#define KEPT (64 << 20)  // bytes that are given back after the call
typedef struct {
  void *at;
  int64_t size;
} space;
static __thread space spaces[ROOMS];
static pthread_key_t leaving;
static void vacate(void *kept) {
  for (int n = 0; n < ROOMS; ++n) free(((space *)kept)[n].at);
  memset(kept, 0, sizeof(spaces));
}
static __attribute__((constructor)) void begin(void) { pthread_key_create(&leaving, vacate); }
static __attribute__((destructor)) void end_all(void) { pthread_key_delete(leaving); }

static T *room(int which, int64_t elements) {
  space *const own = spaces + which;
  const int64_t size = elements * (int64_t)sizeof(T);
  if (own->size < size) {
    const int64_t align = size >= 4 << 20 ? 2 << 20 : 64;
    free(own->at);
    own->size = parts(size, align) * align;
    own->at = aligned_alloc(align, own->size);
#ifdef MADV_HUGEPAGE
    if (align > 64) madvise(own->at, own->size, MADV_HUGEPAGE);
#endif
    pthread_setspecific(leaving, spaces);
  }
  return own->at;
}

static void tidy(void) {
  for (int n = 0; n < ROOMS; ++n)
    if (spaces[n].size > KEPT) {
      free(spaces[n].at);
      spaces[n] = (space){0};
    }
}

// What is done with rows r0 to r1 and columns c0 to c1 of item `item`, which lie in `block` with `ld` elements a row.
typedef void (*epilogue)(void **buffers, const int64_t *sizes, const T *block, int64_t ld, int64_t item, int64_t r0,
                     int64_t r1, int64_t c0, int64_t c1);

// One product of a batch: C[m, n] = sum over k of A[m, k] · B[k, n]. The columns of C lie dense.
typedef struct {
  int64_t M, N, K, ra, ca, rb, cb, rc, item;
  const IN *A, *B;
  OUT *C;
  epilogue call;  // or 0: the product itself is the result
  void **buffers;
  const int64_t *sizes;
  const int64_t *row_of_a, *depth_of_a, *depth_of_b, *column_of_b;  // of tables, one offset an index, in elements
  int columns, raw;  // whether A is packed by columns; whether it is read where it lies
  int crosswise;  // whether it is the transposed product that is wanted: blocks are transposed as they are handed on
  poller *poll;
} job;

// Whether sums can be taken straight in the result's memory.
static inline int in_place(const job *j) { return WHOLE && !j->call && !j->crosswise; }

// out[c][r] = in[r][c] for m rows and n columns.
#if defined(__AVX512F__)
static FUSED void transpose_narrow(const T *in, int64_t from, int64_t m, int64_t n, T *out, int64_t to) {
  const int half = VL / 2;
  const lanes first = lanes_of(n), other = first << half;
  for (int64_t r = 0; r < m; r += VL) {
    const int64_t rows = least(VL, m - r);
    vec v[VL / 2];
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      const T *const line = in + (r + i) * from;
      const vec low = i < rows ? load_part(line, first) : (vec){0};
      const vec high = i + half < rows ? load_part(line + half * from - half, other) : (vec){0};
      v[i] = (vec)((comparison)low | (comparison)high);
    }
    turn(v, half);
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i)
      if (i < n) store_part(out + i * to + r, v[i], lanes_of(rows));
  }
}
#endif
static FUSED void transpose_block(const T *in, int64_t from, int64_t m, int64_t n, T *out, int64_t to) {
#if defined(__AVX512F__)
  if (n <= VL / 2) {
    transpose_narrow(in, from, m, n, out, to);
    return;
  }
  for (int64_t c = 0; c < n; c += VL) {
    const int64_t columns = least(VL, n - c);
    const lanes across = lanes_of(columns);
    for (int64_t r = 0; r < m; r += VL) {
      const int64_t rows = least(VL, m - r);
      const lanes there = lanes_of(rows);
      vec v[VL];
#pragma GCC unroll 16
      for (int i = 0; i < VL; ++i) v[i] = i < rows ? load_part(in + (r + i) * from + c, across) : (vec){0};
      turn(v, VL);
#pragma GCC unroll 16
      for (int i = 0; i < VL; ++i)
        if (i < columns) store_part(out + (c + i) * to + r, v[i], there);
    }
  }
#else
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) out[c * to + r] = in[r * from + c];
#endif
}

// Hand on a block of finished sums.
static void finish(const job *j, const T *block, int64_t ld, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  if (j->crosswise) {
    job wanted = *j;
    wanted.crosswise = 0;
    if (in_place(&wanted)) {
      transpose_block(block, ld, r1 - r0, c1 - c0, (T *)j->C + c0 * j->rc + r0, j->rc);
      return;
    }
    T *const other = room(TRANSPOSED, (r1 - r0) * (c1 - c0));
    transpose_block(block, ld, r1 - r0, c1 - c0, other, r1 - r0);
    finish(&wanted, other, r1 - r0, c0, c1, r0, r1);
    return;
  }
  if (j->call) {
    j->call(j->buffers, j->sizes, block, ld, j->item, r0, r1, c0, c1);
    return;
  }
  for (int64_t r = r0; r < r1; ++r) {
    const T *from = block + (r - r0) * ld;
    OUT *to = j->C + r * j->rc;
    for (int64_t c = c0; c < c1; ++c) to[c] = SAVE(from[c - c0]);
  }
}
