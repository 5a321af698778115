// Products of few columns: vectors of half the length, of which processors that pass long ones in halves pass twice as many. A
// tile of rows and one such vector stays in registers over the whole of k; A is read where it lies, and B lies in the nearest cache.
#if BYTES == 64 && SAME
#define HALF (VL / 2)
#define NARROW_ROWS 8
#define NARROW_BYTES (128 << 10)  // of the packed B, which each tile of rows reads
#define NARROW_TASK 256  // rows
typedef T half_vec __attribute__((vector_size(BYTES / 2), aligned(sizeof(T)), may_alias));

#define NARROW(R)                                                                                                      \
  static FUSED void narrow_##R(int64_t k, const T *A, const int64_t *row, steps_of_a along, const T *restrict b, T *restrict c) { \
    half_vec acc[R];                                                                                                   \
    const T *a[R];                                                                                                     \
    _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) a[i] = A + row[i], acc[i] = (half_vec){0};                    \
    for (int64_t p = 0; p < k; ++p, b += HALF) {                                                                       \
      const int64_t at = STEP_OF_A(along, p);                                                                          \
      const half_vec x = *(const half_vec *)b;                                                                         \
      _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) acc[i] += a[i][at] * x;                                     \
    }                                                                                                                  \
    _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) *(half_vec *)(c + i * HALF) = acc[i];                         \
  }
NARROW(8)

static int is_narrow(const job *j) {
  return j->raw && j->N <= HALF && j->M >= NARROW_ROWS && j->K * HALF * (int64_t)sizeof(T) <= NARROW_BYTES;
}

// B, K rows of half a vector, with zeros behind the last column.
static const T *narrow_b(const job *j) {
  T *const b = room(PACKED_B, j->K * HALF);
  for (int64_t p = 0; p < j->K; ++p)
    for (int64_t x = 0; x < HALF; ++x) {
#ifdef BY_TABLES
      b[p * HALF + x] = x < j->N ? j->B[j->depth_of_b[p] + j->column_of_b[x]] : 0;
#else
      b[p * HALF + x] = x < j->N ? j->B[p * j->rb + x * j->cb] : 0;
#endif
    }
  return b;
}

// Rows r0 to r1. Where they do not come out even in tiles some are taken twice.
static FUSED void narrow_part(const job *j, const T *b, int64_t r0, int64_t r1) {
  const int64_t N = j->N;
  const int direct = in_place(j);
  T *const block = direct ? 0 : room(BLOCK, (r1 - r0) * N);
  for (int64_t i = r0; i < r1; i += NARROW_ROWS) {
    const int64_t first = least(i, j->M - NARROW_ROWS), rows = least(NARROW_ROWS, r1 - i);
    int64_t row[NARROW_ROWS];
    T sums[NARROW_ROWS * HALF] __attribute__((aligned(64)));
#ifdef BY_TABLES
    for (int64_t r = 0; r < NARROW_ROWS; ++r) row[r] = j->row_of_a[first + r];
    narrow_8(j->K, (const T *)j->A, row, j->depth_of_a, b, sums);
#else
    for (int64_t r = 0; r < NARROW_ROWS; ++r) row[r] = (first + r) * j->ra;
    narrow_8(j->K, (const T *)j->A, row, j->ca, b, sums);
#endif
    for (int64_t r = i; r < i + rows; ++r) {
      T *const to = direct ? (T *)j->C + r * j->rc : block + (r - r0) * N;
      const T *const from = sums + (r - first) * HALF;
      if (N == HALF) *(half_vec *)to = *(const half_vec *)from;
      else
        for (int64_t x = 0; x < N; ++x) to[x] = from[x];
    }
  }
  if (!direct) finish(j, block, N, r0, r1, 0, N);
}

static void narrow_product(const job *j, int threads) {
  const T *const b = narrow_b(j);
  const int64_t tasks = parts(j->M, NARROW_TASK);
  #pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1 && tasks > 1)
  for (int64_t t = 0; t < tasks; ++t) {
    if (interrupted(j->poll)) continue;
    narrow_part(j, b, t * NARROW_TASK, least(j->M, (t + 1) * NARROW_TASK));
  }
}
#else
#define is_narrow(j) 0
#define narrow_product(j, threads)
#endif
