// Products whose rows and columns both lie along k, of few rows or few columns: a result is the sum of a vector's lanes, and
// nothing is packed or transposed, which would take longer than the product. A tile of IR rows and IC columns stays in
// registers over the whole of k.
#if defined(__AVX512F__)
#define IR 4
#else
#define IR 2
#endif
#define IC 4
#define FEWEST_ROWS 8
#define FEW_ROWS 16
#define FEW_COLUMNS 8
#define ROW_BYTES (512 << 10)  // of A, which is read again for every IC columns

#define INNER(R, C)                                                                                                    \
  static FUSED void inner_##R##_##C(int64_t k, const T *a, int64_t ra, const T *b, int64_t cb, T *c, int64_t rc) {      \
    vec acc[R * C], column[C];                                                                                         \
    _Pragma("GCC unroll 16") for (int t = 0; t < R * C; ++t) acc[t] = (vec){0};                                        \
    int64_t p = 0;                                                                                                     \
    for (; p + VL <= k; p += VL) {                                                                                     \
      _Pragma("GCC unroll 4") for (int x = 0; x < C; ++x) column[x] = *(const vec *)(b + x * cb + p);                  \
      _Pragma("GCC unroll 4") for (int i = 0; i < R; ++i) {                                                            \
        const vec row = *(const vec *)(a + i * ra + p);                                                                \
        _Pragma("GCC unroll 4") for (int x = 0; x < C; ++x) acc[i * C + x] += row * column[x];                         \
      }                                                                                                                \
    }                                                                                                                  \
    if (p < k) {                                                                                                       \
      const lanes there = lanes_of(k - p);                                                                             \
      _Pragma("GCC unroll 4") for (int x = 0; x < C; ++x) column[x] = load_part(b + x * cb + p, there);                \
      _Pragma("GCC unroll 4") for (int i = 0; i < R; ++i) {                                                            \
        const vec row = load_part(a + i * ra + p, there);                                                              \
        _Pragma("GCC unroll 4") for (int x = 0; x < C; ++x) acc[i * C + x] += row * column[x];                         \
      }                                                                                                                \
    }                                                                                                                  \
    T sums[R * C];                                                                                                     \
    sums_of_lanes(acc, R * C, sums);                                                                                   \
    _Pragma("GCC unroll 4") for (int i = 0; i < R; ++i) memcpy(c + i * rc, sums + i * C, C * sizeof(T));               \
  }
#define INNERS(R) INNER(R, 1) INNER(R, 2) INNER(R, 4)
INNERS(1) INNERS(2)
typedef void (*inner)(int64_t, const T *, int64_t, const T *, int64_t, T *, int64_t);
#if IR == 4
INNERS(4)
#else
#define inner_4_1 0
#define inner_4_2 0
#define inner_4_4 0
#endif
static const inner inners[3][3] = {
  {inner_1_1, inner_1_2, inner_1_4}, {inner_2_1, inner_2_2, inner_2_4}, {inner_4_1, inner_4_2, inner_4_4},
};

// Adding up a vector's lanes takes as long as four steps along k; what is packed instead serves all rows.
static int is_inner(const job *j) {
  const int64_t depth = (j->M <= FEWEST_ROWS ? 4 : j->N <= FEW_COLUMNS ? 8 : 12) * VL;
  const int along = SAME && j->ca == 1 && j->rb == 1 && j->cb != 1 && j->K >= depth;
  return along && (j->M <= FEW_ROWS || j->N <= FEW_COLUMNS) && least(j->M, FEW_ROWS) * j->K * (int64_t)sizeof(T) <= ROW_BYTES;
}

// m rows from `a` times n columns from `b`, over k. Where they do not come out even in tiles some are taken twice.
static void inner_block(int64_t m, int64_t n, int64_t k, const T *a, int64_t ra, const T *b, int64_t cb, T *c, int64_t rc) {
  const int i_rows = m >= 4 && IR == 4 ? 2 : m >= 2, i_columns = n >= 4 ? 2 : n >= 2;
  const int64_t rows = 1 << i_rows, columns = 1 << i_columns;
  const inner run = inners[i_rows][i_columns];
  for (int64_t x = 0; x < n; x += columns) {
    const int64_t to = least(x, n - columns);
    for (int64_t i = 0; i < m; i += rows) {
      const int64_t r = least(i, m - rows);
      run(k, a + r * ra, ra, b + to * cb, cb, c + r * rc + to, rc);
    }
  }
}

static void inner_part(const job *j, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const T *const a = (const T *)j->A + r0 * j->ra, *const b = (const T *)j->B + c0 * j->cb;
  const int64_t m = r1 - r0, n = c1 - c0;
  if (in_place(j)) {
    inner_block(m, n, j->K, a, j->ra, b, j->cb, (T *)j->C + r0 * j->rc + c0, j->rc);
    return;
  }
  T *const block = room(BLOCK, m * n);
  inner_block(m, n, j->K, a, j->ra, b, j->cb, block, n);
  finish(j, block, n, r0, r1, c0, c1);
}

static void inner_product(const job *j, int threads) {
  const int64_t M = j->M, N = j->N, K = j->K;
  if (is_deep(j)) {
    const int64_t chunk = parts(parts(K, CHUNKS), VL) * VL, count = parts(K, chunk);
    T *const all = room(PARTIAL, count * M * N);
    #pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t t = 0; t < count; ++t) {
      const int64_t first = t * chunk;
      inner_block(M, N, least(chunk, K - first), (const T *)j->A + first, j->ra, (const T *)j->B + first, j->cb, all + t * M * N, N);
    }
    add_chunks(j, all, count, 0);
    return;
  }
  const int64_t rows = least(M, FEW_ROWS), columns = least(N, 8 * IC);
  const int64_t across = parts(N, columns), tasks = parts(M, rows) * across;
  #pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1 && tasks > 1)
  for (int64_t t = 0; t < tasks; ++t) {
    if (interrupted(j->poll)) continue;
    const int64_t r = t / across * rows, c = t % across * columns;
    inner_part(j, r, least(M, r + rows), c, least(N, c + columns));
  }
}

// Few columns whose matrix is small enough to transpose it first: the lanes of one vector are multiplied by a row of A at once, of which
// other forms use as many as there are columns.
#define FEWEST_COLUMNS 4
static int is_inner_of_few(const job *j) {
  const int64_t steps = parts(j->K, VL);
  const int few = j->N > 1 && j->N <= FEWEST_COLUMNS && j->M >= FEWEST_ROWS && j->K * j->N * (int64_t)sizeof(T) <= NEAREST;
  return SAME && few && j->ca == 1 && j->K >= 2 * VL && (steps + 4) * j->N <= j->K && !is_deep(j);
}

static void inner_product_of_few(const job *j, int threads) {
  const int64_t N = j->N, K = j->K;
  T *const b = room(PACKED_B, N * K);
  for (int64_t x = 0; x < N; ++x)
    for (int64_t p = 0; p < K; ++p) b[x * K + p] = LOAD(j->B[p * j->rb + x * j->cb]);
  job t = *j;
  t.B = (const IN *)b, t.rb = 1, t.cb = K;
  inner_product(&t, threads);
}
