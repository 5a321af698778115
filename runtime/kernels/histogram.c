// Counts of numbers in bins of equal width, by NumPy's rules to the last bit: an index by division, put right by the edges.
//
// T is float or double. All numbers are finite and between the outer edges. Neighbours are counted in TABLES tables, so that equal
// ones need not wait for each other.
#include <stdint.h>

#define TABLES 4
#define BLOCK 1024

// `scale`: the first edge, and the last minus it. `edges` has one more than `bins`; `counts` has TABLES times `bins` zeros.
void histogram(const T *restrict x, int64_t n, const T *restrict scale, int64_t bins, const T *restrict edges, int64_t *restrict counts) {
  const T first = scale[0], width = scale[1], number = (T)bins;
  int32_t index[BLOCK];
  for (int64_t from = 0; from < n; from += BLOCK) {
    const int64_t length = n - from < BLOCK ? n - from : BLOCK;
    #pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      const T value = x[from + i];
      int32_t k = (int32_t)((value - first) / width * number);
      k -= k == (int32_t)bins;
      k -= value < edges[k];
      k += (value >= edges[k + 1]) & (k != (int32_t)bins - 1);
      index[i] = k;
    }
    for (int64_t i = 0; i < length; ++i) ++counts[i % TABLES * bins + index[i]];
  }
}
