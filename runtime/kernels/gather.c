// The elements of an array in the order that positions along one dimension give: out[i] = x[positions[i]] in each row.
// T is any type of an element's size.
#include <omp.h>
#include <stdint.h>

// buffers: array, positions, result. sizes: rows before the dimension, its extent, elements after it, most threads.
void permute(void **buffers, const int64_t *sizes) {
  const T *const x = buffers[0];
  const uint32_t *const positions = buffers[1];
  T *const restrict out = buffers[2];
  const int64_t outer = sizes[0], n = sizes[1], inner = sizes[2], total = outer * n;
  const int threads = sizes[3] < omp_get_max_threads() ? (int)sizes[3] : omp_get_max_threads();
  #pragma omp parallel for schedule(static) num_threads(threads) if (total * inner > 32768)
  for (int64_t i = 0; i < total; ++i) {
    const T *const row = x + i / n * n * inner;
    for (int64_t c = 0; c < inner; ++c) out[i * inner + c] = row[(int64_t)positions[i * inner + c] * inner + c];
  }
}
