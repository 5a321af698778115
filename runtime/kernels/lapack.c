// Factorisations of stacks of matrices by LAPACK: lu, qr and its reflections, cholesky, eigh, svd, and triangular systems by BLAS.
//
// T is an element's type, REAL its parts'; COMPLEX is 1 where they differ, CONJ(x) the conjugate. LAPACK's functions come
// as addresses. Rows lie dense here and columns there, so matrices are transposed on the way. Each function takes
// sizes[0] matrices: a team shares out small ones, and of large ones each is left to LAPACK's own threads. A thread has
// `room` bytes of its own. What LAPACK has no factors of becomes nan.
//
// The last of the sizes is a function that says how many threads LAPACK may have and returns how many it had, or 0.
#include <omp.h>
#include <pthread.h>
#include <stdint.h>

#define SMALL 128           // rows or columns up to which a matrix is one thread's
#define FLOPS_OF_TEAM (1 << 18)
#define TILE 16

static const REAL not_a_number = (REAL)__builtin_nan("");

static int finite(const T *x, int64_t count) {
  const REAL *parts = (const REAL *)x;
  int good = 1;
  for (int64_t i = 0; i < count * (1 + COMPLEX); ++i) good &= parts[i] - parts[i] == 0;
  return good;
}

static void fill(T *x, int64_t count, REAL value) {
  for (int64_t i = 0; i < count * (1 + COMPLEX); ++i) ((REAL *)x)[i] = value;
}

static void copy(T *restrict out, const T *x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i];
}

// out[j][i] = x[i][j] for rows i, tile by tile.
static void transpose(T *restrict out, const T *x, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r += TILE)
    for (int64_t c = 0; c < columns; c += TILE)
      for (int64_t i = r; i < rows && i < r + TILE; ++i)
        for (int64_t j = c; j < columns && j < c + TILE; ++j) out[j * rows + i] = x[i * columns + j];
}

static int team(int64_t count, int64_t rows, int64_t columns, int64_t most) {
  if (count < 2 || rows > SMALL || columns > SMALL || omp_in_parallel()) return 1;
  if (count * rows * columns * (rows < columns ? rows : columns) < FLOPS_OF_TEAM) return 1;
  const int64_t threads = most < omp_get_max_threads() ? most : omp_get_max_threads();
  return (int)(threads < count ? threads : count);
}

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// One thread of LAPACK's while a call lasts: more take up to five times as long for matrices that are not large, and longer
// still where others need the processors too. Calls that overlap give back what the first of them found.
#define ALONE (1 << 25)           // rows times columns times the lesser: up to which LAPACK is to have one thread
#define ALONE_IN_STEPS (1 << 28)  // the same for what takes many steps that must wait for each other
typedef int (*set_threads)(int);
static pthread_mutex_t limiting = PTHREAD_MUTEX_INITIALIZER;
static int holders, found;

static set_threads hold(set_threads set, int64_t work, int64_t most, int workers) {
  if (!set || (workers == 1 && work > most)) return 0;
  pthread_mutex_lock(&limiting);
  if (!holders++) found = set(1);
  pthread_mutex_unlock(&limiting);
  return set;
}

static void give_back(set_threads *set) {
  if (!*set) return;
  pthread_mutex_lock(&limiting);
  if (!--holders) (*set)(found);
  pthread_mutex_unlock(&limiting);
}

// A loop over the matrices, `number` by number; `alone` is one of the limits above, `set` which size is the function.
#define EACH(rows, columns, most, alone, set) \
  poller poll = new_poller(); \
  const int workers = team(sizes[0], rows, columns, most); \
  const int64_t work_of_each = (rows) * (columns) * ((rows) < (columns) ? (rows) : (columns)); \
  set_threads held __attribute__((cleanup(give_back))) = hold((set_threads)sizes[set], work_of_each, alone, workers); \
  _Pragma("omp parallel for schedule(static) num_threads(workers)") \
  for (int64_t number = 0; number < sizes[0]; ++number)

// buffers: matrices, factors, pivots, permutation, room. sizes: count, rows, columns, threads, room, getrf.
void lu(void **buffers, const int64_t *sizes) {
  const int64_t rows = sizes[1], columns = sizes[2], least = rows < columns ? rows : columns, size = rows * columns;
  void (*const getrf)(int *, int *, T *, int *, int *, int *) = (void *)sizes[5];
  EACH(rows, columns, sizes[3], ALONE, 6) {
    if (interrupted(&poll)) continue;
    char *const room = (char *)buffers[4] + omp_get_thread_num() * sizes[4];
    T *const work = (T *)room;
    int *const exchanged = (int *)(room + aligned(size * sizeof(T)));
    const T *const matrix = (const T *)buffers[0] + number * size;
    int m = (int)rows, n = (int)columns, info = 0;
    transpose(work, matrix, rows, columns);
    getrf(&m, &n, work, &m, exchanged, &info);
    if (info > 0 && !finite(matrix, size)) fill(work, size, not_a_number);
    if (buffers[1]) transpose((T *)buffers[1] + number * size, work, columns, rows);
    if (buffers[2])
      for (int64_t i = 0; i < least; ++i) ((int32_t *)buffers[2])[number * least + i] = exchanged[i] - 1;
    if (buffers[3]) {
      int32_t *const order = (int32_t *)buffers[3] + number * rows;
      for (int64_t i = 0; i < rows; ++i) order[i] = (int32_t)i;
      for (int64_t i = 0; i < least; ++i) {
        const int32_t other = order[exchanged[i] - 1];
        order[exchanged[i] - 1] = order[i];
        order[i] = other;
      }
    }
  }
}

// buffers: matrices, q, r, room. sizes: count, rows, columns, threads, room, geqrf, orgqr, columns of q, elements of work.
void qr(void **buffers, const int64_t *sizes) {
  const int64_t rows = sizes[1], columns = sizes[2], inner = sizes[7], least = rows < columns ? rows : columns;
  void (*const geqrf)(int *, int *, T *, int *, T *, T *, int *, int *) = (void *)sizes[5];
  void (*const orgqr)(int *, int *, int *, T *, int *, T *, T *, int *, int *) = (void *)sizes[6];
  EACH(rows, columns, sizes[3], ALONE_IN_STEPS, 9) {
    if (interrupted(&poll)) continue;
    char *room = (char *)buffers[3] + omp_get_thread_num() * sizes[4];
    T *const work = (T *)room;  // as many columns as the matrix and q have at most
    room += aligned(rows * (inner > columns ? inner : columns) * sizeof(T));
    T *const scales = (T *)room;
    room += aligned(least * sizeof(T));
    T *const more = (T *)room;
    int m = (int)rows, n = (int)columns, k = (int)least, q = (int)inner, length = (int)sizes[8], info = 0;
    transpose(work, (const T *)buffers[0] + number * rows * columns, rows, columns);
    geqrf(&m, &n, work, &m, scales, more, &length, &info);
    if (buffers[2]) {
      T *const r = (T *)buffers[2] + number * inner * columns;
      for (int64_t i = 0; i < inner; ++i)
        for (int64_t j = 0; j < columns; ++j) r[i * columns + j] = i <= j ? work[j * rows + i] : 0;
    }
    if (buffers[1]) {
      orgqr(&m, &q, &k, work, &m, scales, more, &length, &info);
      transpose((T *)buffers[1] + number * rows * inner, work, inner, rows);
    }
  }
}

// buffers: matrices, factors, scales of the reflections, room. sizes: count, rows, columns, threads, room, geqrf, elements of work.
void reflections(void **buffers, const int64_t *sizes) {
  const int64_t rows = sizes[1], columns = sizes[2], least = rows < columns ? rows : columns, size = rows * columns;
  void (*const geqrf)(int *, int *, T *, int *, T *, T *, int *, int *) = (void *)sizes[5];
  EACH(rows, columns, sizes[3], ALONE_IN_STEPS, 7) {
    if (interrupted(&poll)) continue;
    char *room = (char *)buffers[3] + omp_get_thread_num() * sizes[4];
    T *const work = (T *)room;
    room += aligned(size * sizeof(T));
    T *const scales = (T *)room;
    room += aligned(least * sizeof(T));
    int m = (int)rows, n = (int)columns, length = (int)sizes[6], info = 0;
    transpose(work, (const T *)buffers[0] + number * size, rows, columns);
    geqrf(&m, &n, work, &m, scales, (T *)room, &length, &info);
    if (buffers[1]) transpose((T *)buffers[1] + number * size, work, columns, rows);
    if (buffers[2]) copy((T *)buffers[2] + number * least, scales, least);
  }
}

// Rows r of tiles of a lower triangle, of which each element i, j with j < i is done.
#define BELOW_DIAGONAL(n, i, j) \
  for (int64_t r = 0; r < (n); r += TILE) \
    for (int64_t c = 0; c <= r; c += TILE) \
      for (int64_t i = r; i < (n) && i < r + TILE; ++i) \
        for (int64_t j = c; j < i && j < c + TILE; ++j)

// buffers: matrices, factors. sizes: count, rows, threads, potrf. The lower triangle is laid by columns for LAPACK and back: it
// would be an upper one in place, for which OpenBLAS takes half as long again.
void cholesky(void **buffers, const int64_t *sizes) {
  const int64_t n = sizes[1];
  void (*const potrf)(char *, int *, T *, int *, int *) = (void *)sizes[3];
  EACH(n, n, sizes[2], ALONE, 4) {
    if (interrupted(&poll)) continue;
    const T *restrict const matrix = (const T *)buffers[0] + number * n * n;
    T *restrict const out = (T *)buffers[1] + number * n * n;
    for (int64_t i = 0; i < n; ++i) out[i * n + i] = matrix[i * n + i];
    BELOW_DIAGONAL(n, i, j) out[j * n + i] = matrix[i * n + j];
    int m = (int)n, info = 0;
    char part = 'L';
    potrf(&part, &m, out, &m, &info);
    BELOW_DIAGONAL(n, i, j) {
      out[i * n + j] = out[j * n + i];
      out[j * n + i] = 0;
    }
    if (info)
      for (int64_t i = 0; i < n; ++i) fill(out + i * n, i + 1, not_a_number);
  }
}

// buffers: matrices, vectors, values, room. sizes: count, rows, threads, room, syevd or heevd, whether the lower triangle
// is read, whether vectors are wanted, elements of work, of real work, of integer work.
void eigh(void **buffers, const int64_t *sizes) {
  const int64_t n = sizes[1];
#if COMPLEX
  void (*const evd)(char *, char *, int *, T *, int *, REAL *, T *, int *, REAL *, int *, int *, int *, int *) =
      (void *)sizes[4];
#else
  void (*const evd)(char *, char *, int *, T *, int *, REAL *, T *, int *, int *, int *, int *) = (void *)sizes[4];
#endif
  EACH(n, n, sizes[2], ALONE, 10) {
    if (interrupted(&poll)) continue;
    char *room = (char *)buffers[3] + omp_get_thread_num() * sizes[3];
    T *const matrix = (T *)room;
    room += aligned(n * n * sizeof(T));
    REAL *const values = (REAL *)room;
    room += aligned(n * sizeof(REAL));
    T *const work = (T *)room;
    room += aligned(sizes[7] * sizeof(T));
    REAL *const reals = (REAL *)room;
    room += aligned(sizes[8] * sizeof(REAL));
    int m = (int)n, length = (int)sizes[7], of_reals = (int)sizes[8], of_integers = (int)sizes[9], info = 0;
    char job = sizes[6] ? 'V' : 'N', part = sizes[5] ? 'L' : 'U';
    transpose(matrix, (const T *)buffers[0] + number * n * n, n, n);
#if COMPLEX
    evd(&job, &part, &m, matrix, &m, values, work, &length, reals, &of_reals, (int *)room, &of_integers, &info);
#else
    (void)of_reals, (void)reals;
    evd(&job, &part, &m, matrix, &m, values, work, &length, (int *)room, &of_integers, &info);
#endif
    if (info) {
      fill(matrix, n * n, not_a_number);
      for (int64_t i = 0; i < n; ++i) values[i] = not_a_number;
    }
    if (buffers[1]) transpose((T *)buffers[1] + number * n * n, matrix, n, n);
    if (buffers[2])
      for (int64_t i = 0; i < n; ++i) ((REAL *)buffers[2])[number * n + i] = values[i];
  }
}

// buffers: matrices, values, u, vh, room. sizes: count, rows, columns, threads, room, gesdd, columns of u, rows of vh,
// 'N', 'S' or 'A', elements of work, of real work.
void svd(void **buffers, const int64_t *sizes) {
  const int64_t rows = sizes[1], columns = sizes[2], least = rows < columns ? rows : columns;
  const int64_t left = sizes[6], right = sizes[7];
#if COMPLEX
  void (*const gesdd)(char *, int *, int *, T *, int *, REAL *, T *, int *, T *, int *, T *, int *, REAL *, int *, int *) =
      (void *)sizes[5];
#else
  void (*const gesdd)(char *, int *, int *, T *, int *, REAL *, T *, int *, T *, int *, T *, int *, int *, int *) =
      (void *)sizes[5];
#endif
  EACH(rows, columns, sizes[3], ALONE_IN_STEPS, 11) {
    if (interrupted(&poll)) continue;
    char *room = (char *)buffers[4] + omp_get_thread_num() * sizes[4];
    T *const matrix = (T *)room;
    room += aligned(rows * columns * sizeof(T));
    REAL *const values = (REAL *)room;
    room += aligned(least * sizeof(REAL));
    T *const u = (T *)room;
    room += aligned(rows * left * sizeof(T));
    T *const vh = (T *)room;
    room += aligned(columns * right * sizeof(T));
    T *const work = (T *)room;
    room += aligned(sizes[9] * sizeof(T));
    REAL *const reals = (REAL *)room;
    room += aligned(sizes[10] * sizeof(REAL));
    int m = (int)rows, n = (int)columns, of_vh = (int)(right > 0 ? right : 1), length = (int)sizes[9], info = 0;
    char job = (char)sizes[8];
    transpose(matrix, (const T *)buffers[0] + number * rows * columns, rows, columns);
#if COMPLEX
    gesdd(&job, &m, &n, matrix, &m, values, u, &m, vh, &of_vh, work, &length, reals, (int *)room, &info);
#else
    (void)reals;
    gesdd(&job, &m, &n, matrix, &m, values, u, &m, vh, &of_vh, work, &length, (int *)room, &info);
#endif
    if (info) {
      for (int64_t i = 0; i < least; ++i) values[i] = not_a_number;
      fill(u, rows * left, not_a_number);
      fill(vh, columns * right, not_a_number);
    }
    if (buffers[1])
      for (int64_t i = 0; i < least; ++i) ((REAL *)buffers[1])[number * least + i] = values[i];
    if (buffers[2]) transpose((T *)buffers[2] + number * rows * left, u, left, rows);
    if (buffers[3]) transpose((T *)buffers[3] + number * columns * right, vh, columns, right);
  }
}

// buffers: triangles, right sides, solutions. sizes: count, rows and columns of the right sides, threads, trsm, whether the
// triangle stands on the left, is lower, is transposed, is conjugated, has ones on its diagonal; room.
void trsm(void **buffers, const int64_t *sizes) {
  const int64_t rows = sizes[1], columns = sizes[2], n = sizes[5] ? rows : columns;
  void (*const solve)(char *, char *, char *, char *, int *, int *, T *, T *, int *, T *, int *) = (void *)sizes[4];
  EACH(n, n, sizes[3], ALONE, 11) {
    if (interrupted(&poll)) continue;
    const T *const triangle = (const T *)buffers[0] + number * n * n;
    const T *const right = (const T *)buffers[1] + number * rows * columns;
    T *const out = (T *)buffers[2] + number * rows * columns;
    T *const own = (T *)((char *)buffers[3] + omp_get_thread_num() * sizes[10]);
    copy(out, right, rows * columns);
    const T *of = triangle;
    const int conjugated = COMPLEX && sizes[8], transposed = sizes[7] != 0;
#if COMPLEX
    if (conjugated && !transposed) {  // BLAS conjugates what it transposes alone
      for (int64_t i = 0; i < n * n; ++i) own[i] = CONJ(triangle[i]);
      of = own;
    }
#else
    (void)own;
#endif
    char side = sizes[5] ? 'R' : 'L', part = sizes[6] ? 'U' : 'L', unit = sizes[9] ? 'U' : 'N';
    char how = transposed ? conjugated ? 'C' : 'T' : 'N';
    int m = (int)columns, k = (int)rows, order = (int)n;
    T one = 1;
    solve(&side, &part, &how, &unit, &m, &k, &one, (T *)of, &order, out, &m);
  }
}
