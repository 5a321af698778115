// Large products, after Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): panels of A and B
// are packed, and a tile of MR×NR accumulators stays in vector registers. Sums over k run in blocks of at most KC in a
// fixed order, so results do not depend on the number of threads.
#define NR (NV * VL)
#define KC (GROUP * 2048 / (int)sizeof(T))  // MR rows of so many are a third of the first cache, PANELS times MR half of the second
#define PANELS 32  // of MR rows that a thread packs at a time, at most
#define LEAST_SYMMETRIC 192  // rows of a symmetric product from which it pays to compute half of it
#define WHOLE_BLOCKS (NV == 4 ? 64 : 48)  // columns that come out even for all tiles
#define LINE (64 / (int)sizeof(IN))  // elements of a line of the cache
#define PACKED_ROWS 16  // of B that are packed for all panels at once, which reads them as they lie
#define FEW_PANELS 2  // of B, for which A, where its columns lie dense, is not packed
#define STRIP (16 << 20)  // bytes of B that are packed at a time, about: for each strip A is packed once more

// What a step adds to a sum; what it adds to the part that all rows have too much, and how that is taken away in the end.
#define MULTIPLY_ADD(sums, a, row) (sums + a * row)
#define MULTIPLY_ADD_EXCESS(excess, row) excess
#define MULTIPLY_ADD_LESS(sums, excess) sums
#define ADD_PAIRS_EXCESS(excess, row) excess
#define ADD_PAIRS_LESS(sums, excess) sums
#define DOT_PAIRS_EXCESS(excess, row) excess
#define DOT_PAIRS_LESS(sums, excess) sums
#if PAIR > 1 && BYTES == 64
#define ADD_PAIRS(sums, a, row) (sums + (vec)_mm512_madd_epi16(_mm512_set1_epi32(a), (__m512i)row))
#define DOT_PAIRS(sums, a, row) (vec)_mm512_dpwssd_epi32((__m512i)sums, _mm512_set1_epi32(a), (__m512i)row)
// The instruction takes one factor without and one with a sign. Of A, whose highest bits are turned, it is the one that B's is not:
// each is 128 too much (or too little), so that each sum has 128 times those of B too much.
#define SIGNED ((IN)-1 < 0)
#define DOT_QUADS_OF(sums, a, row)                                                                                     \
  (vec)(SIGNED ? _mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(a), (__m512i)row)                                  \
               : _mm512_dpbusd_epi32((__m512i)sums, (__m512i)row, _mm512_set1_epi32(a)))
#define DOT_QUADS(sums, a, row) DOT_QUADS_OF(sums, a, row)
#define DOT_QUADS_EXCESS(excess, row) DOT_QUADS_OF(excess, (int)0x80808080u, row)
#define DOT_QUADS_LESS(sums, excess) (sums - excess)
#elif PAIR > 1
#define ADD_PAIRS(sums, a, row) (sums + (vec)_mm256_madd_epi16(_mm256_set1_epi32(a), (__m256i)row))
#endif

// A tile of MR rows and V vectors. Of A either MR elements lie together, or (FOUR) four of each row.
#define TILE(NAME, V, ROW, STEP, MULTIPLY_ADD)                                                                         \
  static FUSED void NAME(int64_t k, const T *restrict a, const T *restrict b, T *restrict c, int64_t ldc, int add) {    \
    vec acc[MR][V], excess[V];                                                                                         \
    _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) excess[v] = (vec){0};                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                            \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] = (vec){0};                                        \
      __builtin_prefetch(c + i * ldc, 1);                                                                              \
      __builtin_prefetch(c + i * ldc + NR - 1, 1);                                                                     \
    }                                                                                                                  \
    for (int64_t p = 0; p < k; p += 4, a += 4 * MR)                                                                    \
      _Pragma("GCC unroll 4") for (int q = 0; q < 4; ++q, b += NR) {                                                   \
        vec row[V];                                                                                                    \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) row[v] = *(const vec *)(b + v * VL);                       \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) excess[v] = MULTIPLY_ADD##_EXCESS(excess[v], row[v]);      \
        _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                        \
          _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] = MULTIPLY_ADD(acc[i][v], a[i * ROW + q * STEP], row[v]); \
        }                                                                                                              \
      }                                                                                                                \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                            \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) {                                                            \
        vec *d = (vec *)(c + i * ldc + v * VL);                                                                        \
        const vec sum = MULTIPLY_ADD##_LESS(acc[i][v], excess[v]);                                                     \
        if (add) *d += sum;                                                                                            \
        else *d = sum;                                                                                                 \
      }                                                                                                                \
    }                                                                                                                  \
  }
typedef void (*tile)(int64_t, const T *, const T *, T *, int64_t, int);
#define TILES(V, KIND, STEP) TILE(KIND##_rows_##V, V, 4, 1, STEP) TILE(KIND##_columns_##V, V, 1, MR, STEP)
#if NV >= 4
#define ALL_TILES(KIND, STEP) TILES(1, KIND, STEP) TILES(2, KIND, STEP) TILES(3, KIND, STEP) TILES(4, KIND, STEP)
#define TABLE(KIND) {{KIND##_rows_1, KIND##_rows_2, KIND##_rows_3, KIND##_rows_4}, {KIND##_columns_1, KIND##_columns_2, KIND##_columns_3, KIND##_columns_4}}
#elif NV >= 3
#define ALL_TILES(KIND, STEP) TILES(1, KIND, STEP) TILES(2, KIND, STEP) TILES(3, KIND, STEP)
#define TABLE(KIND) {{KIND##_rows_1, KIND##_rows_2, KIND##_rows_3}, {KIND##_columns_1, KIND##_columns_2, KIND##_columns_3}}
#else
#define ALL_TILES(KIND, STEP) TILES(1, KIND, STEP) TILES(2, KIND, STEP)
#define TABLE(KIND) {{KIND##_rows_1, KIND##_rows_2}, {KIND##_columns_1, KIND##_columns_2}}
#endif
#if PAIR == 1
ALL_TILES(tile, MULTIPLY_ADD)
static const tile tiles[2][NV] = TABLE(tile);
#elif BYTES == 32
ALL_TILES(tile, ADD_PAIRS)
static const tile tiles[2][NV] = TABLE(tile);
#elif defined(__AVX512VNNI__) && defined(FOURFOLD)
ALL_TILES(tile, DOT_QUADS)
static const tile tiles[2][NV] = TABLE(tile);
#elif defined(__AVX512VNNI__)
ALL_TILES(tile, DOT_PAIRS)
static const tile tiles[2][NV] = TABLE(tile);
#else  // what was built for all processors with AVX-512 finds out whether this one has the sum as part of the instruction
ALL_TILES(added, ADD_PAIRS)
#pragma GCC push_options
#pragma GCC target("avx512vnni")
#ifdef FOURFOLD
ALL_TILES(dotted, DOT_QUADS)
#else
ALL_TILES(dotted, DOT_PAIRS)
#endif
#pragma GCC pop_options
static const tile both[2][2][NV] = {TABLE(added), TABLE(dotted)};
#define tiles both[__builtin_cpu_supports("avx512vnni") != 0]
#endif

// Rows below m and columns below n of a tile.
static inline FUSED void store_corner(const T *whole, T *c, int64_t ldc, int add, int64_t m, int64_t n) {
  const int64_t vectors = parts(n, VL);
  const lanes last = lanes_of(n - (vectors - 1) * VL), every = lanes_of(VL);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t v = 0; v < vectors; ++v) {
      const lanes part = v + 1 < vectors ? every : last;
      T *const to = c + i * ldc + v * VL;
      vec sum = *(const vec *)(whole + i * NR + v * VL);
      if (add) sum += load_part(to, part);
      store_part(to, sum, part);
    }
}

// The MR×NR tile of rows below m and columns below n; what is not whole goes through a tile of its own.
static inline FUSED void tile_of(int columns, int64_t k, const T *a, const T *b, T *c, int64_t ldc, int add, int64_t m,
                                 int64_t n) {
  const int64_t vectors = least(NV, parts(n, VL));
  const tile run = tiles[columns][vectors - 1];
  if (m >= MR && n >= vectors * VL) {
    run(k, a, b, c, ldc, add);
    return;
  }
  T whole[MR * NR] __attribute__((aligned(64)));
  run(k, a, b, whole, NR, 0);
  store_corner(whole, c, ldc, add, least(m, MR), least(n, NR));
}

// What k elements of a sum are in a panel: steps, filled up with zeros to a multiple of four.
static inline int64_t steps_of(int64_t k) { return parts(k, 4 * GROUP) * 4; }
#ifdef BY_TABLES
static FUSED void pack_a(const job *j, int64_t ic, int64_t pc, int64_t m, int64_t k, T *q);  // these: tables.c
static FUSED void pack_b(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *q);
static int packs_across(const job *j);
static void choose_reading(job *j);
#else
// Whether a block of B's rows is packed for all panels at once, for so it lies in memory.
static int packs_across(const job *j) { return j->cb == 1; }

// How A is read. Rows a multiple of 4 KiB apart would all lie in the same sets of the nearest cache, so they are packed.
static void choose_reading(job *j) {
  j->columns = j->ra == 1 && j->ca != 1;
  j->raw = SAME && (j->ca == 1 ? j->ra * (int64_t)sizeof(T) % 4096 != 0 : j->ra == 1 && j->N <= FEW_PANELS * NR);
}

#if PAIR > 1
static void pack_a(const job *j, int64_t ic, int64_t pc, int64_t m, int64_t k, T *q);  // these: pairs.c
static void pack_b(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *q);
#else
static FUSED void pack_a(const job *j, int64_t ic, int64_t pc, int64_t m, int64_t k, T *q) {
  if (j->raw) return;
  const int64_t ra = j->ra, ca = j->ca, deep = steps_of(k);
  const IN *A = j->A + ic * ra + pc * ca;
  if (j->columns) {  // some rows of memory for all panels, then the next
    for (int64_t first = 0; first < deep; first += PACKED_ROWS)
      for (int64_t i = 0; i < m; i += MR) {
        const int64_t rows = least(MR, m - i);
        T *const to = q + i * deep;
        for (int64_t p = first; p < least(deep, first + PACKED_ROWS); ++p) {
          const IN *from = A + i + p * ca;
          if (rows == MR && p < k)
            for (int64_t x = 0; x < MR; ++x) to[p * MR + x] = LOAD(from[x]);
          else
            for (int64_t x = 0; x < MR; ++x) to[p * MR + x] = x < rows && p < k ? LOAD(from[x]) : 0;
        }
      }
    return;
  }
  int64_t whole = 0;  // rows in panels that are full, if rows lie dense: a line of each row at a time, so that all MR come together
  for (; ca == 1 && whole + MR <= m; whole += MR, q += MR * deep) {
    const IN *const from = A + whole * ra;
    int64_t p = 0;
    for (; p + LINE <= k; p += LINE)
      for (int64_t x = 0; x < MR; ++x)
        for (int64_t v = p; v < p + LINE; v += 4)
          for (int u = 0; u < 4; ++u) q[v * MR + x * 4 + u] = LOAD(from[x * ra + v + u]);
    for (; p < deep; p += 4)
      for (int64_t x = 0; x < MR; ++x)
        for (int u = 0; u < 4; ++u) q[p * MR + x * 4 + u] = p + u < k ? LOAD(from[x * ra + p + u]) : 0;
  }
  for (int64_t i = whole; i < m; i += MR, q += MR * deep)
    for (int64_t x = 0; x < MR; ++x) {
      const IN *from = A + (i + x) * ra;
      T *to = q + x * 4;
      int64_t p = 0;
      if (i + x >= m) {
        for (; p < deep; p += 4)
          for (int u = 0; u < 4; ++u) to[p * MR + u] = 0;
        continue;
      }
      for (; p < deep; p += 4)
        for (int u = 0; u < 4; ++u) to[p * MR + u] = p + u < k ? LOAD(from[(p + u) * ca]) : 0;
    }
}

static void pack_b(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *q) {
  lay_out(j->B + pc * j->rb + jc * j->cb, j->rb, j->cb, k, least(n, NR), q, NR);
  for (int64_t p = k * NR; p < steps_of(k) * NR; ++p) q[p] = 0;
}
#endif
#endif

// Tiles of MR rows and V vectors, A read where it lies: packing it would cost as much as the products of few columns. `along`
// says how far step p of a sum lies from the first: a table, or the stride.
#ifdef BY_TABLES
typedef const int64_t *steps_of_a;
#define STEP_OF_A(along, p) (along)[p]
#else
typedef int64_t steps_of_a;
#define STEP_OF_A(along, p) ((p) * (along))
#endif
#define RAW(V)                                                                                                         \
  static FUSED void raw_##V(int64_t k, const T *A, const int64_t *row, steps_of_a along, const T *restrict b,          \
                            T *restrict c, int64_t ldc, int add) {                                                     \
    vec acc[MR][V];                                                                                                    \
    const T *a[MR];                                                                                                    \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                            \
      a[i] = A + row[i];                                                                                               \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] = (vec){0}, __builtin_prefetch(c + i * ldc + v * VL, 1); \
    }                                                                                                                  \
    for (int64_t p = 0; p < k; ++p, b += NR) {                                                                         \
      const int64_t at = STEP_OF_A(along, p);                                                                          \
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
typedef void (*raw)(int64_t, const T *, const int64_t *, steps_of_a, const T *, T *, int64_t, int);
RAW(1)
RAW(2)
#if NV >= 3
RAW(3)
#else
#define raw_3 0
#endif
#if NV >= 4
RAW(4)
#else
#define raw_4 0
#endif
static const raw raws[4] = {raw_1, raw_2, raw_3, raw_4};

// The product of rows ic to ic + m of A and packed panels of B, added to what is in c if `add` says so.
static FUSED void multiply_raw(const job *j, int64_t ic, int64_t pc, const T *pb, int64_t k, int64_t m, int64_t n, T *c,
                               int64_t ldc, int add) {
  const int64_t deep = steps_of(k);
#ifdef BY_TABLES
  const T *const A = (const T *)j->A;
  const steps_of_a along = j->depth_of_a + pc;
#else
  const T *const A = (const T *)j->A + pc * j->ca;
  const steps_of_a along = j->ca;
#endif
  for (int64_t x = 0; x < n && !interrupted(j->poll); x += NR) {
    const int64_t vectors = least(NV, parts(n - x, VL)), whole_vectors = n - x >= vectors * VL;
    for (int64_t i = 0; i < m; i += MR) {
      const int64_t rows = least(MR, m - i);
      int64_t row[MR];  // beyond the last one, that once more
#ifdef BY_TABLES
      for (int64_t r = 0; r < MR; ++r) row[r] = j->row_of_a[ic + i + least(r, rows - 1)];
#else
      for (int64_t r = 0; r < MR; ++r) row[r] = (ic + i + least(r, rows - 1)) * j->ra;
#endif
      T *const to = c + i * ldc + x;
      if (rows == MR && whole_vectors) {
        raws[vectors - 1](k, A, row, along, pb + x * deep, to, ldc, add);
        continue;
      }
      T whole[MR * NR] __attribute__((aligned(64)));
      raws[vectors - 1](k, A, row, along, pb + x * deep, whole, NR, 0);
      store_corner(whole, to, ldc, add, rows, least(n - x, NR));
    }
  }
}

// The product of packed panels, m×k and k×n, added to what is in c if `add` says so.
static FUSED void multiply_panels(poller *poll, int columns, const T *pa, const T *pb, int64_t k, int64_t m, int64_t n,
                                  T *c, int64_t ldc, int add) {
  const int64_t deep = steps_of(k);
  for (int64_t j = 0; j < n && !interrupted(poll); j += NR)
    for (int64_t i = 0; i < m; i += MR)
      tile_of(columns, deep, pa + i * deep, pb + j * deep, c + i * ldc + j, ldc, add, m - i, n - j);
}

// Rows ic to ic + m of A, packed in `pa` if they are not read where they lie, times packed panels.
static inline void multiply(const job *j, int64_t ic, int64_t pc, const T *pa, const T *pb, int64_t k, int64_t m, int64_t n,
                            T *c, int64_t ldc, int add) {
  if (j->raw && SAME) multiply_raw(j, ic, pc, pb, k, m, n, c, ldc, add);
  else multiply_panels(j->poll, j->columns, pa, pb, k, m, n, c, ldc, add);
}

// Pack rows pc to pc + k and n columns from jc on into panels.
static void pack_panels(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *pb) {
  const int64_t deep = steps_of(k), rows = packs_across(j) ? PACKED_ROWS : k;
  for (int64_t p = 0; p < k; p += rows)
    for (int64_t x = 0; x < n; x += NR) pack_b(j, pc + p, jc + x, least(rows, k - p), n - x, pb + x * deep + p / GROUP * NR);
}

// How far a team is with a strip of columns: panels that are being packed, or are packed, and blocks that are worked on.
typedef struct {
  int64_t packing, packed, working;
} progress;

// How a product is cut, and the progress of the strip (0: there is one thread).
typedef struct {
  int64_t steps, kc, deep, nc, mc, width;
  int symmetric;  // half of it is computed, and the other half mirrored
  progress *strip;
} cuts;

// Whether the product is that of a matrix and its own transpose: then element (r, c) is element (c, r), to the last bit.
static int is_symmetric(const job *j) {
#ifdef BY_TABLES
  return 0;
#endif
  return (const void *)j->A == (const void *)j->B && j->M == j->N && j->ra == j->cb && j->ca == j->rb;
}

// Put rows ic to ic + m of columns c0 to c1, which begin at `block`, where the columns and rows change positions.
static FUSED void mirror(const job *j, const T *block, int64_t ld, int64_t ic, int64_t m, int64_t c0, int64_t c1) {
  T *const turned = in_place(j) ? 0 : room(TURNED, WHOLE_BLOCKS * m);
  for (int64_t c = c0; c < c1; c += WHOLE_BLOCKS) {
    const int64_t width = least(WHOLE_BLOCKS, c1 - c), to = turned ? m : j->rc;
    const T *const from = block + c - c0;
    T *const out = turned ? turned : (T *)j->C + c * j->rc + ic;
    int64_t x = 0;
    for (; SQUARES && width == WHOLE_BLOCKS && x + VL <= m; x += VL)
      for (int64_t p = 0; p < width; p += VL) transpose((const T *)from + x * ld + p, ld, out + p * to + x, to);
    for (; x < m; ++x)
      for (int64_t p = 0; p < width; ++p) out[p * to + x] = from[x * ld + p];
    if (turned) finish(j, turned, m, c, c + width, ic, ic + m);
  }
}

static inline int64_t following(int64_t *taken, int64_t task) {
  return taken ? __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED) : task + 1;
}

// What one thread of a team, or the only one, does for the columns from jc on. Threads share the packed B and split rows. Nobody
// waits for a thread that has not come yet, which on a busy machine takes longer than the product. There is no `omp for`
// here: of a thread that is alone it would bind to a team around the whole product.
static FUSED void share(const job *j, cuts cut, T *pb, int64_t jc) {
  const int64_t M = j->M, N = j->N, K = j->K, kc = cut.kc, nc = cut.nc, mc = cut.mc, width = cut.width;
  const int direct = in_place(j), symmetric = cut.symmetric;
  T *const pa = room(PACKED_A, mc * cut.deep), *const own = direct ? 0 : room(BLOCK, mc * width);
  const int64_t n = least(nc, N - jc), padded = parts(n, NR) * NR;
  const int64_t across = packs_across(j) ? padded : NR, down = packs_across(j) ? PACKED_ROWS : kc;
  const int64_t pieces = padded / across, tasks = parts(kc, down) * pieces, wide = parts(n, width), blocks = parts(M, mc) * wide;
  progress *const strip = cut.strip;
  int64_t *const packing = strip ? &strip->packing : 0, *const working = strip ? &strip->working : 0;
  for (int64_t t = following(packing, -1); t < cut.steps * tasks; t = following(packing, t)) {
    const int64_t step = t / tasks, p = t % tasks / pieces * down, x = t % pieces * across, k = least(kc, K - step * kc);
    T *const panels = pb + step * cut.deep * padded + p / GROUP * NR;
    for (int64_t c = x; p < k && c < least(n, x + across); c += NR)
      pack_b(j, step * kc + p, jc + c, least(down, k - p), n - c, panels + c * steps_of(k));
    if (strip) __atomic_add_fetch(&strip->packed, 1, __ATOMIC_RELEASE);
  }
  while (strip && __atomic_load_n(&strip->packed, __ATOMIC_ACQUIRE) < cut.steps * tasks) sched_yield();
  for (int64_t t = following(working, -1); t < blocks; t = following(working, t)) {
    const int64_t ic = t / wide * mc, from = symmetric ? most(0, ic - jc) : t % wide * width;
    if (from >= n || interrupted(j->poll)) continue;  // below the diagonal
    const int64_t m = least(mc, M - ic), to = symmetric ? n : least(n, from + width), ldc = direct ? j->rc : width;
    T *const block = direct ? (T *)j->C + ic * ldc + jc + from : own;
    for (int64_t step = 0; step < cut.steps; ++step) {
      const int64_t k = least(kc, K - step * kc);
      pack_a(j, ic, step * kc, m, k, pa);
      const T *const panels_b = pb + step * cut.deep * padded + from * steps_of(k);
      multiply(j, ic, step * kc, pa, panels_b, k, m, to - from, block, ldc, step > 0);
    }
    if (!direct) finish(j, block, ldc, ic, ic + m, jc + from, jc + to);
    if (symmetric) {
      const int64_t beyond = most(jc + from, ic + m);
      mirror(j, block + beyond - jc - from, ldc, ic, m, beyond, jc + to);
    }
  }
}

static void packed_product(const job *j, int threads) {
  const int64_t M = j->M, N = j->N, K = j->K;
  const int64_t steps = parts(K, KC), kc = steps_of(parts(K, steps)) * GROUP, panels = parts(M, MR);
  const int64_t strips = most(1, parts(N, NR) * NR * steps * kc * (int64_t)sizeof(T) * 2 / (3 * STRIP));
  const int64_t nc = parts(parts(N, NR), strips) * NR;
  const int64_t rounds = most(parts(panels, PANELS * threads), threads > 1 ? 2 : 1);
  const int symmetric = M >= LEAST_SYMMETRIC && is_symmetric(j);
  const int64_t even = parts(parts(M, WHOLE_BLOCKS), 4 * rounds * threads) * WHOLE_BLOCKS;
  const int64_t mc = symmetric ? even : parts(panels, least(panels, rounds * threads)) * MR, blocks = parts(M, mc);
  const int64_t width = symmetric ? nc : parts(parts(nc, NR), blocks < threads ? parts(2 * threads, blocks) : 1) * NR;
  cuts cut = {parts(K, kc), kc, steps_of(kc), nc, mc, width, symmetric, 0};
  T *const pb = room(PACKED_B, cut.steps * kc * nc);
  if (threads > 1) {
    for (int64_t jc = 0; jc < N; jc += nc) {
      progress strip = {0};
      cut.strip = &strip;
      #pragma omp parallel num_threads(threads)
      share(j, cut, pb, jc);
    }
  } else {  // opening a team of one would cost as much as a small product
    for (int64_t jc = 0; jc < N; jc += nc) share(j, cut, pb, jc);
  }
}

// Long sums for few results: each chunk of k, cut by sizes alone, has partial sums, which are added up in order.
#define CHUNKS 8
#define DEEP 4096
static FUSED void chunk_product(const job *j, int64_t first, int64_t last, T *c) {
  const int64_t M = j->M, N = j->N, mc = least(M, PANELS * MR), wide = parts(N, NR) * NR;
  T *const pa = room(PACKED_A, parts(mc, MR) * MR * KC), *const pb = room(PACKED_B, wide * KC);
  for (int64_t pc = first; pc < last; pc += KC) {
    const int64_t k = least(KC, last - pc);
    pack_panels(j, pc, 0, k, N, pb);
    for (int64_t ic = 0; ic < M; ic += mc) {
      const int64_t m = least(mc, M - ic);
      pack_a(j, ic, pc, m, k, pa);
      multiply(j, ic, pc, pa, pb, k, m, N, c + ic * N, N, pc > first);
    }
  }
}

static int is_deep(const job *j) { return j->K >= DEEP && j->M * j->N <= 1 << 17 && j->K >= 8 * most(j->M, j->N); }

// The transposed product, Bᵀ times Aᵀ: what has few columns fills vectors if they are rows.
static job turned(const job *j) {
  job t = *j;
  t.M = j->N, t.N = j->M, t.A = j->B, t.B = j->A, t.ra = j->cb, t.ca = j->rb, t.rb = j->ca, t.cb = j->ra;
  t.row_of_a = j->column_of_b, t.column_of_b = j->row_of_a, t.depth_of_a = j->depth_of_b, t.depth_of_b = j->depth_of_a;
  choose_reading(&t);
  return t;
}

static FUSED void add_chunks(const job *j, T *all, int64_t count, int is_turned) {
  const int64_t M = j->M, N = j->N;
  for (int64_t t = 1; t < count; ++t)
    for (int64_t x = 0; x < M * N; ++x) all[x] += all[t * M * N + x];
  const T *sums = all;
  if (is_turned) {
    T *const whole = room(TURNED, M * N);
    for (int64_t r = 0; r < M; ++r)
      for (int64_t c = 0; c < N; ++c) whole[r * N + c] = all[c * M + r];
    sums = whole;
  }
  if (in_place(j)) for (int64_t r = 0; r < M; ++r) memcpy((T *)j->C + r * j->rc, sums + r * N, N * sizeof(T));
  else finish(j, sums, N, 0, M, 0, N);
}

static int deep_in_reach(const job *j);  // these: unpacked.c
static void deep_direct_product(const job *j, const job *given, int is_turned, int threads);

static FUSED void deep_product(const job *given, int threads) {
  const int turns = given->N < VL && given->N < given->M;
  const job other = turns ? turned(given) : *given, *const j = &other;
#if !defined(BY_TABLES)
  if (turns && deep_in_reach(j)) {
    deep_direct_product(j, given, 1, threads);
    return;
  }
#endif
  const int64_t M = j->M, N = j->N, chunk = parts(parts(j->K, CHUNKS), KC) * KC, count = parts(j->K, chunk);
  T *const all = room(PARTIAL, count * M * N);
  if (threads > 1) {
    #pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t t = 0; t < count; ++t) chunk_product(j, t * chunk, least(j->K, (t + 1) * chunk), all + t * M * N);
  } else {
    for (int64_t t = 0; t < count; ++t) chunk_product(j, t * chunk, least(j->K, (t + 1) * chunk), all + t * M * N);
  }
  add_chunks(given, all, count, turns);
}

// Few rows and a large B: a block of B is packed and used up while it lies in the second cache, and never comes back from
// memory. Each task is a strip of columns, whose sums go on over all blocks of k.
#ifdef BY_TABLES
#define FLAT_ROWS 1024  // of windows, which overlap
#else
#define FLAT_ROWS (PANELS * MR)  // more of A would not stay in the second cache from one block of B to the next
#endif
#define FLAT_BYTES (1 << 20)  // of B, from which it would leave the cache before it is used
#define FLAT_BLOCK (512 << 10)  // bytes of a packed block
static int is_flat(const job *j) { return j->M <= FLAT_ROWS && j->K * j->N * (int64_t)sizeof(T) >= FLAT_BYTES; }

// A is packed once, for all strips: its blocks of k lie one after the other, `flat_rows` for each step.
static inline int64_t flat_rows(const job *j) { return j->raw ? 0 : parts(j->M, MR) * MR; }

static void flat_pack(const job *j, int64_t pc, int64_t kc, T *pa) {
  pack_a(j, 0, pc, j->M, least(kc, j->K - pc), pa + pc * flat_rows(j));
}

static void flat_strip(const job *j, const T *pa, int64_t kc, int64_t c0, int64_t c1) {
  const int64_t M = j->M, K = j->K, n = c1 - c0, wide = parts(n, NR) * NR, ldc = in_place(j) ? j->rc : wide;
  T *const pb = room(PACKED_B, kc * wide), *const block = in_place(j) ? (T *)j->C + c0 : room(BLOCK, M * wide);
  for (int64_t pc = 0; pc < K && !interrupted(j->poll); pc += kc) {
    const int64_t k = least(kc, K - pc);
    pack_panels(j, pc, c0, k, n, pb);
    multiply(j, 0, pc, pa + pc * flat_rows(j), pb, k, M, n, block, ldc, pc > 0);
  }
  if (!in_place(j)) finish(j, block, ldc, 0, M, c0, c1);
}

static void flat_product(const job *j, int threads) {
  const int64_t kc = steps_of(parts(j->K, parts(j->K, KC))) * GROUP, most_of = FLAT_BLOCK / (kc * (int64_t)sizeof(T)) / NR * NR;
  const int64_t strips = parts(parts(j->N, most_of), threads) * threads, width = parts(parts(j->N, NR), strips) * NR;
  const int64_t count = parts(j->N, width), steps = parts(j->K, kc);
  T *const pa = room(PACKED_A, flat_rows(j) * steps * kc);
  if (threads > 1) {
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t step = 0; step < steps; ++step) flat_pack(j, step * kc, kc, pa);
    #pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t t = 0; t < count; ++t) flat_strip(j, pa, kc, t * width, least(j->N, (t + 1) * width));
  } else {
    for (int64_t step = 0; step < steps; ++step) flat_pack(j, step * kc, kc, pa);
    for (int64_t t = 0; t < count; ++t) flat_strip(j, pa, kc, t * width, least(j->N, (t + 1) * width));
  }
}
