// Order statistics: the elements that would stand at positions k and k + 1 of the sorted array, without sorting it.
//
// Floyd and Rivest (1975): a sorted sample tells two pivots between which the k-th element lies with near certainty. One pass
// counts what is below them and keeps what is between, which is few; quickselect finds the element among these. Where the sample
// was wrong, the pass is made again with pivots that lie further apart. T is float or double (WIDE).
#include <stdint.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES (64 / (int)sizeof(T))
#if WIDE
#define LOAD _mm512_loadu_pd
#define STORE _mm512_storeu_pd
#define BROADCAST _mm512_set1_pd
#define COMPARE _mm512_cmp_pd_mask
#define COMPRESS _mm512_maskz_compress_pd
#else
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define BROADCAST _mm512_set1_ps
#define COMPARE _mm512_cmp_ps_mask
#define COMPRESS _mm512_maskz_compress_ps
#endif
#endif

#define SAMPLE 2048
#define FEW 16  // elements that insertion sorts

static void insertion_sort(T *x, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const T value = x[i];
    int64_t j = i;
    for (; j > 0 && x[j - 1] > value; --j) x[j] = x[j - 1];
    x[j] = value;
  }
}

static T median_of_three(T a, T b, T c) {
  return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

static void sort(T *x, int64_t n) {
  while (n > FEW) {
    const T pivot = median_of_three(x[0], x[n / 2], x[n - 1]);
    int64_t i = -1, j = n;
    for (;;) {
      while (x[++i] < pivot) {}
      while (x[--j] > pivot) {}
      if (i >= j) break;
      const T held = x[i];
      x[i] = x[j], x[j] = held;
    }
    if (j + 1 < n - j - 1) sort(x, j + 1), x += j + 1, n -= j + 1;
    else sort(x + j + 1, n - j - 1), n = j + 1;
  }
  insertion_sort(x, n);
}

// How many elements equal a value, how many are below it, and how many nans there are.
static int64_t equals(const T *x, int64_t n, T value, int64_t *below, int64_t *nans) {
  int64_t count = 0, fewer = 0, none = 0;
  #pragma omp simd reduction(+ : count, fewer, none)
  for (int64_t i = 0; i < n; ++i) fewer += x[i] < value, count += x[i] == value, none += x[i] != x[i];
  *below = fewer, *nans = none;
  return count;
}

// What lies in [low, high], copied to `kept`, at most `room` of it; how much is below, and how many nans there are.
static int64_t between(const T *restrict x, int64_t n, T low, T high, T *restrict kept, int64_t room, int64_t *below, int64_t *nans) {
  int64_t count = 0, fewer = 0, none = 0;
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + LANES <= n && count + LANES <= room; i += LANES) {
    const __auto_type v = LOAD(x + i);
    const uint32_t inside = COMPARE(v, BROADCAST(low), _CMP_GE_OQ) & COMPARE(v, BROADCAST(high), _CMP_LE_OQ);
    fewer += __builtin_popcount(COMPARE(v, BROADCAST(low), _CMP_LT_OQ));
    none += __builtin_popcount(COMPARE(v, v, _CMP_UNORD_Q));
    STORE(kept + count, COMPRESS(inside, v));
    count += __builtin_popcount(inside);
  }
#endif
  for (; i < n && count < room; ++i) {
    const T v = x[i];
    fewer += v < low, none += v != v;
    kept[count] = v;
    count += (v >= low) & (v <= high);
  }
  *below = fewer, *nans = none;
  return i < n ? -1 : count;
}

// The number of nans found, 0 if `found` has the elements at positions k and k + 1 (the last one twice), -1 if there was no room.
// `room`: elements that `scratch` holds, after those of the sample.
int64_t order_statistics(const T *x, int64_t n, int64_t k, T *scratch, int64_t room, T *found) {
  const int64_t size = n < SAMPLE ? n : SAMPLE, next = k + 1 < n ? k + 1 : k;
  T *const kept = scratch + SAMPLE;
  for (int64_t i = 0; i < size; ++i) scratch[i] = x[(int64_t)((__int128)i * n / size)];
  for (int64_t i = 0; i < size; ++i)
    if (scratch[i] != scratch[i]) return 1;
  sort(scratch, size);
  int64_t margin = 3;
  while (margin * margin < 9 * size / 4) ++margin;  // three standard deviations of a median's rank
  for (int attempt = 0; attempt < 2; ++attempt, margin *= 8) {
    const int64_t from = (int64_t)((double)k / n * size) - margin, to = (int64_t)((double)next / n * size) + 1 + margin;
    const T low = from < 0 ? -INFINITY : scratch[from], high = to >= size ? INFINITY : scratch[to];
    int64_t below, nans;
    const int64_t count = low == high ? equals(x, n, low, &below, &nans) : between(x, n, low, high, kept, room, &below, &nans);
    if (count < 0) return -1;
    if (nans) return nans;
    if (k < below || next >= below + count) continue;
    if (low == high) return found[0] = found[1] = low, 0;
    int64_t first = 0, last = count;
    while (last - first > 4 * FEW) {  // quickselect, for both
      const T pivot = median_of_three(kept[first], kept[(first + last) / 2], kept[last - 1]);
      int64_t i = first - 1, j = last;
      for (;;) {
        while (kept[++i] < pivot) {}
        while (kept[--j] > pivot) {}
        if (i >= j) break;
        const T held = kept[i];
        kept[i] = kept[j], kept[j] = held;
      }
      if (next - below <= j) last = j + 1;
      else if (k - below > j) first = j + 1;
      else break;  // one on each side
    }
    sort(kept + first, last - first);
    found[0] = kept[k - below], found[1] = kept[next - below];
    return 0;
  }
  return -1;
}
