// Stream compaction: the positions at which a mask holds, or the elements that stand there, in order.
//
// T is an unsigned integer of an element's size, 4 or 8 bytes. Both functions write at most as many elements as the mask has true
// ones, which the caller has counted. Elements are gathered in a register before a masked store: a compressing store is slow on
// some processors. Where AVX-512 is at hand, 64 bools are tested at once, and the eights of those that are not all false go without a branch.
#include <stdint.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

// The eight bools from m on as bits.
static inline uint8_t bits_of(const uint8_t *m) {
  uint64_t word;
  __builtin_memcpy(&word, m, 8);
  return (uint8_t)((word * 0x0102040810204080ull) >> 56);
}

#if defined(__AVX512BW__)
static inline uint64_t bits_of_line(const uint8_t *m) {
  const __m512i line = _mm512_loadu_si512(m);
  return _mm512_test_epi8_mask(line, line);
}

static inline int64_t *store_positions(int64_t *out, uint8_t bits, __m512i at) {
  const int found = __builtin_popcount(bits);
  _mm512_mask_storeu_epi64(out, (uint8_t)((1u << found) - 1), _mm512_maskz_compress_epi64(bits, at));
  return out + found;
}

static inline T *store_selected(T *out, uint8_t bits, const T *x) {
  const int found = __builtin_popcount(bits);
  const uint8_t first = (uint8_t)((1u << found) - 1);
  if (sizeof(T) == 8) _mm512_mask_storeu_epi64(out, first, _mm512_maskz_compress_epi64(bits, _mm512_loadu_si512(x)));
  else _mm512_mask_storeu_epi32(out, first, _mm512_maskz_compress_epi32(bits, _mm512_maskz_loadu_epi32(0xff, x)));
  return out + found;
}
#endif

void positions(const uint8_t *restrict mask, int64_t n, int64_t *restrict out) {
  int64_t i = 0;
#if defined(__AVX512BW__)
  const __m512i first = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  for (; i + 64 <= n; i += 64) {
    const uint64_t bits = bits_of_line(mask + i);
    if (!bits) continue;
    for (int64_t j = 0; j < 64; j += 8)
      out = store_positions(out, (uint8_t)(bits >> j), _mm512_add_epi64(first, _mm512_set1_epi64(i + j)));
  }
#endif
  for (; i + 8 <= n; i += 8) {
    uint32_t bits = bits_of(mask + i);
    for (; bits; bits &= bits - 1) *out++ = i + __builtin_ctz(bits);
  }
  for (; i < n; ++i)
    if (mask[i]) *out++ = i;
}

void selected(const uint8_t *restrict mask, int64_t n, const T *restrict x, T *restrict out) {
  int64_t i = 0;
#if defined(__AVX512BW__)
  for (; i + 64 <= n; i += 64) {
    const uint64_t bits = bits_of_line(mask + i);
    if (!bits) continue;
    for (int64_t j = 0; j < 64; j += 8) out = store_selected(out, (uint8_t)(bits >> j), x + i + j);
  }
#endif
  for (; i + 8 <= n; i += 8) {
    uint32_t bits = bits_of(mask + i);
    for (; bits; bits &= bits - 1) *out++ = x[i + __builtin_ctz(bits)];
  }
  for (; i < n; ++i)
    if (mask[i]) *out++ = x[i];
}
