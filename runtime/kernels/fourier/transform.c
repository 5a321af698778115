// Discrete Fourier transforms along one dimension whose length has no factors but 2, 3 and 5. A row of n = rows·columns numbers is
// transformed in two steps, as a matrix (Bailey, 1990): along its columns, times roots of one, then transposed along its columns
// again; blocks of columns stay in the cache. What follows columns.c.

// Elements of a block of columns, which a first-level cache holds twice; its least columns, and rows from which on it has two times
// as many, as each is on a page of its own; columns of a transposed tile; the longest rows that are transformed side by side.
enum { BLOCK = 4096 / sizeof(T), NARROW = 64 / sizeof(T), TALL = 128, WIDE = 8, SHORT = 1024 };

typedef struct Plan {
  int64_t n, rows, columns;
  int passes, row_passes, column_passes, radix[MOST_PASSES], row_radix[MOST_PASSES], column_radix[MOST_PASSES];
  Split roots, twist, half; // the n roots of one; those by which a matrix is multiplied; those of order 2·n
  struct Plan *next;
} Plan;

static Plan *plans; // of all lengths so far

// exp(-2πi·k/n), from angles of at most π/4.
static void root(int64_t k, int64_t n, T *re, T *im) {
  const int64_t quarter = 4 * k / n, rest = 4 * k - quarter * n;
  const _Bool beyond = 2 * rest > n;
  const double angle = 1.5707963267948966 * (double)(beyond ? n - rest : rest) / (double)n, a = cos(angle), b = sin(angle);
  const double c = beyond ? b : a, s = beyond ? a : b;
  const double cosines[] = {c, -s, -c, s}, sines[] = {s, c, -s, -c};
  *re = (T)cosines[quarter & 3], *im = (T)-sines[quarter & 3];
}

static Split split(T *at, int64_t n) { return (Split){at, at + n}; }

// The divisor of n nearest to its root, if possible a multiple of a tile's columns, as its cofactor.
static int64_t middle(int64_t n) {
  double least = INFINITY;
  int64_t found = 1;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d) continue;
    const double price = fabs(log((double)d * (double)d / (double)n)) + (d % WIDE != 0) + (n / d % WIDE != 0);
    if (price < least) least = price, found = d;
  }
  return found;
}

static Plan *planned(int64_t n) {
  for (Plan *plan = __atomic_load_n(&plans, __ATOMIC_ACQUIRE); plan; plan = plan->next)
    if (plan->n == n) return plan;
  Plan *plan = calloc(1, sizeof *plan);
  T *room = malloc(6 * n * sizeof(T));
  if (!plan || !room) abort();
  plan->n = n, plan->rows = middle(n), plan->columns = n / plan->rows;
  plan->passes = radices(n, plan->radix);
  plan->row_passes = radices(plan->columns, plan->row_radix), plan->column_passes = radices(plan->rows, plan->column_radix);
  plan->roots = split(room, n), plan->twist = split(room + 2 * n, n), plan->half = split(room + 4 * n, n);
  for (int64_t k = 0; k < n; ++k) {
    root(k, n, plan->roots.re + k, plan->roots.im + k);
    root(k, 2 * n, plan->half.re + k, plan->half.im + k);
  }
  for (int64_t r = 0; r < plan->rows; ++r)
    for (int64_t c = 0; c < plan->columns; ++c) {
      plan->twist.re[r * plan->columns + c] = plan->roots.re[r * c];
      plan->twist.im[r * plan->columns + c] = plan->roots.im[r * c];
    }
  plan->next = __atomic_load_n(&plans, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(&plans, &plan->next, plan, 0, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE)) {}
  return plan;
}

// Complex numbers in memory: real and imaginary parts `step` apart, which is 1 or 2.
typedef struct { T *re, *im; int64_t step; } Strided;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Columns of a block of a matrix of so many rows.
static int64_t block(int64_t rows, int64_t columns) {
  const int64_t some = rows >= TALL ? 2 * NARROW : BLOCK / rows < NARROW ? NARROW : BLOCK / rows / WIDE * WIDE;
  return least(some, columns);
}

INLINE void load(const T *restrict re, const T *restrict im, int64_t step, int64_t next, int64_t rows, int64_t columns, int radix, Split to) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = placed(r, rows, radix, columns);
    T *restrict const to_re = to.re + at, *restrict const to_im = to.im + at;
    const T *const from_re = re + r * next * step, *const from_im = im + r * next * step;
    _Pragma("omp simd") for (int64_t q = 0; q < columns; ++q) to_re[q] = from_re[q * step], to_im[q] = from_im[q * step];
  }
}

INLINE void store(T *restrict re, T *restrict im, int64_t step, int64_t next, int64_t rows, int64_t columns, Split from, T scale) {
  for (int64_t r = 0; r < rows; ++r) {
    const T *restrict const from_re = from.re + r * columns, *restrict const from_im = from.im + r * columns;
    T *const to_re = re + r * next * step, *const to_im = im + r * next * step;
    _Pragma("omp simd") for (int64_t q = 0; q < columns; ++q) to_re[q * step] = from_re[q] * scale, to_im[q * step] = from_im[q] * scale;
  }
}

// `rows`·`columns` numbers from an array whose rows lie `next` apart, for a first pass of some radix, and back.
static void loaded(Strided from, int64_t next, int64_t rows, int64_t columns, int radix, Split to) {
  if (from.step == 1) load(from.re, from.im, 1, next, rows, columns, radix, to);
  else load(from.re, from.im, 2, next, rows, columns, radix, to);
}

static void stored(Strided to, int64_t next, int64_t rows, int64_t columns, Split from, T scale) {
  if (to.step == 1) store(to.re, to.im, 1, next, rows, columns, from, scale);
  else store(to.re, to.im, 2, next, rows, columns, from, scale);
}

typedef T Tile __attribute__((vector_size(WIDE * sizeof(T)), aligned(sizeof(T))));
typedef WORD Lanes __attribute__((vector_size(WIDE * sizeof(T))));

// A tile of WIDE·WIDE numbers transposed, three perfect shuffles of its rows.
INLINE void transpose(Tile *t) {
  const Lanes low = {0, 8, 1, 9, 2, 10, 3, 11}, high = {4, 12, 5, 13, 6, 14, 7, 15};
#pragma GCC unroll 3
  for (int round = 0; round < 3; ++round) {
    Tile u[WIDE];
#pragma GCC unroll 4
    for (int k = 0; k < WIDE / 2; ++k)
      u[2 * k] = __builtin_shuffle(t[k], t[k + WIDE / 2], low), u[2 * k + 1] = __builtin_shuffle(t[k], t[k + WIDE / 2], high);
#pragma GCC unroll 8
    for (int k = 0; k < WIDE; ++k) t[k] = u[k];
  }
}

// A block of columns, times roots of one, to the rows of its transpose.
static void twisted(const Plan *plan, int64_t first, int64_t columns, Split block, Split to) {
  const int64_t rows = plan->rows, all = plan->columns;
  const Split twist = {plan->twist.re + first, plan->twist.im + first};
  const _Bool tiles = rows % WIDE == 0 && columns % WIDE == 0;
  for (int64_t r = 0; tiles && r < rows; r += WIDE)
    for (int64_t c = 0; c < columns; c += WIDE) {
      Tile re[WIDE], im[WIDE];
#pragma GCC unroll 8
      for (int k = 0; k < WIDE; ++k) {
        const int64_t at = (r + k) * columns + c, turn = (r + k) * all + c;
        const Tile x = *(Tile *)(block.re + at), y = *(Tile *)(block.im + at), u = *(Tile *)(twist.re + turn), v = *(Tile *)(twist.im + turn);
        re[k] = x * u - y * v, im[k] = x * v + y * u;
      }
      transpose(re), transpose(im);
#pragma GCC unroll 8
      for (int k = 0; k < WIDE; ++k) {
        *(Tile *)(to.re + (first + c + k) * rows + r) = re[k];
        *(Tile *)(to.im + (first + c + k) * rows + r) = im[k];
      }
    }
  for (int64_t r = 0; !tiles && r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const C a = {block.re[r * columns + c], block.im[r * columns + c]};
      const C y = product(a, (C){twist.re[r * all + c], twist.im[r * all + c]});
      to.re[(first + c) * rows + r] = y.re, to.im[(first + c) * rows + r] = y.im;
    }
}

// Elements of the room that a block of either step needs: two complex arrays.
static int64_t block_room(const Plan *plan) {
  const int64_t a = plan->rows * block(plan->rows, plan->columns), b = plan->columns * block(plan->columns, plan->rows);
  return 4 * ((a > b ? a : b) + GAPS);
}

// The first step of a row: a block of columns.
static void block_of_columns(const Plan *plan, Strided from, int64_t first, int64_t count, Split matrix, T *room) {
  const int64_t size = plan->rows * count + GAPS;
  const Split here = split(room, size), there = split(room + 2 * size, size);
  loaded((Strided){from.re + first * from.step, from.im + first * from.step, from.step}, plan->columns, plan->rows, count, plan->column_radix[0], here);
  const Split found = along_columns(plan->rows, plan->column_radix, plan->column_passes, count, here, there, plan->roots, plan->n);
  twisted(plan, first, count, found, matrix);
}

// The second: a block of the columns of what the first made.
static void block_of_rows(const Plan *plan, Strided to, T scale, int64_t first, int64_t count, Split matrix, T *room) {
  const int64_t size = plan->columns * count + GAPS;
  const Split here = split(room, size), there = split(room + 2 * size, size);
  loaded((Strided){matrix.re + first, matrix.im + first, 1}, plan->rows, plan->columns, count, plan->row_radix[0], here);
  const Split found = along_columns(plan->columns, plan->row_radix, plan->row_passes, count, here, there, plan->roots, plan->n);
  stored((Strided){to.re + first * to.step, to.im + first * to.step, to.step}, plan->rows, plan->columns, count, found, scale);
}

// A row by itself. `matrix` has room for it, `rooms` for a block of each thread of the team.
static void row(const Plan *plan, Strided from, Strided to, T scale, Split matrix, T *rooms, int team) {
  const int64_t rows = plan->rows, columns = plan->columns, room = block_room(plan);
  const int64_t width = block(rows, columns), height = block(columns, rows);
  if (team == 1) { // a team of one takes longer to begin than a short row does
    for (int64_t c = 0; c < columns; c += width) block_of_columns(plan, from, c, least(width, columns - c), matrix, rooms);
    for (int64_t r = 0; r < rows; r += height) block_of_rows(plan, to, scale, r, least(height, rows - r), matrix, rooms);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(team)
  for (int64_t c = 0; c < columns; c += width)
    block_of_columns(plan, from, c, least(width, columns - c), matrix, rooms + omp_get_thread_num() * room);
#pragma omp parallel for schedule(static) num_threads(team)
  for (int64_t r = 0; r < rows; r += height)
    block_of_rows(plan, to, scale, r, least(height, rows - r), matrix, rooms + omp_get_thread_num() * room);
}

// The transform of 2·n real numbers from that of n complex ones, whose parts are the even and the odd elements.
static void halves_joined(const Plan *plan, const T *restrict re, const T *restrict im, T *restrict to, T scale) {
  const int64_t n = plan->n;
  const T *restrict const c = plan->half.re, *restrict const s = plan->half.im, half = (T)0.5 * scale;
  to[0] = (re[0] + im[0]) * scale, to[1] = 0, to[2 * n] = (re[0] - im[0]) * scale, to[2 * n + 1] = 0;
  for (int64_t k = 1; k < n; ++k) {
    const T er = re[k] + re[n - k], ei = im[k] - im[n - k], dr = re[k] - re[n - k], di = im[k] + im[n - k];
    to[2 * k] = (er + FMA(di, c[k], dr * s[k])) * half, to[2 * k + 1] = (ei + FMA(di, s[k], -(dr * c[k]))) * half;
  }
}

// The inverse of that.
static void halves_parted(const Plan *plan, const T *restrict from, T *restrict re, T *restrict im) {
  const int64_t n = plan->n;
  const T *restrict const c = plan->half.re, *restrict const s = plan->half.im;
  re[0] = from[0] + from[2 * n], im[0] = from[0] - from[2 * n];
  for (int64_t k = 1; k < n; ++k) {
    const T er = from[2 * k] + from[2 * (n - k)], ei = from[2 * k + 1] - from[2 * (n - k) + 1];
    const T dr = from[2 * k] - from[2 * (n - k)], di = from[2 * k + 1] + from[2 * (n - k) + 1];
    re[k] = er - FMA(di, c[k], -(dr * s[k])), im[k] = ei + FMA(dr, c[k], di * s[k]);
  }
}

enum { FORWARD, BACKWARD, OF_REAL, TO_REAL };

static Strided interleaved(T *at, _Bool swapped) { return (Strided){at + swapped, at + !swapped, 2}; }

static void one_row(int kind, const Plan *plan, T *from, T *to, T scale, T *room, int team) {
  const int64_t n = plan->n;
  const Split matrix = split(room, n), other = split(room + 2 * n, n);
  T *const rooms = room + 4 * n;
  const _Bool back = kind == BACKWARD || kind == TO_REAL; // the inverse is the transform with real and imaginary parts swapped
  Strided source = interleaved(from, back), target = interleaved(to, back);
  if (kind == TO_REAL) halves_parted(plan, from, other.re, other.im), source = (Strided){other.im, other.re, 1};
  if (kind == OF_REAL) target = (Strided){other.re, other.im, 1};
  row(plan, source, target, kind == OF_REAL ? 1 : scale, matrix, rooms, team);
  if (kind == OF_REAL) halves_joined(plan, other.re, other.im, to, scale);
}

// A block of columns of an array of `inner` columns.
static void some_columns(const Plan *plan, Strided from, Strided to, int64_t inner, int64_t count, T scale, T *room) {
  const int64_t n = plan->n, size = n * count + GAPS;
  const Split here = split(room, size), there = split(room + 2 * size, size);
  loaded(from, inner, n, count, plan->radix[0], here);
  stored(to, inner, n, count, along_columns(n, plan->radix, plan->passes, count, here, there, plan->roots, n), scale);
}

// NARROW rows of n complex numbers, `next` apart, as columns, with a gap after each `part` of them.
static void gathered(const T *from, int64_t next, int64_t n, int64_t part, Split to) {
  for (int64_t first = 0; first < NARROW; first += WIDE) {
    int64_t j = 0;
    for (; j + WIDE / 2 <= n; j += WIDE / 2) {
      Tile t[WIDE];
#pragma GCC unroll 8
      for (int k = 0; k < WIDE; ++k) t[k] = *(const Tile *)(from + (first + k) * next + 2 * j);
      transpose(t);
#pragma GCC unroll 4
      for (int k = 0; k < WIDE / 2; ++k) {
        const int64_t target = (j + k) * NARROW + (j + k) / part * GAP + first;
        *(Tile *)(to.re + target) = t[2 * k], *(Tile *)(to.im + target) = t[2 * k + 1];
      }
    }
    for (; j < n; ++j)
      for (int k = 0; k < WIDE; ++k) {
        const int64_t at = (first + k) * next + 2 * j, target = j * NARROW + j / part * GAP + first + k;
        to.re[target] = from[at], to.im[target] = from[at + 1];
      }
  }
}

// The way back.
static void scattered(Split from, int64_t n, T scale, T *to, int64_t next) {
  for (int64_t first = 0; first < NARROW; first += WIDE) {
    int64_t j = 0;
    for (; j + WIDE / 2 <= n; j += WIDE / 2) {
      Tile t[WIDE];
#pragma GCC unroll 4
      for (int k = 0; k < WIDE / 2; ++k) {
        t[2 * k] = *(const Tile *)(from.re + (j + k) * NARROW + first) * scale;
        t[2 * k + 1] = *(const Tile *)(from.im + (j + k) * NARROW + first) * scale;
      }
      transpose(t);
#pragma GCC unroll 8
      for (int k = 0; k < WIDE; ++k) *(Tile *)(to + (first + k) * next + 2 * j) = t[k];
    }
    for (; j < n; ++j)
      for (int k = 0; k < WIDE; ++k) {
        T *const at = to + (first + k) * next + 2 * j;
        at[0] = from.re[j * NARROW + first + k] * scale, at[1] = from.im[j * NARROW + first + k] * scale;
      }
  }
}

// halves_joined of columns.
static void columns_joined(const Plan *plan, Split from, Split to) {
  const int64_t n = plan->n;
  for (int64_t k = 0; k <= n; ++k) {
    const int64_t one = k % n * NARROW, other = (n - k) % n * NARROW;
    const T c = k == n ? -1 : plan->half.re[k], s = k == n ? 0 : plan->half.im[k];
    T *restrict const re = to.re + k * NARROW, *restrict const im = to.im + k * NARROW;
    const T *restrict const a = from.re + one, *restrict const b = from.im + one, *restrict const x = from.re + other, *restrict const y = from.im + other;
#pragma omp simd
    for (int q = 0; q < NARROW; ++q) {
      const T er = a[q] + x[q], ei = b[q] - y[q], dr = a[q] - x[q], di = b[q] + y[q];
      re[q] = (T)0.5 * (er + FMA(di, c, dr * s)), im[q] = (T)0.5 * (ei + FMA(di, s, -(dr * c)));
    }
  }
}

// halves_parted of columns, with the gaps of a first pass.
static void columns_parted(const Plan *plan, Split from, Split to) {
  const int64_t n = plan->n;
  for (int64_t k = 0; k < n; ++k) {
    const T c = plan->half.re[k], s = plan->half.im[k];
    const int64_t target = placed(k, n, plan->radix[0], NARROW);
    T *restrict const re = to.re + target, *restrict const im = to.im + target;
    const int64_t one = k * NARROW, other = (n - k) * NARROW;
    const T *restrict const a = from.re + one, *restrict const b = from.im + one, *restrict const x = from.re + other, *restrict const y = from.im + other;
#pragma omp simd
    for (int q = 0; q < NARROW; ++q) {
      const T u = k ? b[q] : 0, v = k ? y[q] : 0; // the first and the last number are real
      const T er = a[q] + x[q], ei = u - v, dr = a[q] - x[q], di = u + v;
      re[q] = er - FMA(di, c, -(dr * s)), im[q] = ei + FMA(dr, c, di * s);
    }
  }
}

// NARROW short rows side by side.
static void some_rows(int kind, const Plan *plan, const T *from, int64_t given, T *to, int64_t found, T scale, T *room) {
  const int64_t n = plan->n, size = (n + 1) * NARROW + GAPS;
  const _Bool back = kind == BACKWARD || kind == TO_REAL;
  Split here = split(room, size), there = split(room + 2 * size, size);
  gathered(from, given, n + (kind == TO_REAL), kind == TO_REAL ? n + 1 : n / plan->radix[0], here);
  if (kind == TO_REAL) {
    const Split swapped = here;
    columns_parted(plan, here, there), here = there, there = swapped;
  }
  if (back) here = (Split){here.im, here.re}, there = (Split){there.im, there.re};
  Split result = along_columns(n, plan->radix, plan->passes, NARROW, here, there, plan->roots, n);
  if (kind == OF_REAL) {
    const Split other = result.re == here.re ? there : here;
    columns_joined(plan, result, other), result = other;
  }
  if (back) result = (Split){result.im, result.re};
  scattered(result, n + (kind == OF_REAL), scale, to, found);
}

// buffers: operand, result, room for each thread. sizes: the kind of transform, elements before the dimension, complex numbers along
// it (half of the real ones), elements after it, one over the scale, bytes of a thread's room, most threads.
void fourier(void **buffers, const int64_t *sizes) {
  const int kind = (int)sizes[0];
  const int64_t outer = sizes[1], n = sizes[2], inner = sizes[3], room = sizes[5] / (int64_t)sizeof(T);
  const Plan *const plan = planned(n);
  const T scale = (T)(1.0 / (double)sizes[4]);
  const int most = least(sizes[6], omp_get_max_threads()), team = outer * n * inner < 32768 ? 1 : most;
  T *const from = buffers[0], *const to = buffers[1], *const rooms = buffers[2];
  const int64_t given = 2 * (n + (kind == TO_REAL)), found = 2 * (n + (kind == OF_REAL));
  if (inner == 1 && outer < team) {
    for (int64_t k = 0; k < outer; ++k) one_row(kind, plan, from + k * given, to + k * found, scale, rooms, team);
    return;
  }
  // Rows go together if there are many short ones, columns always.
  const int64_t width = inner > 1 ? least(NARROW, inner) : n <= SHORT && outer >= NARROW ? NARROW : 1;
  const int64_t blocks = inner > 1 ? (inner + width - 1) / width : 1, tasks = inner > 1 ? outer * blocks : (outer + width - 1) / width;
#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
  for (int64_t task = 0; task < tasks; ++task) {
    T *const own = rooms + omp_get_thread_num() * room;
    const int64_t k = task / blocks * (inner > 1 ? 1 : width), first = task % blocks * width, at = 2 * (k * n * inner + first);
    if (inner > 1)
      some_columns(plan, interleaved(from + at, kind == BACKWARD), interleaved(to + at, kind == BACKWARD), inner, least(width, inner - first), scale, own);
    else if (width > 1 && k + width <= outer)
      some_rows(kind, plan, from + k * given, given, to + k * found, found, scale, own);
    else
      for (int64_t row = k; row < least(k + width, outer); ++row) one_row(kind, plan, from + row * given, to + row * found, scale, own, 1);
  }
}
