// One row times a matrix, at the speed of memory: each element of the matrix is used once, where it lies.
//
// Either rows of the matrix lie dense, and eight of them are added to the result at a time; or columns do, and eight sums
// run along vectors side by side, or one after the other where they are long and come from far: memory is read fastest in its order. Long sums are cut into chunks by sizes alone, whose sums are added up in order.
#define LINES 8
#define SPLIT 4096  // steps of a sum from which it may be cut
#define FAR (1 << 24)  // bytes of a matrix that caches do not hold
#define SHORT 8  // vectors of a sum up to which those of x stay in registers
#define LONG 16  // vectors of a sum that takes its line's time alone

// c[0 … n) = the sum over p of x[p] · row p of B, whose elements lie dense.
static FUSED void add_rows(const T *x, const IN *B, int64_t rb, T *restrict c, int64_t n, int64_t k) {
  int64_t p = 0;
  for (int64_t j = 0; j < n; ++j) c[j] = 0;
  for (; p + LINES <= k; p += LINES) {
    const IN *b = B + p * rb;
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const T even = (x[p] * (T)LOAD(b[j]) + x[p + 1] * (T)LOAD(b[rb + j])) + (x[p + 2] * (T)LOAD(b[2 * rb + j]) + x[p + 3] * (T)LOAD(b[3 * rb + j]));
      const T odd = (x[p + 4] * (T)LOAD(b[4 * rb + j]) + x[p + 5] * (T)LOAD(b[5 * rb + j])) + (x[p + 6] * (T)LOAD(b[6 * rb + j]) + x[p + 7] * (T)LOAD(b[7 * rb + j]));
      c[j] += even + odd;
    }
  }
  for (; p < k; ++p) {
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j) c[j] += x[p] * (T)LOAD(B[p * rb + j]);
  }
}

static FUSED T whole_sum(vec v) {
  T total[VL];
  memcpy(total, &v, sizeof v);
  for (int width = VL / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) total[i] += total[i + width];
  return total[0];
}

#if SAME
// The products of x and a column, as a vector of sums.
static FUSED vec dot_column(const T *x, const T *b, int64_t k) {
  const int64_t whole = k / VL * VL;
  vec acc[4] = {{0}};
  int64_t p = 0;
  for (; p + 4 * VL <= k; p += 4 * VL)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) acc[u] += *(const vec *)(x + p + u * VL) * *(const vec *)(b + p + u * VL);
  for (; p < whole; p += VL) acc[0] += *(const vec *)(x + p) * *(const vec *)(b + p);
  if (p < k) {
    const lanes last = lanes_of(k - whole);
    acc[0] += load_part(x + p, last) * load_part(b + p, last);
  }
  return (acc[0] + acc[1]) + (acc[2] + acc[3]);
}

// The same for columns of `count` vectors, of which the last may be a part: x stays in registers, and B is read in its order.
static inline __attribute__((always_inline)) void dot_short(const T *x, const T *B, int64_t cb, T *c, int64_t n, int64_t k, const int count) {
  const lanes last = lanes_of(k - (count - 1) * VL);
  vec y[SHORT], acc[LINES];
#pragma GCC unroll 8
  for (int v = 0; v < count; ++v) y[v] = v + 1 < count ? *(const vec *)(x + v * VL) : load_part(x + v * VL, last);
  int64_t j = 0;
  for (; j < n; j += LINES) {
    const int lines = (int)least(LINES, n - j);
#pragma GCC unroll 8
    for (int u = 0; u < LINES; ++u) {
      const T *const b = B + (j + least(u, lines - 1)) * cb;
      acc[u] = y[count - 1] * load_part(b + (count - 1) * VL, last);
#pragma GCC unroll 8
      for (int v = 0; v + 1 < count; ++v) acc[u] += y[v] * *(const vec *)(b + v * VL);
    }
    if (lines == LINES) {
      sums_of_lanes(acc, LINES, c + j);
    } else {
      T sums[LINES];
      sums_of_lanes(acc, LINES, sums);
      memcpy(c + j, sums, lines * sizeof(T));
    }
  }
}

#define CASE(count) case count: dot_short(x, B, cb, c, n, k, count); return 1;
static FUSED int dot_short_columns(const T *x, const T *B, int64_t cb, T *c, int64_t n, int64_t k) {
  switch (parts(k, VL)) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
  return 0;
}
#undef CASE

// c[0 … n) = sums along the columns of B, whose elements lie dense (rb is 1); `far`: of a matrix that caches do not hold.
static FUSED void dot_columns(const T *x, const T *B, int64_t cb, T *c, int64_t n, int64_t k, int far) {
  if (n >= LINES && dot_short_columns(x, B, cb, c, n, k)) return;
  const int64_t whole = k / VL * VL;
  const lanes last = lanes_of(k - whole);
  const int in_turn = far && k >= LONG * VL;
  int64_t j = 0;
  for (; j + LINES <= n; j += LINES) {
    const T *b = B + j * cb;
    vec acc[LINES];
    if (in_turn) {
      for (int u = 0; u < LINES; ++u) acc[u] = dot_column(x, b + u * cb, k);
      sums_of_lanes(acc, LINES, c + j);
      continue;
    }
#pragma GCC unroll 8
    for (int u = 0; u < LINES; ++u) acc[u] = (vec){0};
    for (int64_t p = 0; p < whole; p += VL) {
      const vec y = *(const vec *)(x + p);
#pragma GCC unroll 8
      for (int u = 0; u < LINES; ++u) acc[u] += y * *(const vec *)(b + u * cb + p);
    }
    if (whole < k) {
      const vec y = load_part(x + whole, last);
#pragma GCC unroll 8
      for (int u = 0; u < LINES; ++u) acc[u] += y * load_part(b + u * cb + whole, last);
    }
    sums_of_lanes(acc, LINES, c + j);
  }
  for (; j < n; ++j) c[j] = whole_sum(dot_column(x, B + j * cb, k));
}
#else
static FUSED void dot_columns(const T *x, const IN *B, int64_t cb, T *c, int64_t n, int64_t k, int far) {
  for (int64_t j = 0; j < n; ++j) {
    T total = 0;
    #pragma omp simd reduction(+ : total)
    for (int64_t p = 0; p < k; ++p) total += x[p] * (T)LOAD(B[p + j * cb]);
    c[j] = total;
  }
}
#endif

static FUSED void dot_strided(const T *x, const IN *B, int64_t rb, int64_t cb, T *c, int64_t n, int64_t k) {
  for (int64_t j = 0; j < n; ++j) {
    T total = 0;
    for (int64_t p = 0; p < k; ++p) total += x[p] * (T)LOAD(B[p * rb + j * cb]);
    c[j] = total;
  }
}

// Columns c0 to c1 and steps p0 to p1 of row r.
static void row_part(const job *j, const T *x, int64_t c0, int64_t c1, int64_t p0, int64_t p1, T *c) {
  const IN *B = j->B + p0 * j->rb + c0 * j->cb;
  const int64_t n = c1 - c0, k = p1 - p0;
  if (j->cb == 1 && !(j->rb == 1 && n < k)) add_rows(x + p0, B, j->rb, c, n, k);
  else if (j->rb == 1) dot_columns(x + p0, B, j->cb, c, n, k, j->N * j->K * (int64_t)sizeof(T) > FAR);
  else dot_strided(x + p0, B, j->rb, j->cb, c, n, k);
}

// One row of A times B; `big` says that several threads pay.
static void vector_row(const job *j, int64_t r, int threads) {
  const int64_t N = j->N, K = j->K;
  const int dense = j->cb == 1 && !(j->rb == 1 && N < K);
  const IN *const a = j->A + r * j->ra;
  const T *x = (const T *)a;
  if (!SAME || j->ca != 1) {
    T *const own = room(PACKED_A, K);
    for (int64_t p = 0; p < K; ++p) own[p] = LOAD(a[p * j->ca]);
    x = own;
  }
  // A long sum for few results is cut; a wide row is dealt out by columns.
  const int64_t pieces = K >= SPLIT && N * K >= 1 << 17 && N <= (dense ? 2048 : 64) ? 8 : 1, deep = parts(K, pieces);
  const int64_t part = pieces > 1 ? N : least(N, dense ? 1024 : most(64, (1 << 15) / K / LINES * LINES)), across = parts(N, part);
  const int64_t tasks = pieces * across;
  T *const sums = in_place(j) && pieces == 1 ? (T *)j->C + r * j->rc : room(PARTIAL, pieces * N);
  if (threads > 1 && tasks > 1) {
    #pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t t = 0; t < tasks; ++t) {
      const int64_t c = t % across * part, p = t / across * deep;
      row_part(j, x, c, least(N, c + part), p, least(K, p + deep), sums + t / across * N + c);
    }
  } else {
    for (int64_t t = 0; t < tasks; ++t) {
      const int64_t c = t % across * part, p = t / across * deep;
      row_part(j, x, c, least(N, c + part), p, least(K, p + deep), sums + t / across * N + c);
    }
  }
  for (int64_t t = 1; t < pieces; ++t)
    for (int64_t c = 0; c < N; ++c) sums[c] += sums[t * N + c];
  if (!in_place(j)) finish(j, sums, N, r, r + 1, 0, N);
  else if (pieces > 1) memcpy((T *)j->C + r * j->rc, sums, N * sizeof(T));
}

// Few rows that are too few for tiles.
static int is_vector(const job *j) { return j->M == 1; }

static void vector_product(const job *j, int threads) {
  for (int64_t r = 0; r < j->M; ++r) vector_row(j, r, threads);
}
