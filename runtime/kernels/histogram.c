// Counts of numbers in bins of equal width, by NumPy's rules to the last bit: an index by arithmetic, put right by the edges.
//
// T is float or double. All numbers are finite and between the outer edges. `scale` holds the first edge, the last minus it, the bins per
// unit, and how near a whole number an index may lie before the edges must tell, 1 where they always must. Neighbours are counted in
// TABLES tables, so that equal ones need not wait for each other.
#include <stdint.h>

#define TABLES 4
#define BLOCK 1024

// The indices of a block whose edges each number is compared with.
static void compared(const T *restrict x, int64_t length, const T *restrict scale, int64_t bins, const T *restrict edges, int32_t *restrict index) {
  const T first = scale[0], width = scale[1], number = (T)bins;
  #pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const T value = x[i];
    int32_t k = (int32_t)((value - first) / width * number);
    k -= k == (int32_t)bins;
    k -= value < edges[k];
    k += (value >= edges[k + 1]) & (k != (int32_t)bins - 1);
    index[i] = k;
  }
}

// The indices of a block; whether one of them lies so near to an edge that only `compared` tells.
static int computed(const T *restrict x, int64_t length, const T *restrict scale, int32_t *restrict index) {
  const T first = scale[0], rate = scale[2], near = scale[3], far = 1 - near;
  int doubtful = 0;
  #pragma omp simd reduction(|:doubtful)
  for (int64_t i = 0; i < length; ++i) {
    const T place = (x[i] - first) * rate;
    const int32_t k = (int32_t)place;
    const T rest = place - (T)k;
    doubtful |= (rest < near) | (rest > far);
    index[i] = k;
  }
  return doubtful;
}

// `edges` has one more than `bins`; `counts` has TABLES times `bins` zeros.
void histogram(const T *restrict x, int64_t n, const T *restrict scale, int64_t bins, const T *restrict edges, int64_t *restrict counts) {
  int32_t index[BLOCK];
  for (int64_t from = 0; from < n; from += BLOCK) {
    const int64_t length = n - from < BLOCK ? n - from : BLOCK;
    if (scale[3] >= 1 || computed(x + from, length, scale, index)) compared(x + from, length, scale, bins, edges, index);
    int64_t i = 0;
    for (; i + TABLES <= length; i += TABLES)
      for (int64_t table = 0; table < TABLES; ++table) ++counts[table * bins + index[i + table]];
    for (; i < length; ++i) ++counts[index[i]];
  }
}
