// Stream compaction: the positions at which a mask holds, or the elements that stand there, in order.
//
// T is an unsigned integer of an element's size, 4 or 8 bytes. Both functions write at most as many elements as the mask has true
// ones, which the caller has counted. Elements are gathered in a register before a masked store: a compressing store is slow on
// some processors.
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

void positions(const uint8_t *restrict mask, int64_t n, int64_t *restrict out) {
  int64_t i = 0;
#if defined(__AVX512F__)
  __m512i at = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  for (; i + 8 <= n; i += 8, at = _mm512_add_epi64(at, _mm512_set1_epi64(8))) {
    const uint8_t bits = bits_of(mask + i);
    if (!bits) continue;
    _mm512_mask_storeu_epi64(out, (1u << __builtin_popcount(bits)) - 1, _mm512_maskz_compress_epi64(bits, at));
    out += __builtin_popcount(bits);
  }
#else
  for (; i + 8 <= n; i += 8) {
    uint32_t bits = bits_of(mask + i);
    for (; bits; bits &= bits - 1) *out++ = i + __builtin_ctz(bits);
  }
#endif
  for (; i < n; ++i)
    if (mask[i]) *out++ = i;
}

void selected(const uint8_t *restrict mask, int64_t n, const T *restrict x, T *restrict out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint32_t bits = bits_of(mask + i);
    if (!bits) continue;
#if defined(__AVX512F__)
    const uint32_t first = (1u << __builtin_popcount(bits)) - 1;
    if (sizeof(T) == 8) _mm512_mask_storeu_epi64(out, first, _mm512_maskz_compress_epi64(bits, _mm512_loadu_si512(x + i)));
    else _mm512_mask_storeu_epi32(out, first, _mm512_maskz_compress_epi32(bits, _mm512_maskz_loadu_epi32(0xff, x + i)));
    out += __builtin_popcount(bits);
#else
    for (; bits; bits &= bits - 1) *out++ = x[i + __builtin_ctz(bits)];
#endif
  }
  for (; i < n; ++i)
    if (mask[i]) *out++ = x[i];
}
