// substitute(buffers, sizes): lower triangular systems by forward substitution, several right sides beside each other.
//
// buffers: the matrices, the right sides, the solutions (laid out as the right sides are), room. sizes: systems, unknowns,
// sides; of the matrices the first element and the steps from one system, row and column to the next, and the same of the
// right sides; whether the diagonal counts as 1; most threads. Rows may run backwards: an upper triangle is a lower one
// from its end. What lies above the diagonal is never read. T is the type of an element.
#include <omp.h>
#include <stdint.h>

#define BYTES 64
#define VL (BYTES / (int)sizeof(T))
#define ROWS 4
#define WIDE 4  // vectors of sides that are solved for together
#define FLOPS_OF_TEAM (3 << 20)
#define PRODUCTS (1 << 18)  // of an element and `width` vectors, between two looks at the clock: about a millisecond

typedef T vec __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

// Solves for `width` vectors of sides, which lie in x, unknown by unknown, from `first` up to `last`.
static inline __attribute__((always_inline, optimize("fp-contract=fast"))) void solve(
    const T *a, int64_t row, int64_t column, vec *restrict x, int64_t first, int64_t last, int unit, const int width) {
  for (int64_t i = first; i < last; i += ROWS) {
    const int64_t height = last - i < ROWS ? last - i : ROWS;
    vec sum[ROWS][WIDE] __attribute__((aligned(BYTES)));
    const T *line[ROWS];
    for (int r = 0; r < ROWS; ++r) {
      const int64_t at = r < height ? i + r : i;
      line[r] = a + at * row;
      for (int v = 0; v < width; ++v) sum[r][v] = x[at * width + v];
    }
    for (int64_t j = 0; j < i; ++j)
      for (int r = 0; r < ROWS; ++r) {
        const T factor = line[r][j * column];
        for (int v = 0; v < width; ++v) sum[r][v] -= factor * x[j * width + v];
      }
    for (int r = 0; r < height; ++r) {
      for (int q = 0; q < r; ++q) {
        const T factor = line[r][(i + q) * column];
        for (int v = 0; v < width; ++v) sum[r][v] -= factor * sum[q][v];
      }
      for (int v = 0; v < width; ++v) {
        if (!unit) sum[r][v] /= line[r][(i + r) * column];
        x[(i + r) * width + v] = sum[r][v];
      }
    }
  }
}

static void wide(const T *a, int64_t row, int64_t column, vec *restrict x, int64_t first, int64_t last, int unit) {
  solve(a, row, column, x, first, last, unit, WIDE);
}

static void narrow(const T *a, int64_t row, int64_t column, vec *restrict x, int64_t first, int64_t last, int unit) {
  solve(a, row, column, x, first, last, unit, 1);
}

void substitute(void **buffers, const int64_t *sizes) {
  const int64_t systems = sizes[0], n = sizes[1], sides = sizes[2], *of_a = sizes + 3, *of_b = sizes + 7;
  const int unit = (int)sizes[11], width = sides > VL ? WIDE : 1;
  const int64_t tile = width * VL, tiles = (sides + tile - 1) / tile;
  const T *const matrices = (const T *)buffers[0] + of_a[0], *const right = (const T *)buffers[1] + of_b[0];
  T *const solutions = (T *)buffers[2] + of_b[0];
  const int pays = systems * tiles > 1 && systems * n * n * sides > FLOPS_OF_TEAM && !omp_in_parallel();
  const int most = omp_get_max_threads() < sizes[12] ? omp_get_max_threads() : (int)sizes[12];
  poller poll = new_poller();
  #pragma omp parallel for schedule(dynamic) num_threads(pays ? most : 1)
  for (int64_t number = 0; number < systems * tiles; ++number) {
    if (interrupted(&poll)) continue;
    const int64_t system = number / tiles, first = number % tiles * tile;
    const int64_t count = sides - first < tile ? sides - first : tile;
    const T *const b = right + system * of_b[1] + first * of_b[3];
    T *const out = solutions + system * of_b[1] + first * of_b[3];
    T *const x = (T *)buffers[3] + omp_get_thread_num() * n * WIDE * VL;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < count; ++c) x[i * tile + c] = b[i * of_b[2] + c * of_b[3]];
      for (int64_t c = count; c < tile; ++c) x[i * tile + c] = 0;
    }
    for (int64_t i = 0, next; i < n && !interrupted(&poll); i = next) {
      next = i + PRODUCTS / (i + ROWS) / ROWS * ROWS + ROWS;
      if (next > n) next = n;
      (width == 1 ? narrow : wide)(matrices + system * of_a[1], of_a[2], of_a[3], (vec *)x, i, next, unit);
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < count; ++c) out[i * of_b[2] + c * of_b[3]] = x[i * tile + c];
  }
}
