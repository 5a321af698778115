// Products whose operands are read by tables: element (i, p) of A lies row_of_a[i] + depth_of_a[p] away, element (p, x) of B
// depth_of_b[p] + column_of_b[x]. So windows of an array, which overlap, are packed from where they lie, and never copied whole.
#ifdef BY_TABLES
// Whether the offsets of n neighbours lie together.
static inline int together(const int64_t *offsets, int64_t n) {
  int all = 1;
  for (int64_t x = 1; x < n; ++x) all &= offsets[x] == offsets[0] + x;
  return all;
}

static FUSED void pack_a(const job *j, int64_t ic, int64_t pc, int64_t m, int64_t k, T *q) {
  if (j->raw) return;
  const int64_t deep = steps_of(k), *const depth = j->depth_of_a + pc;
  for (int64_t i = 0; i < m; i += MR, q += MR * deep) {
    const int64_t rows = least(MR, m - i), *const row = j->row_of_a + ic + i;
    if (j->columns) {
      const int whole = rows == MR && together(row, MR);
      for (int64_t p = 0; p < deep; ++p) {
        const IN *const from = j->A + (p < k ? depth[p] : 0);
        T *const to = q + p * MR;
        if (whole && p < k)
          #pragma omp simd
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
  #pragma omp simd
  for (int64_t x = 0; x < VL; ++x) to[x] = LOAD(from[column[x]]);
#endif
}

// One vector of columns that lie anywhere.
static FUSED inline void gathered(const IN *from, const int64_t *column, T *to) {
#if defined(__AVX512F__) && SAME
  const __m512i first = _mm512_loadu_si512(column);
  if (sizeof(T) == 4) {
    const __m512i second = _mm512_loadu_si512(column + 8);
    _mm256_storeu_si256((void *)to, _mm512_i64gather_epi32(first, (const void *)from, 4));
    _mm256_storeu_si256((void *)(to + 8), _mm512_i64gather_epi32(second, (const void *)from, 4));
  } else
    _mm512_storeu_si512(to, _mm512_i64gather_epi64(first, (const void *)from, 8));
#else
  #pragma omp simd
  for (int64_t x = 0; x < VL; ++x) to[x] = LOAD(from[column[x]]);
#endif
}

// One vector of every other element; none beyond the last is read.
static FUSED inline void every_other(const IN *from, T *to) {
#if SQUARES
  const vec a = *(const vec *)from, b = *(const vec *)(from + VL - 1);
  comparison even;
#pragma GCC unroll 16
  for (int l = 0; l < VL; ++l) even[l] = l < VL / 2 ? 2 * l : 2 * l + 1;
  *(vec *)to = __builtin_shuffle(a, b, even);
#else
  #pragma omp simd
  for (int64_t x = 0; x < VL; ++x) to[x] = LOAD(from[2 * x]);
#endif
}

// Whether offsets are evenly spaced by so much.
static inline int spaced(const int64_t *offsets, int64_t n, int64_t apart) {
  int all = 1;
  for (int64_t x = 1; x < n; ++x) all &= offsets[x] - offsets[x - 1] == apart;
  return all;
}

#define SHORTEST 4  // steps that lie together, from which they are packed as a part of a square

// Whether rows of B are packed for all panels at once: where its depth lies together, and not its columns, squares are.
static int packs_across(const job *j) {
  return !SQUARES || j->N < VL || together(j->column_of_b, VL) || run_of(j->depth_of_b, least(j->K, VL)) < SHORTEST;
}

// One vector of a panel, whose columns lie anywhere and whose depth lies together in runs.
static FUSED void pack_turned(const IN *B, const int64_t *depth, const int64_t *column, int64_t k, T *q) {
  for (int64_t p = 0; p < k;) {
    const int64_t length = run_of(depth + p, least(VL, k - p));
    if (length >= SHORTEST) transpose_columns((const T *)B + depth[p], column, length, q + p * NR, NR);
    else
      for (int64_t e = p; e < p + length; ++e) gathered(B + depth[e], column, q + e * NR);
    p += length;
  }
}

static FUSED void pack_b(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *q) {
  const int64_t width = least(n, NR), *const depth = j->depth_of_b + pc, *const column = j->column_of_b + jc;
  const int across = packs_across(j);
  for (int64_t v = 0; v < parts(width, VL); ++v) {
    const int64_t *const at = column + v * VL;
    T *const to = q + v * VL;
    const int whole = v * VL + VL <= width;
    int64_t first = whole ? run_of(at, VL) : 0;  // columns that lie together; 0 where there are more than two runs of such
    if (first && first < VL && !together(at + first, VL - first)) first = 0;
    const int other = whole && !first && spaced(at, VL, 2);
    if (whole && !across) {
      pack_turned(j->B, depth, at, k, to);
      continue;
    }
    for (int64_t p = 0; p < k; ++p) {
      const IN *const from = j->B + depth[p];
      if (first == VL) {
        __builtin_prefetch(from + at[0] + NR);  // for the next panel
        #pragma omp simd
        for (int x = 0; x < VL; ++x) to[p * NR + x] = LOAD(from[at[0] + x]);
      } else if (first)
        two_runs(from, at, first, to + p * NR);
      else if (other)
        every_other(from + at[0], to + p * NR);
      else if (whole)
        gathered(from, at, to + p * NR);
      else
        for (int64_t x = 0; x < VL; ++x) to[p * NR + x] = v * VL + x < width ? LOAD(from[at[x]]) : 0;
    }
  }
  const int64_t filled = parts(width, VL) * VL;
  for (int64_t p = k; p < steps_of(k); ++p)
    for (int64_t x = 0; x < filled; ++x) q[p * NR + x] = 0;
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

// How A is read. Rows a multiple of 4 KiB apart would all lie in the same sets of the nearest cache, so they are packed.
static void choose_reading(job *j) {
  const int64_t apart = j->M > 1 ? j->row_of_a[1] - j->row_of_a[0] : 0;
  j->raw = SAME && (apart * (int64_t)sizeof(T)) % 4096 != 0;
  j->columns = j->M >= MR && together(j->row_of_a, MR) && !(j->K >= 4 && together(j->depth_of_a, 4));
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
  if (j->crosswise) *j = turned(j);
  choose_reading(j);
}
#endif
