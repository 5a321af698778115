// Products on the processor's matrix unit (Intel AMX), of integers of 8 bits and of bfloat16, where it has one and the system lets
// programs use it, which is found out at run time. A tile of the unit has 16 lines of 64 bytes: of A 16 rows of a BLOCK_K of the
// depth, of B 16 steps of it, each with the elements that make 32 bits (PER) of 16 columns. Sums go along the depth in blocks, so
// they do not depend on the number of threads. The unit takes subnormal numbers of bfloat16, and sums that are, for zero.
#if defined(TILE_DOT) && defined(__AVX512BW__) && defined(__linux__) && defined(__GNUC__) && __GNUC__ >= 11
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define INLINE static inline __attribute__((always_inline))
#define PER (4 / (int)sizeof(IN))
#define BLOCK_K (16 * PER)
#define TILE_BYTES 1024
#define PANEL 32  // rows and columns that four tiles of sums have
#define PANEL_BLOCK (2 * TILE_BYTES / (int)sizeof(T))  // elements of a packed panel in a block
#define RESIDENT (1 << 20)  // bytes of A that stay in the second cache for all columns
#define MOST_ROWS 512  // of a task
#define GROUP_OF_COLUMNS 512  // that are handed on together
#define LEAST_TILED (PER == 4 ? 1 << 12 : 1 << 14)  // multiplications from which a product is worth the unit
#define FEW_TILED_ROWS 128  // for which columns are packed where they are used at once
#define PACKED_TOGETHER (256 << 10)  // bytes of them, about, and at least
#define LEAST_TOGETHER 4  // panels, whose rows are read in whole lines of memory

// Features of CPUID's leaf 7 in edx, and the states that an operating system keeps, as bits of XCR0 (Intel SDM, volume 1, chapter 18).
#define TILES_OF_UNIT (1u << 24)
#define DOTS (sizeof(IN) == 1 ? 1u << 25 : 1u << 22)  // of integers of 8 bits, of bfloat16
#define TILE_CONFIG 17
#define TILE_DATA 18
#define REQUEST_PERMISSION 0x1023  // ARCH_REQ_XCOMP_PERM

// Linux gives a process the unit's registers once it asks.
static int has_matrix_unit(void) {
  static int known = -1;
  int there = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (there >= 0) return there;
  unsigned a, b, c, d, low = 0, high = 0;
  const unsigned needed = TILES_OF_UNIT | DOTS, states = 1u << TILE_CONFIG | 1u << TILE_DATA;
  there = __get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & needed) == needed;
  if (there) __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  there = there && (low & states) == states && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
  __atomic_store_n(&known, there, __ATOMIC_RELAXED);
  return there;
}

static int is_tiled(const job *j) {
  return least(j->M, j->N) >= 4 && j->K >= PER && j->M * j->N * j->K >= LEAST_TILED && has_matrix_unit();
}

typedef uint32_t line __attribute__((vector_size(64), aligned(1), may_alias));

// An operand, whose lines are rows of A or columns of B: where a line and an element of the depth lie, by strides or by tables.
#ifdef BY_TABLES
typedef const int64_t *offsets;
#define OFFSET(of, n) (of)[n]
#define RUN_OF(of, n) run_of(of, n)
#define BEYOND(of, n) ((of) + (n))
#else
typedef int64_t offsets;
#define OFFSET(of, n) ((n) * (of))
#define RUN_OF(of, n) ((of) == 1 ? (n) : 1)  // elements that lie together from the first one on
#define BEYOND(of, n) (of)
#endif
typedef struct {
  const IN *base;
  offsets line, depth;
} operand;

static inline operand beyond(operand o, int64_t lines, int64_t deep) {
#ifdef BY_TABLES
  return (operand){o.base, o.line + lines, o.depth + deep};
#else
  return (operand){o.base + lines * o.line + deep * o.depth, o.line, o.depth};
#endif
}

static inline int64_t runs_of(offsets of, int64_t n) {
  int64_t runs = 0;
  for (int64_t x = 0; x < n; ++runs) x += RUN_OF(BEYOND(of, x), n - x);
  return runs;
}

// Lines of a block of the depth, of which there are n with k elements each; zeros beyond. What lies together is read at once.
INLINE void lines_along(operand o, int64_t n, int64_t k, line *v) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = (line){0};
  for (int64_t first = 0, run; first < k; first += run) {
    run = RUN_OF(BEYOND(o.depth, first), k - first);
    const __mmask64 there = (~0ull >> (64 - run * sizeof(IN))) << first * sizeof(IN);
    const IN *const from = o.base + OFFSET(o.depth, first) - first;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if (i < n) v[i] |= (line)_mm512_maskz_loadu_epi8(there, from + OFFSET(o.line, i));
  }
}

// Steps of a block of the depth, of n lines: PER elements of each, side by side.
INLINE void steps_across(operand o, int64_t n, int64_t k, line *v) {
#pragma GCC unroll 16
  for (int s = 0; s < 16; ++s) v[s] = (line){0};
  for (int64_t first = 0, run; first < n; first += run) {
    run = RUN_OF(BEYOND(o.line, first), n - first);
    const __mmask16 there = ((1u << run) - 1) << first;
    const IN *const from = o.base + OFFSET(o.line, first) - first;
#pragma GCC unroll 16
    for (int s = 0; s < 16; ++s)
#pragma GCC unroll 4
      for (int u = 0; u < PER; ++u)
        if (s * PER + u < k) {
          const IN *const row = from + OFFSET(o.depth, s * PER + u);
          const __m512i wide = sizeof(IN) == 1 ? _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(there, row))
                                               : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row));
          v[s] |= (line)wide << 8 * (int)sizeof(IN) * u;
        }
  }
}

// Up to 16 lines of a block of the depth; turned: steps of them. Read in the direction in which fewer loads do.
static FUSED void pack_tile(operand o, int64_t lines, int64_t k, int is_turned, T *to) {
  line v[16];
  const int64_t n = least(lines, 16), deep = least(k, BLOCK_K);
  const int across = 16 * runs_of(o.depth, deep) > 2 * BLOCK_K * runs_of(o.line, n);
  if (across) steps_across(o, n, deep, v);
  else lines_along(o, n, deep, v);
  if (across != is_turned) turn((vec *)v, 16);
  memcpy(to, v, sizeof(v));
}

// Lines of an operand and k elements of the depth, as panels of two tiles a block: all panels of a block, then the next block.
static void pack_tiles(operand o, int64_t lines, int64_t k, int is_turned, T *to) {
  const int64_t panel = parts(k, BLOCK_K) * PANEL_BLOCK;
  for (int64_t p = 0; p < k; p += BLOCK_K)
    for (int64_t first = 0; first < lines; first += 16) {
      T *const tile = to + first / PANEL * panel + (p / BLOCK_K * 2 + first / 16 % 2) * (TILE_BYTES / (int)sizeof(T));
      pack_tile(beyond(o, first, p), lines - first, k - p, is_turned, tile);
    }
}

#ifdef BY_TABLES
#define ROWS_OF_A(j) ((operand){(j)->A, (j)->row_of_a, (j)->depth_of_a})
#define COLUMNS_OF_B(j) ((operand){(j)->B, (j)->column_of_b, (j)->depth_of_b})
#define LIES_DENSE(j) 0
#else
#define ROWS_OF_A(j) ((operand){(j)->A, (j)->ra, (j)->ca})
#define COLUMNS_OF_B(j) ((operand){(j)->B, (j)->cb, (j)->rb})
#define LIES_DENSE(j) ((j)->ca == 1)  // whether the unit reads A where it lies
#endif

// The shapes of the unit's registers: sums 0 to 3, rows of A 4 and 5, steps of B 6 and 7.
typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} shapes;

static void shape_tiles(int64_t m, int64_t n, int64_t *current) {
  const int64_t wanted = m * 256 + n;
  if (*current == wanted) return;
  *current = wanted;
  const int64_t rows[2] = {least(m, 16), most(1, m - 16)}, columns[2] = {least(n, 16), most(1, n - 16)};
  shapes all = {1};
  for (int i = 0; i < 4; ++i) all.rows[i] = rows[i / 2], all.bytes[i] = 4 * columns[i % 2];
  for (int i = 0; i < 2; ++i) {
    all.rows[4 + i] = rows[i], all.bytes[4 + i] = 64;
    all.rows[6 + i] = 16, all.bytes[6 + i] = 4 * columns[i];
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(all));
}

#define TILE_LOAD(tile, from, apart) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(apart) : "memory")
#define TILE_STORE(tile, to, apart) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(apart) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TILE_MULTIPLY_AS(name, sums, a, b) __asm__ volatile(name " %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::)
#define RELEASE_TILES __asm__ volatile("tilerelease" ::)
#define TILE_MULTIPLY(sums, a, b) TILE_MULTIPLY_AS(TILE_DOT, sums, a, b)

// Where rows of A lie: whole blocks, `step` bytes one from the next, and the rest of the depth.
typedef struct {
  const char *blocks, *rest;
  int64_t apart, step, count;  // bytes from row to row, and blocks
} rows_of_a;

#define MULTIPLY_BLOCK(a, a_apart, b)                                                                                 \
  TILE_LOAD(4, a, a_apart);                                                                                            \
  TILE_LOAD(6, b, 64l);                                                                                                \
  TILE_MULTIPLY(0, 4, 6);                                                                                              \
  if (wide) {                                                                                                          \
    TILE_LOAD(7, (b) + TILE_BYTES, 64l);                                                                               \
    TILE_MULTIPLY(1, 4, 7);                                                                                            \
  }                                                                                                                    \
  if (tall) {                                                                                                          \
    TILE_LOAD(5, (a) + 16 * (a_apart), a_apart);                                                                       \
    TILE_MULTIPLY(2, 5, 6);                                                                                            \
    if (wide) TILE_MULTIPLY(3, 5, 7);                                                                                  \
  }

INLINE void multiply_tiles(rows_of_a a, const char *b, char *c, int64_t ldc, int add, int tall, int wide) {
  char *const other = c + 16 * ldc;
  if (add) {
    TILE_LOAD(0, c, ldc);
    if (wide) TILE_LOAD(1, c + 64, ldc);
    if (tall) TILE_LOAD(2, other, ldc);
    if (tall && wide) TILE_LOAD(3, other + 64, ldc);
  } else {
    TILE_ZERO(0);
    if (wide) TILE_ZERO(1);
    if (tall) TILE_ZERO(2);
    if (tall && wide) TILE_ZERO(3);
  }
  for (int64_t p = 0; p < a.count; ++p, b += 2 * TILE_BYTES) {
    const char *const from = a.blocks + p * a.step;
    MULTIPLY_BLOCK(from, a.apart, b)
  }
  if (a.rest) {
    MULTIPLY_BLOCK(a.rest, 64l, b)
  }
  TILE_STORE(0, c, ldc);
  if (wide) TILE_STORE(1, c + 64, ldc);
  if (tall) TILE_STORE(2, other, ldc);
  if (tall && wide) TILE_STORE(3, other + 64, ldc);
}

static void multiply_panel(rows_of_a a, const T *b, T *c, int64_t ldc, int add, int64_t m, int64_t n, int64_t *shaped) {
  const int tall = m > 16, wide = n > 16;
  const char *const panel = (const char *)b;
  char *const to = (char *)c;
  shape_tiles(m, n, shaped);
  if (tall && wide) multiply_tiles(a, panel, to, ldc * 4, add, 1, 1);
  else if (wide) multiply_tiles(a, panel, to, ldc * 4, add, 0, 1);
  else if (tall) multiply_tiles(a, panel, to, ldc * 4, add, 1, 0);
  else multiply_tiles(a, panel, to, ldc * 4, add, 0, 0);
}

// Elements of packed panels of so many blocks of the depth.
static inline int64_t panels_of(int64_t lines, int64_t blocks) { return parts(lines, PANEL) * blocks * PANEL_BLOCK; }

// Rows ic to ic + m: packed, or of those that the unit reads where they lie the rest of the depth, which is no whole block.
static void pack_rows(const job *j, int64_t ic, int64_t m, T *pa) {
  const int64_t whole = LIES_DENSE(j) ? j->K / BLOCK_K * BLOCK_K : 0;
  if (j->K > whole) pack_tiles(beyond(ROWS_OF_A(j), ic, whole), m, j->K - whole, 0, pa);
}

static rows_of_a rows_at(const job *j, int64_t ic, int64_t i, const T *pa) {
  const int64_t blocks = j->K / BLOCK_K, rest = j->K % BLOCK_K;
  if (!LIES_DENSE(j)) {
    const char *const panel = (const char *)(pa + panels_of(i, parts(j->K, BLOCK_K)));
    return (rows_of_a){panel, 0, 64, 2 * TILE_BYTES, parts(j->K, BLOCK_K)};
  }
  const char *const tail = rest ? (const char *)(pa + panels_of(i, 1)) : 0;
  return (rows_of_a){(const char *)(j->A + (ic + i) * j->ra), tail, j->ra * (int64_t)sizeof(IN), 64, blocks};
}

// Rows ic to ic + m and n columns from jc on, whose panels are packed in `pb`: groups of columns that are handed on.
static void tiled_block(const job *j, const T *pa, const T *pb, int64_t ic, int64_t m, int64_t jc, int64_t n) {
  int64_t shaped = 0;
  const int64_t blocks = parts(j->K, BLOCK_K);
  const int direct = in_place(j);
  T *const own = direct ? 0 : room(BLOCK, m * GROUP_OF_COLUMNS);
  for (int64_t first = 0; first < n && !interrupted(j->poll); first += GROUP_OF_COLUMNS) {
    const int64_t width = least(GROUP_OF_COLUMNS, n - first), ldc = direct ? j->rc : width;
    T *const block = direct ? (T *)j->C + ic * j->rc + jc + first : own;
    for (int64_t x = 0; x < width; x += PANEL)
      for (int64_t i = 0; i < m; i += PANEL)
        multiply_panel(rows_at(j, ic, i, pa), pb + panels_of(first + x, blocks), block + i * ldc + x, ldc, 0, least(PANEL, m - i),
                       least(PANEL, width - x), &shaped);
    if (!direct) finish(j, block, ldc, ic, ic + m, jc + first, jc + first + width);
  }
  RELEASE_TILES;
}

static void pack_columns(const job *j, int64_t jc, int64_t n, T *pb) {
  pack_tiles(beyond(COLUMNS_OF_B(j), jc, 0), n, j->K, 1, pb);
}

// Whether the transposed product is taken: its rows lie dense along the depth, and few columns are packed instead of them. The
// result, which is transposed then, must be smaller.
static int turns_tiled(const job *j) {
#ifdef BY_TABLES
  return 0;
#else
  return j->rb == 1 && j->cb != 1 && j->M <= FEW_TILED_ROWS && j->M < j->N && j->M * 8 <= j->K * (int64_t)sizeof(IN) && !j->crosswise;
#endif
}

// How a product is cut: rows of a task, columns that are packed together, blocks of the depth, and those that are packed of A.
typedef struct {
  int64_t mc, together, blocks, packed;
} tiling;

static void tiled_rows(const job *j, tiling cut, const T *pb, int64_t ic, int64_t jc, int64_t n) {
  const int64_t m = least(cut.mc, j->M - ic);
  T *const pa = room(PACKED_A, panels_of(m, cut.packed));
  pack_rows(j, ic, m, pa);
  tiled_block(j, pa, pb, ic, m, jc, n);
}

// Few rows, which are packed: columns are, by the thread that uses them at once.
static void tiled_columns(const job *j, tiling cut, const T *pa, int64_t jc) {
  const int64_t n = least(cut.together, j->N - jc);
  T *const pb = room(PACKED_B, panels_of(n, cut.blocks));
  pack_columns(j, jc, n, pb);
  tiled_block(j, pa, pb, 0, j->M, jc, n);
}

static void tiled_strip(const job *j, tiling cut, int threads, int64_t jc, int64_t n) {
  T *const pb = room(PACKED_B, panels_of(n, cut.blocks));
  if (threads == 1) {
    pack_columns(j, jc, n, pb);
    for (int64_t ic = 0; ic < j->M; ic += cut.mc) tiled_rows(j, cut, pb, ic, jc, n);
    return;
  }
  #pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t x = 0; x < n; x += cut.together) pack_columns(j, jc + x, least(cut.together, n - x), pb + panels_of(x, cut.blocks));
  #pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t ic = 0; ic < j->M; ic += cut.mc) tiled_rows(j, cut, pb, ic, jc, n);
}

static void tiled_product(const job *given, int threads) {
  const int turns = turns_tiled(given);
  job wanted = turns ? turned(given) : *given;
  wanted.crosswise |= turns;
  const job *const j = &wanted;
  const int64_t blocks = parts(j->K, BLOCK_K), bytes = blocks * 64 * PANEL;
  const int64_t strip = most(1, STRIP / bytes) * PANEL, together = most(LEAST_TOGETHER, PACKED_TOGETHER / bytes) * PANEL;
  const int64_t even = parts(parts(j->M, threads > 1 ? 2 * threads : 1), PANEL) * PANEL;
  tiling cut = {least(least(most(1, RESIDENT / bytes) * PANEL, even), MOST_ROWS), together, blocks, LIES_DENSE(j) ? 1 : blocks};
  if (j->M > FEW_TILED_ROWS) {
    for (int64_t jc = 0; jc < j->N; jc += strip) tiled_strip(j, cut, threads, jc, least(strip, j->N - jc));
    return;
  }
  T *const pa = room(PACKED_A, panels_of(j->M, cut.packed));
  pack_rows(j, 0, j->M, pa);
  if (threads > 1) {
    cut.together = least(together, parts(parts(j->N, threads), PANEL) * PANEL);
    #pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t jc = 0; jc < j->N; jc += cut.together) tiled_columns(j, cut, pa, jc);
  } else
    for (int64_t jc = 0; jc < j->N; jc += together) tiled_columns(j, cut, pa, jc);
}
#else
#define is_tiled(j) 0
#define tiled_product(j, threads)
#endif
