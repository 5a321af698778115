// Products whose operands are read by tables: element (i, p) of A lies row_of_a[i] + depth_of_a[p] away, element (p, x) of B
// depth_of_b[p] + column_of_b[x]. So windows of an array, which overlap, are packed from where they lie, and never copied whole.
#ifdef BY_TABLES
static inline int by_columns(const job *j) { return j->columns; }

// Whether the offsets of n neighbours lie together.
static inline int together(const int64_t *offsets, int64_t n) {
  int all = 1;
  for (int64_t x = 1; x < n; ++x) all &= offsets[x] == offsets[0] + x;
  return all;
}

// A tile of MR rows and V vectors, A read where it lies: packing it would cost as much as the products of few columns.
#define RAW(V)                                                                                                         \
  static FUSED void raw_##V(int64_t k, const T *A, const int64_t *row, const int64_t *restrict depth,                  \
                            const T *restrict b, T *restrict c, int64_t ldc, int add) {                                \
    vec acc[MR][V];                                                                                                    \
    const T *a[MR];                                                                                                    \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                            \
      a[i] = A + row[i];                                                                                               \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] = (vec){0};                                        \
    }                                                                                                                  \
    for (int64_t p = 0; p < k; ++p, b += NR) {                                                                         \
      const int64_t at = depth[p];                                                                                     \
      vec x[V];                                                                                                        \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) x[v] = *(const vec *)(b + v * VL);                           \
      _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                          \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] += a[i][at] * x[v];                              \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                            \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) {                                                            \
        vec *d = (vec *)(c + i * ldc + v * VL);                                                                        \
        if (add) *d += acc[i][v];                                                                                      \
        else *d = acc[i][v];                                                                                           \
      }                                                                                                                \
    }                                                                                                                  \
  }
RAW(1)
RAW(2)
#if NV == 3
RAW(3)
#else
#define raw_3 0
#endif
typedef void (*raw)(int64_t, const T *, const int64_t *, const int64_t *, const T *, T *, int64_t, int);
static const raw raws[3] = {raw_1, raw_2, raw_3};

// The product of rows ic to ic + m of A and packed panels of B, added to what is in c if `add` says so.
static FUSED void multiply_raw(const job *j, int64_t ic, int64_t pc, const T *pb, int64_t k, int64_t m, int64_t n, T *c,
                               int64_t ldc, int add) {
  const int64_t deep = fours(k), *const depth = j->depth_of_a + pc;
  for (int64_t x = 0; x < n && !interrupted(j->poll); x += NR) {
    const int64_t vectors = least(NV, parts(n - x, VL)), whole_vectors = n - x >= vectors * VL;
    for (int64_t i = 0; i < m; i += MR) {
      const int64_t *row = j->row_of_a + ic + i, rows = least(MR, m - i);
      T *const to = c + i * ldc + x;
      if (rows == MR && whole_vectors) {
        raws[vectors - 1](k, (const T *)j->A, row, depth, pb + x * deep, to, ldc, add);
        continue;
      }
      T whole[MR * NR] __attribute__((aligned(64)));
      int64_t offsets[MR];
      for (int64_t r = 0; r < MR; ++r) offsets[r] = row[least(r, rows - 1)];
      raws[vectors - 1](k, (const T *)j->A, offsets, depth, pb + x * deep, whole, NR, 0);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t s = 0; s < least(n - x, NR); ++s)
          to[r * ldc + s] = add ? to[r * ldc + s] + whole[r * NR + s] : whole[r * NR + s];
    }
  }
}

static FUSED void pack_a(const job *j, int64_t ic, int64_t pc, int64_t m, int64_t k, T *q) {
  if (j->raw) return;
  const int64_t deep = fours(k), *const depth = j->depth_of_a + pc;
  for (int64_t i = 0; i < m; i += MR, q += MR * deep) {
    const int64_t rows = least(MR, m - i), *const row = j->row_of_a + ic + i;
    if (j->columns) {
      const int whole = rows == MR && together(row, MR);
      for (int64_t p = 0; p < deep; ++p) {
        const IN *const from = j->A + (p < k ? depth[p] : 0);
        T *const to = q + p * MR;
        if (whole && p < k)
          for (int x = 0; x < MR; ++x) to[x] = LOAD(from[row[0] + x]);
        else
          for (int64_t x = 0; x < MR; ++x) to[x] = x < rows && p < k ? LOAD(from[row[x]]) : 0;
      }
      continue;
    }
    for (int64_t p = 0; p < deep; p += 4) {
      T *const to = q + p * MR;
      const int whole = p + 4 <= k && together(depth + p, 4);
      for (int64_t x = 0; x < MR; ++x) {
        if (x >= rows)
          for (int u = 0; u < 4; ++u) to[x * 4 + u] = 0;
        else if (whole)
          for (int u = 0; u < 4; ++u) to[x * 4 + u] = LOAD(j->A[row[x] + depth[p] + u]);
        else
          for (int u = 0; u < 4; ++u) to[x * 4 + u] = p + u < k ? LOAD(j->A[row[x] + depth[p + u]]) : 0;
      }
    }
  }
}

// How many of n offsets lie together from the first one on.
static inline int64_t run_of(const int64_t *offsets, int64_t n) {
  int64_t length = 1;
  while (length < n && offsets[length] == offsets[0] + length) ++length;
  return length;
}

// One vector of columns, of which the first `split` lie together, and the others.
static FUSED inline void two_runs(const IN *from, const int64_t *column, int64_t split, T *to) {
#if defined(__AVX512F__) && SAME
  const lanes first = lanes_of(split), rest = lanes_of(VL) & ~first;
  const T *const a = (const T *)from + column[0], *const b = (const T *)from + column[split] - split;
  if (sizeof(T) == 4)
    _mm512_storeu_si512(to, _mm512_mask_loadu_epi32(_mm512_maskz_loadu_epi32(first, a), rest, b));
  else
    _mm512_storeu_si512(to, _mm512_mask_loadu_epi64(_mm512_maskz_loadu_epi64(first, a), rest, b));
#else
  for (int64_t x = 0; x < VL; ++x) to[x] = LOAD(from[column[x]]);
#endif
}

static FUSED void pack_b(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *q) {
  const int64_t width = least(n, NR), *const depth = j->depth_of_b + pc, *const column = j->column_of_b + jc;
  int64_t first[NV];  // columns of each vector that lie together; 0 where there are more than two runs of such
  for (int64_t v = 0; v < NV; ++v) {
    const int64_t *const at = column + v * VL;
    first[v] = v * VL + VL <= width ? run_of(at, VL) : 0;
    if (first[v] && first[v] < VL && !together(at + first[v], VL - first[v])) first[v] = 0;
  }
  for (int64_t p = 0; p < k; ++p) {
    const IN *const from = j->B + depth[p];
    for (int64_t v = 0; v < NV; ++v) {
      T *const to = q + p * NR + v * VL;
      if (first[v] == VL)
        for (int x = 0; x < VL; ++x) to[x] = LOAD(from[column[v * VL] + x]);
      else if (first[v])
        two_runs(from, column + v * VL, first[v], to);
      else
        for (int64_t x = 0; x < VL; ++x) to[x] = v * VL + x < width ? LOAD(from[column[v * VL + x]]) : 0;
    }
  }
  for (int64_t p = k * NR; p < fours(k) * NR; ++p) q[p] = 0;
}

// The offsets along dimensions, each (extent, stride, …) with `step` numbers; the last runs fastest.
static void fill_table(int64_t *table, const int64_t *dimensions, int64_t count, int64_t step, int64_t which) {
  int64_t length = 1;
  table[0] = 0;
  for (int64_t d = 0; d < count; ++d) {
    const int64_t extent = dimensions[d * step], stride = dimensions[d * step + which];
    for (int64_t i = length; i-- > 0;)
      for (int64_t e = extent; e-- > 0;) table[i * extent + e] = table[i] + e * stride;
    length *= extent;
  }
}

// The tables of a product, from the three lists of dimensions at `at`: of rows, of columns (extent, stride each), and of
// the depth (extent, strides in A and B), each behind its length.
static void make_tables(job *j, const int64_t *at) {
  int64_t *const all = (int64_t *)room(TABLES, parts((j->M + j->N + 2 * j->K) * 8, (int64_t)sizeof(T)));
  int64_t *const rows = all, *const columns = rows + j->M, *const a = columns + j->N, *const b = a + j->K;
  const int64_t *const across = at + 1 + 2 * at[0], *const deep = across + 1 + 2 * across[0];
  fill_table(rows, at + 1, at[0], 2, 1);
  fill_table(columns, across + 1, across[0], 2, 1);
  fill_table(a, deep + 1, deep[0], 3, 1);
  fill_table(b, deep + 1, deep[0], 3, 2);
  j->row_of_a = rows, j->column_of_b = columns, j->depth_of_a = a, j->depth_of_b = b;
  // Rows a multiple of 4 KiB apart would all lie in the same sets of the nearest cache.
  const int64_t apart = j->M > 1 ? rows[1] - rows[0] : 0;
  j->raw = SAME && (apart * (int64_t)sizeof(T)) % 4096 != 0;
  j->columns = j->M >= MR && together(rows, MR) && !(j->K >= 4 && together(a, 4));
}
#endif
