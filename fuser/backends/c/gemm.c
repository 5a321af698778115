// Matrix products C[m,n] = sum over k of A[m,k]·B[k,n], for each of a batch; any strides, row-major dense result.
//
// Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): panels of A and B are packed, and a
// tile of MR×NR accumulators stays in vector registers. Sums over k run in blocks of at most KC in a fixed order, so
// results do not depend on the number of threads. IN, T and OUT are the types in memory, of the accumulators, and of the
// result; LOAD and SAVE convert. A `tail` is called with each finished block of the product while it is in the cache.
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__AVX512F__)
#define BYTES 64
#define MR 14
#elif defined(__AVX__)
#define BYTES 32
#define MR 6
#else
#define BYTES 16
#define MR 6
#endif
#define VL (BYTES / (int)sizeof(T))
#define NR (2 * VL)
#define KC 192
#define PANELS 16  // of MR rows that a thread packs at a time, at most
#define STRIP (16 << 20)  // bytes of B that are packed at a time
#define FUSED __attribute__((optimize("fp-contract=fast")))

typedef T vec __attribute__((vector_size(BYTES), aligned(sizeof(T))));

// What is done with rows r0 to r1 and columns c0 to c1 of the product, which lie in `block` with `ld` elements a row.
typedef void (*tail)(void **buffers, const int64_t *sizes, const T *block, int64_t ld, int64_t r0, int64_t r1,
                     int64_t c0, int64_t c1);
typedef struct {
  tail call;  // or 0: the product itself is the result
  void **buffers;
  const int64_t *sizes;
} ending;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline __attribute__((always_inline)) FUSED void tile(int64_t k, const T *restrict a, const T *restrict b,
                                                             T *restrict c, int64_t ldc, int add) {
  vec acc[MR][2];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) acc[i][0] = acc[i][1] = (vec){0};
  for (int64_t p = 0; p < k; ++p, a += MR, b += NR) {
    const vec b0 = *(const vec *)b, b1 = *(const vec *)(b + VL);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      acc[i][0] += a[i] * b0;
      acc[i][1] += a[i] * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    vec *d0 = (vec *)(c + i * ldc), *d1 = (vec *)(c + i * ldc + VL);
    *d0 = add ? *d0 + acc[i][0] : acc[i][0];
    *d1 = add ? *d1 + acc[i][1] : acc[i][1];
  }
}

// The MR×NR tile of rows below m and columns below n, through a full tile of its own.
static FUSED void ragged(int64_t k, const T *a, const T *b, T *c, int64_t ldc, int add, int64_t m, int64_t n) {
  T whole[MR * NR] __attribute__((aligned(64)));
  tile(k, a, b, whole, NR, 0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = add ? c[i * ldc + j] + whole[i * NR + j] : whole[i * NR + j];
}

static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t parts(int64_t total, int64_t size) { return (total + size - 1) / size; }

static void *room(int64_t elements) { return aligned_alloc(64, (elements * sizeof(T) + 63) / 64 * 64); }

static void pack_a(const IN *A, int64_t ra, int64_t ca, int64_t m, int64_t k, T *q) {
  for (int64_t i = 0; i < m; i += MR, q += MR * k) {
    if (ra == 1 && i + MR <= m) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t x = 0; x < MR; ++x) q[p * MR + x] = LOAD(A[i + x + p * ca]);
      continue;
    }
    for (int64_t x = 0; x < MR; ++x)
      for (int64_t p = 0; p < k; ++p) q[p * MR + x] = i + x < m ? LOAD(A[(i + x) * ra + p * ca]) : 0;
  }
}

static void pack_b(const IN *B, int64_t rb, int64_t cb, int64_t k, int64_t n, T *q) {
  if (cb == 1 && n == NR) {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t x = 0; x < NR; ++x) q[p * NR + x] = LOAD(B[p * rb + x]);
    return;
  }
  for (int64_t x = 0; x < NR; ++x)
    for (int64_t p = 0; p < k; ++p) q[p * NR + x] = x < n ? LOAD(B[p * rb + x * cb]) : 0;
}

// How far a team is with a strip of columns: panels that are being packed, or are packed, and blocks that are worked on.
typedef struct {
  int64_t packing, packed, working;
} progress;

// How a product is cut, and the progress of each strip (0: there is one thread).
typedef struct {
  int64_t steps, kc, nc, mc, width;
  progress *strips;
} cuts;

static inline int64_t following(int64_t *taken, int64_t task) {
  return taken ? __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED) : task + 1;
}

// What one thread of a team, or the only one, does for a product. Threads share the packed B and split rows. Nobody waits for a
// thread that has not come yet, which on a busy machine takes longer than the product. There is no `omp for` here: of a
// thread that is alone it would bind to a team around the whole product.
static FUSED void share(const IN *A, int64_t ra, int64_t ca, const IN *B, int64_t rb, int64_t cb, T *C, int64_t M,
                        int64_t N, int64_t K, ending end, cuts cut, T *pb) {
  const int64_t kc = cut.kc, nc = cut.nc, mc = cut.mc, width = cut.width;
  T *const pa = room(mc * kc), *const own = end.call ? room(mc * width) : 0;
  for (int64_t jc = 0; jc < N; jc += nc) {
    const int64_t n = least(nc, N - jc), padded = parts(n, NR) * NR;
    const int64_t panels = padded / NR, wide = parts(n, width), blocks = parts(M, mc) * wide;
    progress *const strip = cut.strips ? cut.strips + jc / nc : 0;
    int64_t *const packing = strip ? &strip->packing : 0, *const working = strip ? &strip->working : 0;
    for (int64_t t = following(packing, -1); t < cut.steps * panels; t = following(packing, t)) {
      const int64_t pc = t / panels * kc, j = t % panels * NR, k = least(kc, K - pc);
      pack_b(B + pc * rb + (jc + j) * cb, rb, cb, k, least(NR, n - j), pb + pc * padded + j * k);
      if (strip) __atomic_add_fetch(&strip->packed, 1, __ATOMIC_RELEASE);
    }
    while (strip && __atomic_load_n(&strip->packed, __ATOMIC_ACQUIRE) < cut.steps * panels) sched_yield();
    for (int64_t t = following(working, -1); t < blocks; t = following(working, t)) {
      const int64_t ic = t / wide * mc, from = t % wide * width;
      const int64_t m = least(mc, M - ic), to = least(n, from + width), ldc = end.call ? width : N;
      T *const block = end.call ? own : C + ic * ldc + jc + from;
      for (int64_t pc = 0; pc < K; pc += kc) {
        const int64_t k = least(kc, K - pc);
        pack_a(A + ic * ra + pc * ca, ra, ca, m, k, pa);
        for (int64_t j = from; j < to; j += NR)
          for (int64_t i = 0; i < m; i += MR) {
            const T *a = pa + i * k, *b = pb + pc * padded + j * k;
            T *c = block + i * ldc + j - from;
            if (i + MR <= m && j + NR <= to) tile(k, a, b, c, ldc, pc > 0);
            else ragged(k, a, b, c, ldc, pc > 0, least(MR, m - i), least(NR, to - j));
          }
      }
      if (end.call) end.call(end.buffers, end.sizes, block, ldc, ic, ic + m, jc + from, jc + to);
    }
    if (strip && jc + nc < N) {  // all have done with the packed B
      #pragma omp barrier
    }
  }
  free(pa);
  free(own);
}

// One product: into C, of the accumulators' type, or block by block to `end`.
static void product(const IN *A, int64_t ra, int64_t ca, const IN *B, int64_t rb, int64_t cb, T *C, int64_t M,
                    int64_t N, int64_t K, ending end) {
  const int64_t steps = parts(K, KC), kc = parts(K, steps), panels = parts(M, MR);
  const int64_t nc = least(parts(N, NR) * NR, most(8, STRIP / (K * NR * (int64_t)sizeof(T))) * NR);
  const int threads = M * N * K > 200000 ? omp_get_max_threads() : 1;
  const int64_t rounds = most(parts(panels, PANELS * threads), threads > 1 ? 2 : 1);
  const int64_t mc = parts(panels, least(panels, rounds * threads)) * MR, blocks = parts(M, mc);
  const int64_t width = parts(parts(nc, NR), blocks < threads ? parts(2 * threads, blocks) : 1) * NR;
  cuts cut = {steps, kc, nc, mc, width, 0};
  T *const pb = room(K * nc);
  if (threads > 1) {
    cut.strips = calloc(parts(N, nc), sizeof(progress));
    #pragma omp parallel num_threads(threads)
    share(A, ra, ca, B, rb, cb, C, M, N, K, end, cut, pb);
    free(cut.strips);
  } else {  // opening a team of one would cost as much as a small product
    share(A, ra, ca, B, rb, cb, C, M, N, K, end, cut, pb);
  }
  free(pb);
}

// Elements base … base+n of a row times a matrix whose rows lie dense, four of those at a time.
static inline FUSED void row_part(const IN *a, int64_t sa, const IN *B, int64_t rb, T *restrict c, int64_t n, int64_t K) {
  for (int64_t j = 0; j < n; ++j) c[j] = 0;
  int64_t p = 0;
  for (; p + 4 <= K; p += 4) {
    const T x0 = LOAD(a[p * sa]), x1 = LOAD(a[(p + 1) * sa]), x2 = LOAD(a[(p + 2) * sa]), x3 = LOAD(a[(p + 3) * sa]);
    const IN *b = B + p * rb;
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j)
      c[j] += (x0 * (T)LOAD(b[j]) + x1 * (T)LOAD(b[rb + j])) + (x2 * (T)LOAD(b[2 * rb + j]) + x3 * (T)LOAD(b[3 * rb + j]));
  }
  for (; p < K; ++p) {
    const T x = LOAD(a[p * sa]);
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j) c[j] += x * (T)LOAD(B[p * rb + j]);
  }
}

// Elements first … last of a row times a matrix: eight short sums at a time, or long ones along the vector.
static inline FUSED void row_dots(const IN *a, int64_t sa, const IN *B, int64_t rb, int64_t cb, T *c, int64_t sc,
                                  int64_t first, int64_t last, int64_t K) {
  int64_t j = first;
  for (; K < 64 && j + 8 <= last; j += 8) {
    T total[8] = {0};
    for (int64_t p = 0; p < K; ++p) {
      const T x = LOAD(a[p * sa]);
      for (int u = 0; u < 8; ++u) total[u] += x * (T)LOAD(B[p * rb + (j + u) * cb]);
    }
    for (int u = 0; u < 8; ++u) c[(j + u) * sc] = total[u];
  }
  for (; j < last; ++j) {
    T total = 0;
    #pragma omp simd reduction(+ : total)
    for (int64_t p = 0; p < K; ++p) total += (T)LOAD(a[p * sa]) * (T)LOAD(B[p * rb + j * cb]);
    c[j * sc] = total;
  }
}

// A row times a matrix: nothing is packed, for each element of the matrix is used once. Parts do not depend on threads.
static FUSED void row_product(const IN *a, int64_t sa, const IN *B, int64_t rb, int64_t cb, T *c, int64_t sc, int64_t N,
                              int64_t K) {
  const int64_t dense = cb == 1 && sc == 1, part = dense ? 1024 : 32;
  if (N * K <= 100000) {  // opening a team, even of one thread, would cost as much
    for (int64_t j = 0; j < N; j += part) {
      if (dense) row_part(a, sa, B + j, rb, c + j, least(part, N - j), K);
      else row_dots(a, sa, B, rb, cb, c, sc, j, least(j + part, N), K);
    }
    return;
  }
  #pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < N; j += part) {
    if (dense) row_part(a, sa, B + j, rb, c + j, least(part, N - j), K);
    else row_dots(a, sa, B, rb, cb, c, sc, j, least(j + part, N), K);
  }
}

// sizes: batch M N K, the strides of A (batch, m, k) and of B (batch, k, n), in elements, and whether there is a tail:
// buffers then holds A, B, the tail, its buffers and its sizes, and the batch is 1.
static void one(void **buffers, const int64_t *sizes, int64_t item) {
  const int64_t M = sizes[1], N = sizes[2], K = sizes[3];
  const int64_t *sa = sizes + 4, *sb = sizes + 7;
  const IN *A = (const IN *)buffers[0] + item * sa[0], *B = (const IN *)buffers[1] + item * sb[0];
  const ending none = {0};
  if (sizes[10]) {
    const ending end = {(tail)buffers[2], buffers[3], buffers[4]};
    product(A, sa[1], sa[2], B, sb[1], sb[2], 0, M, N, K, end);
    return;
  }
  OUT *out = (OUT *)buffers[2] + item * M * N;
  T *C = sizeof(T) == sizeof(OUT) ? (T *)out : malloc(M * N * sizeof(T));
  if (M == 1) row_product(A, sa[2], B, sb[1], sb[2], C, 1, N, K);
  else if (N == 1) row_product(B, sb[1], A, sa[2], sa[1], C, 1, M, K);
  else product(A, sa[1], sa[2], B, sb[1], sb[2], C, M, N, K, none);
  if (sizeof(T) != sizeof(OUT)) {
    for (int64_t i = 0; i < M * N; ++i) out[i] = SAVE(C[i]);
    free(C);
  }
}

void gemm(void **buffers, const int64_t *sizes) {
  const int64_t batch = sizes[0], work = sizes[1] * sizes[2] * sizes[3];
  if (batch == 1 || batch * work <= 20000) {
    for (int64_t item = 0; item < batch; ++item) one(buffers, sizes, item);
    return;
  }
  #pragma omp parallel for schedule(static) if (work < 4000000 && batch * work > 200000)
  for (int64_t item = 0; item < batch; ++item) one(buffers, sizes, item);
}
