// Sums of float16 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
static inline float float_of_bits(uint32_t x) { union { uint32_t i; float f; } u = { x }; return u.f; }
static inline uint32_t bits_of_float(float x) { union { float f; uint32_t i; } u = { x }; return u.i; }
static inline float float16_load(uint16_t x) { uint32_t m = (uint32_t)(x & 0x7fff) << 13; uint32_t i = bits_of_float(float_of_bits(m) * 0x1p112f) | (m >= 0x0f800000u ? 0x7f800000u : 0); return float_of_bits(i | (uint32_t)(x & 0x8000) << 16); }
static inline uint16_t float16_round(float x) { uint32_t i = bits_of_float(x), m = i & 0x7fffffff; uint32_t small = bits_of_float(float_of_bits(m) + 0.5f) - 0x3f000000u; uint32_t normal = (m - 0x38000000u + 0xfff + (m >> 13 & 1)) >> 13; uint32_t h = m < 0x38800000u ? small : m < 0x47800000u ? normal : m > 0x7f800000u ? 0x7e00 | (m >> 13 & 0x3ff) : 0x7c00; return h | (i >> 16 & 0x8000); }
#define LOAD(x) float16_load((x))
#define SAVE(x) float16_round((x))
#define COMBINE(a, u) ((a) + (u))
#define NEUTRAL -0.0
#define WIDER 
#define IN uint16_t
#define T float
#define scatter scatter_float16_add
#include "../scatter.c"
