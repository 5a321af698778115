// Discrete Fourier transforms along one dimension, by an inner loop of NumPy's ufuncs (numpy.fft), which needs no Python.
// In place where both sides are one type: NumPy's loop then works in a buffer, a row at a time.
#include <omp.h>
#include <stdint.h>

typedef void (*inner_loop)(char **arrays, const intptr_t *dimensions, const intptr_t *steps, void *data);

// buffers: operand, result. sizes: NumPy's loop, its data, elements before the dimension, its extent in the operand and in the
// result, elements after it, bytes of an element of the operand and of the result, one over the scale, whether numbers are
// doubles, most threads.
void fft(void **buffers, const int64_t *sizes) {
  const inner_loop loop = (inner_loop)sizes[0];
  void *const data = (void *)sizes[1];
  const int64_t outer = sizes[2], given = sizes[3], found = sizes[4], inner = sizes[5], from = sizes[6], to = sizes[7];
  double wide = 1.0 / sizes[8];
  float narrow = (float)wide;
  char *const scale = sizes[9] ? (char *)&wide : (char *)&narrow;
  // Rows of one run lie at equal distances: those that share all indices before the dimension, or all if nothing is after it.
  const int64_t runs = inner == 1 ? 1 : outer, rows = inner == 1 ? outer : inner;
  const int64_t row_from = inner == 1 ? given * from : from, row_to = inner == 1 ? found * to : to;
  const int team = outer * inner * found < 65536 ? 1 : sizes[10] < omp_get_max_threads() ? (int)sizes[10] : omp_get_max_threads();
  const int64_t pieces = runs >= team ? 1 : team < rows ? team : rows;
  #pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
  for (int64_t task = 0; task < runs * pieces; ++task) {
    const int64_t run = task / pieces, first = task % pieces * rows / pieces, last = (task % pieces + 1) * rows / pieces;
    char *arrays[] = {
      (char *)buffers[0] + run * given * inner * from + first * row_from, scale,
      (char *)buffers[1] + run * found * inner * to + first * row_to,
    };
    const intptr_t dimensions[] = {last - first, given, found};
    const intptr_t steps[] = {row_from, 0, row_to, inner * from, inner * to};
    loop(arrays, dimensions, steps, data);
  }
}
