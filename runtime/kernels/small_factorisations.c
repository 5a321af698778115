// Factorisations of many small matrices and triangular systems of as many: a lane of a vector for each matrix.
//
// A block of LANES matrices is laid out element by element, so that each step is a few whole vectors, and no pivot makes the
// lanes part: rows are exchanged by selection. Interfaces are those of lapack.c, without its functions and its room.
#define MOST_SMALL 16  // rows and columns
#define LANES (64 / (int64_t)sizeof(T))

typedef T lanes[64 / sizeof(T)];
typedef int32_t places[64 / sizeof(T)];

#define ALL_LANES(l) for (int64_t l = 0; l < LANES; ++l)
#define BLOCKS(rows, columns, most) \
  poller poll = new_poller(); \
  const int64_t count = sizes[0], blocks = (count + LANES - 1) / LANES; \
  const int workers = team(count, rows, columns, most); \
  _Pragma("omp parallel for schedule(static) num_threads(workers)") \
  for (int64_t block = 0; block < blocks; ++block)

// The elements of the matrices of a block, side by side; those after the last matrix are its own again.
static void spread(lanes *out, const T *x, int64_t size, int64_t block, int64_t count) {
  int64_t from[64 / sizeof(T)];
  ALL_LANES(l) from[l] = (block * LANES + l < count ? block * LANES + l : count - 1) * size;
  for (int64_t e = 0; e < size; ++e) ALL_LANES(l) out[e][l] = x[from[l] + e];
}

static void gather(T *out, const lanes *x, int64_t size, int64_t block, int64_t count) {
  for (int64_t l = 0; l < LANES && block * LANES + l < count; ++l)
    for (int64_t e = 0; e < size; ++e) out[(block * LANES + l) * size + e] = x[e][l];
}

// The row from `k` on with the largest element of column k, and the rows exchanged. Gives whether an element was 0 in any lane.
static int pivot(lanes *a, int32_t *restrict at, int64_t n, int64_t k) {
  lanes best;
  ALL_LANES(l) best[l] = a[k * n + k][l] < 0 ? -a[k * n + k][l] : a[k * n + k][l];
  ALL_LANES(l) at[l] = (int32_t)k;
  for (int64_t i = k + 1; i < n; ++i)
    ALL_LANES(l) {
      const T size = a[i * n + k][l] < 0 ? -a[i * n + k][l] : a[i * n + k][l];
      at[l] = size > best[l] ? (int32_t)i : at[l];
      best[l] = size > best[l] ? size : best[l];
    }
  for (int64_t i = k + 1; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      ALL_LANES(l) {
        const T upper = a[k * n + j][l], lower = a[i * n + j][l];
        a[k * n + j][l] = at[l] == i ? lower : upper;
        a[i * n + j][l] = at[l] == i ? upper : lower;
      }
  int singular = 0;
  ALL_LANES(l) singular |= best[l] == 0;
  return singular;
}

// Golub and Van Loan, "Matrix Computations", algorithm 3.4.1, by columns. buffers and sizes as `lu`.
void small_lu(void **buffers, const int64_t *sizes) {
  const int64_t n = sizes[1], size = n * n;
  BLOCKS(n, n, sizes[3]) {
    if (interrupted(&poll)) continue;
    lanes a[MOST_SMALL * MOST_SMALL];
    places at[MOST_SMALL];
    int singular = 0;
    spread(a, buffers[0], size, block, count);
    for (int64_t k = 0; k < n; ++k) {
      singular |= pivot(a, at[k], n, k);
      lanes inverse;
      ALL_LANES(l) inverse[l] = a[k * n + k][l] == 0 ? 1 : 1 / a[k * n + k][l];
      for (int64_t i = k + 1; i < n; ++i) {
        lanes factor;
        ALL_LANES(l) factor[l] = a[i * n + k][l] * inverse[l];
        ALL_LANES(l) a[i * n + k][l] = factor[l];
        for (int64_t j = k + 1; j < n; ++j) ALL_LANES(l) a[i * n + j][l] -= factor[l] * a[k * n + j][l];
      }
    }
    if (buffers[1]) gather(buffers[1], a, size, block, count);
    for (int64_t l = 0; l < LANES && block * LANES + l < count; ++l) {
      const int64_t number = block * LANES + l;
      if (singular && buffers[1] && !finite((const T *)buffers[0] + number * size, size))
        fill((T *)buffers[1] + number * size, size, not_a_number);
      int32_t order[MOST_SMALL];
      for (int64_t k = 0; k < n; ++k) order[k] = (int32_t)k;
      for (int64_t k = 0; k < n; ++k) {
        const int32_t other = order[at[k][l]];
        order[at[k][l]] = order[k];
        order[k] = other;
        if (buffers[2]) ((int32_t *)buffers[2])[number * n + k] = at[k][l];
      }
      if (buffers[3])
        for (int64_t k = 0; k < n; ++k) ((int32_t *)buffers[3])[number * n + k] = order[k];
    }
  }
}

// Golub and Van Loan, algorithm 4.2.2. buffers and sizes as `cholesky`.
void small_cholesky(void **buffers, const int64_t *sizes) {
  const int64_t n = sizes[1], size = n * n;
  BLOCKS(n, n, sizes[2]) {
    if (interrupted(&poll)) continue;
    lanes a[MOST_SMALL * MOST_SMALL];
    places good;
    ALL_LANES(l) good[l] = 1;
    spread(a, buffers[0], size, block, count);
    for (int64_t j = 0; j < n; ++j) {
      lanes inverse;
      ALL_LANES(l) {
        const T left = a[j * n + j][l];
        good[l] &= !(left <= 0);
        a[j * n + j][l] = __builtin_sqrt(left);
        inverse[l] = 1 / a[j * n + j][l];
      }
      for (int64_t i = j + 1; i < n; ++i) ALL_LANES(l) a[i * n + j][l] *= inverse[l];
      for (int64_t k = j + 1; k < n; ++k)
        for (int64_t i = k; i < n; ++i) ALL_LANES(l) a[i * n + k][l] -= a[i * n + j][l] * a[k * n + j][l];
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) ALL_LANES(l) a[i * n + j][l] = j > i ? 0 : good[l] ? a[i * n + j][l] : not_a_number;
    gather(buffers[1], a, size, block, count);
  }
}

// buffers and sizes as `trsm`. A system from the right is the transposed one from the left.
void small_trsm(void **buffers, const int64_t *sizes) {
  const int64_t rows = sizes[1], columns = sizes[2], left = sizes[5], n = left ? rows : columns, m = left ? columns : rows;
  const int64_t across = (sizes[7] != 0) != !left, lower = (sizes[6] != 0) != across, unit = sizes[9];
  BLOCKS(n, n, sizes[3]) {
    if (interrupted(&poll)) continue;
    lanes a[MOST_SMALL * MOST_SMALL], b[MOST_SMALL * MOST_SMALL], inverse[MOST_SMALL];
    spread(a, buffers[0], n * n, block, count);
    spread(b, buffers[1], n * m, block, count);
    for (int64_t i = 0; i < n; ++i) ALL_LANES(l) inverse[i][l] = unit ? 1 : 1 / a[i * n + i][l];
    const int64_t row = left ? m : 1, column = left ? 1 : n;
    for (int64_t turn = 0; turn < n; ++turn) {
      const int64_t i = lower ? turn : n - 1 - turn;
      for (int64_t c = 0; c < m; ++c) {
        lanes x;
        ALL_LANES(l) x[l] = b[i * row + c * column][l];
        for (int64_t before = 0; before < turn; ++before) {
          const int64_t j = lower ? before : n - 1 - before, e = across ? j * n + i : i * n + j;
          ALL_LANES(l) x[l] -= a[e][l] * b[j * row + c * column][l];
        }
        ALL_LANES(l) b[i * row + c * column][l] = x[l] * inverse[i][l];
      }
    }
    gather(buffers[2], b, n * m, block, count);
  }
}
