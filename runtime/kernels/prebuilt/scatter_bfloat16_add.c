// Sums of bfloat16 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
static inline float float_of_bits(uint32_t x) { union { uint32_t i; float f; } u = { x }; return u.f; }
static inline uint32_t bits_of_float(float x) { union { float f; uint32_t i; } u = { x }; return u.i; }
static inline float bfloat16_load(uint16_t x) { return float_of_bits((uint32_t)x << 16); }
static inline uint16_t bfloat16_round(float x) { uint32_t i = bits_of_float(x); return x != x ? (uint16_t)((i >> 16) | 64) : (uint16_t)((i + 0x7fff + ((i >> 16) & 1)) >> 16); }
#define LOAD(x) bfloat16_load((x))
#define SAVE(x) bfloat16_round((x))
#define COMBINE(a, u) ((a) + (u))
#define NEUTRAL -0.0
#define WIDER 
#define IN uint16_t
#define T float
#define scatter scatter_bfloat16_add
#include "../scatter.c"
