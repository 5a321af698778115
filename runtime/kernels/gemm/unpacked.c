// Products whose second matrix is small, or whose rows are few: nothing is packed that can be read where it lies. A tile of
// up to DR rows and three vectors stays in registers over the whole of k, so each sum is taken in one go.
#define WIDE (3 * VL)
#define NEAR (96 << 10)  // bytes of a second matrix that stays in a near cache
#define NEAREST (32 << 10)  // bytes of one that stays in the nearest cache, which many rows need
#define REACH (1 << 20)  // bytes of one that fewer rows than many read where it lies: to pack it takes longer
#define MANY 256  // rows that are many
#define WIDE_RESULT (4 * VL)  // rows and columns of a product that is taken transposed
#define DEPTH_TO_TURN (16 * CHUNKS)
#define DEEP_IN_GROUPS 24  // elements of a sum from which packed panels pay that take several a step
#define CHUNK (32 << 10)  // bytes of A that are one task, about

#define DIRECT(R, V)                                                                                                   \
  static FUSED void direct_##R##_##V(int64_t k, const T *a, int64_t ra, int64_t ca, const T *b, int64_t rb, T *c,      \
                                     int64_t rc, lanes last) {                                                         \
    vec acc[R][V];                                                                                                     \
    _Pragma("GCC unroll 8") for (int i = 0; i < R; ++i) {                                                              \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] = (vec){0};                                        \
    }                                                                                                                  \
    for (int64_t p = 0; p < k; ++p, a += ca, b += rb) {                                                                \
      vec row[V];                                                                                                      \
      _Pragma("GCC unroll 4") for (int v = 0; v + 1 < V; ++v) row[v] = *(const vec *)(b + v * VL);                     \
      row[V - 1] = load_part(b + (V - 1) * VL, last);                                                                  \
      _Pragma("GCC unroll 8") for (int i = 0; i < R; ++i) {                                                            \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] += a[i * ra] * row[v];                           \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("GCC unroll 8") for (int i = 0; i < R; ++i) {                                                              \
      _Pragma("GCC unroll 4") for (int v = 0; v + 1 < V; ++v) *(vec *)(c + i * rc + v * VL) = acc[i][v];               \
      store_part(c + i * rc + (V - 1) * VL, acc[i][V - 1], last);                                                      \
    }                                                                                                                  \
  }
#define ROWS(R) DIRECT(R, 1) DIRECT(R, 2) DIRECT(R, 3)
ROWS(1) ROWS(2) ROWS(3) ROWS(4)
#if DR == 8
ROWS(6) ROWS(8)
#endif
typedef void (*direct)(int64_t, const T *, int64_t, int64_t, const T *, int64_t, T *, int64_t, lanes);
static const direct directs[DR + 1][3] = {
  [1] = {direct_1_1, direct_1_2, direct_1_3}, [2] = {direct_2_1, direct_2_2, direct_2_3},
  [3] = {direct_3_1, direct_3_2, direct_3_3}, [4] = {direct_4_1, direct_4_2, direct_4_3},
#if DR == 8
  [6] = {direct_6_1, direct_6_2, direct_6_3}, [8] = {direct_8_1, direct_8_2, direct_8_3},
#endif
};

// Rows of a block, for so few rows that blocks should be even. Where they do not come out even some are taken twice.
#if DR == 8
static const int8_t even_rows[2 * DR + 1] = {0, 1, 2, 3, 4, 3, 6, 4, 8, 6, 6, 6, 6, 8, 8, 8, 8};
#else
static const int8_t even_rows[2 * DR + 1] = {0, 1, 2, 3, 4, 3, 3, 4, 4};
#endif

// The product of m rows and n columns. Small batches come here for each item, so nothing is divided.
static inline void direct_block(int64_t m, int64_t n, int64_t k, const T *a, int64_t ra, int64_t ca, const T *b, int64_t rb,
                                T *c, int64_t rc) {
  const int64_t vectors = parts(n, VL), most_of = vectors == 4 ? 2 : least(vectors, 3);
  const int64_t rows = m > 2 * DR ? DR : even_rows[m];
  for (int64_t v = 0; v < vectors; v += most_of) {
    const int64_t these = least(most_of, vectors - v), j = v * VL;
    const direct run = directs[rows][these - 1];
    const lanes last = lanes_of(n - j - (these - 1) * VL);
    for (int64_t i = 0; i < m; i += rows) {
      const int64_t r = least(i, m - rows);
      run(k, a + r * ra, ra, ca, b + j, rb, c + r * rc + j, rc, last);
    }
  }
}

// Rows r0 to r1 and columns c0 to c1; b is the second matrix from column c0 on.
static void direct_part(const job *j, const T *b, int64_t rb, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t m = r1 - r0, n = c1 - c0, K = j->K;
  int64_t ra = j->ra, ca = j->ca;
#if SAME
  const T *a = j->A + r0 * ra;
#else
  T *const a = room(PACKED_A, m * K);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < K; ++p) a[i * K + p] = LOAD(j->A[(r0 + i) * ra + p * ca]);
  ra = K, ca = 1;
#endif
  if (in_place(j)) {
    direct_block(m, n, K, a, ra, ca, b, rb, (T *)j->C + r0 * j->rc + c0, j->rc);
    return;
  }
  T *const block = room(BLOCK, m * n);
  direct_block(m, n, K, a, ra, ca, b, rb, block, n);
  finish(j, block, n, r0, r1, c0, c1);
}

// Whether the second matrix is read where it lies.
static inline int in_reach(const job *j) { return SAME && j->cb == 1; }

// Whether a long sum for few results is taken in chunks that are read where they lie.
static int deep_in_reach(const job *j) { return is_deep(j) && in_reach(j) && j->M <= 2 * DR && j->N <= WIDE_RESULT; }

// Whether columns that lie along k are turned into rows a strip at a time, each of which all rows of A then read.
static int in_strips(const job *j) {
  return SQUARES && SAME && j->rb == 1 && j->cb != 1 && j->M < MANY && j->K * j->N * (int64_t)sizeof(T) > NEAR;
}

static int is_direct(const job *j) {
  if (GROUP > 1 && j->K >= DEEP_IN_GROUPS && j->M >= MR) return 0;
  const int64_t size = j->K * j->N * (int64_t)sizeof(T);
  const int64_t most_of = j->M >= MANY ? NEAREST : in_reach(j) || in_strips(j) ? REACH : NEAR;
  return (!is_deep(j) || deep_in_reach(j)) && (size <= most_of || (j->M <= 2 * DR && in_reach(j)));
}

static void product_in_strips(const job *j, int threads) {
  const int64_t M = j->M, N = j->N, K = j->K, strips = parts(N, WIDE);
  #pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
  for (int64_t t = 0; t < strips; ++t) {
    if (interrupted(j->poll)) continue;
    const int64_t c = t * WIDE, n = least(WIDE, N - c), wide = parts(n, VL) * VL;
    T *const b = room(PACKED_B, K * wide);
    lay_out(j->B + c * j->cb, j->rb, j->cb, K, n, b, wide);
    direct_part(j, b, wide, 0, M, c, c + n);
  }
}

static const T *dense_b(const job *j, int64_t *rb) {
  const int64_t N = j->N, K = j->K, wide = parts(N, VL) * VL;
  if (in_reach(j)) {
    *rb = j->rb;
    return (const T *)j->B;
  }
  T *const b = room(PACKED_B, K * wide);
  lay_out(j->B, j->rb, j->cb, K, N, b, wide);
  *rb = wide;
  return b;
}

// Long sums in chunks whose rows are read where they lie; `is_turned` if `j` is the transposed product of `given`.
static void deep_direct_product(const job *j, const job *given, int is_turned, int threads) {
  const int64_t M = j->M, N = j->N, chunk = parts(j->K, CHUNKS), count = parts(j->K, chunk);
  T *const all = room(PARTIAL, count * M * N);
  #pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t t = 0; t < count; ++t) {
    const int64_t first = t * chunk, k = least(chunk, j->K - first);
    direct_block(M, N, k, (const T *)j->A + first * j->ca, j->ra, j->ca, (const T *)j->B + first * j->rb, j->rb, all + t * M * N, N);
  }
  add_chunks(given, all, count, is_turned);
}

// Whether rows of B's transpose and columns of A's lie where they can be read: then the transposed product is taken, which
// is short beside its sums.
static int is_turned_direct(const job *j) {
  const int lie = SAME && j->ra == 1 && j->ca != 1 && j->rb == 1 && j->cb != 1;
  return lie && j->M <= WIDE_RESULT && j->N <= WIDE_RESULT && j->K >= DEPTH_TO_TURN && j->K >= 8 * most(j->M, j->N);
}

static void turned_product(const job *j, int threads) {
  const job t = turned(j);
  deep_direct_product(&t, j, 1, threads);
}

static void direct_product(const job *j, int threads) {
  if (deep_in_reach(j)) {
    deep_direct_product(j, j, 0, threads);
    return;
  }
  if (in_strips(j)) {
    product_in_strips(j, threads);
    return;
  }
  int64_t rb;
  const T *const b = dense_b(j, &rb);
  const int64_t M = j->M, N = j->N, K = j->K;
  if (M <= 2 * DR && N <= 4 * WIDE) {
    direct_part(j, b, rb, 0, M, 0, N);
    return;
  }
  const int64_t task = most(1, CHUNK / (most(K, N) * (int64_t)sizeof(T)) / DR) * DR;
  const int64_t rows = M <= 2 * DR ? M : least(M, task), columns = M <= 2 * DR ? least(N, 4 * WIDE) : N;
  const int64_t across = parts(N, columns), tasks = parts(M, rows) * across;
  if (threads > 1 && tasks > 1) {
    #pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t t = 0; t < tasks; ++t) {
      if (interrupted(j->poll)) continue;
      const int64_t r = t / across * rows, c = t % across * columns;
      direct_part(j, b + c, rb, r, least(M, r + rows), c, least(N, c + columns));
    }
  } else {
    for (int64_t t = 0; t < tasks; ++t) {
      if (interrupted(j->poll)) continue;
      const int64_t r = t / across * rows, c = t % across * columns;
      direct_part(j, b + c, rb, r, least(M, r + rows), c, least(N, c + columns));
    }
  }
}
