// Least of float32 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
static inline float minimum_of_float(float a, float b) { union { float f; uint32_t i; } x = { a }, y = { b }; const uint32_t r = a < b ? x.i : y.i, e = r | (a == b ? x.i : 0); x.i = a != a ? x.i : e; return x.f; }
static inline float minimum_of_float_alone(float a, float b) {
#ifdef __AVX512DQ__
float r; __asm__("vrangess $4, %2, %1, %0\n\tvcmpss $3, %2, %1, %%k1\n\tvaddss %2, %1, %0%{%%k1%}" : "=&v"(r) : "v"(a), "v"(b) : "k1"); return r;
#else
typedef float f __attribute__((vector_size(16))); typedef int32_t i __attribute__((vector_size(16))); const f x = { a }, y = { b }; const i first = x < y, same = x == y, none = x != x; i r = (i)x & first | (i)y & ~first; r = ((i)x | (i)y) & same | r & ~same; r = (i)x & none | r & ~none; return ((f)r)[0];
#endif
}
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) minimum_of_float(a, u)
#define NEUTRAL __builtin_inf()
#define IN float
#define T float
#define COMBINE_ONE(a, u) minimum_of_float_alone(a, u)
#define scatter scatter_float32_min
#include "../scatter.c"
