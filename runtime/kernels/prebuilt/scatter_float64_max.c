// Greatest of float64 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
static inline double maximum_of_double(double a, double b) { union { double f; uint64_t i; } x = { a }, y = { b }; const uint64_t r = a > b ? x.i : y.i, e = r & (a == b ? x.i : ~(uint64_t)0); x.i = a != a ? x.i : e; return x.f; }
static inline double maximum_of_double_alone(double a, double b) {
#ifdef __AVX512DQ__
double r; __asm__("vrangesd $5, %2, %1, %0\n\tvcmpsd $3, %2, %1, %%k1\n\tvaddsd %2, %1, %0%{%%k1%}" : "=&v"(r) : "v"(a), "v"(b) : "k1"); return r;
#else
typedef double f __attribute__((vector_size(16))); typedef int64_t i __attribute__((vector_size(16))); const f x = { a }, y = { b }; const i first = x > y, same = x == y, none = x != x; i r = (i)x & first | (i)y & ~first; r = ((i)x & (i)y) & same | r & ~same; r = (i)x & none | r & ~none; return ((f)r)[0];
#endif
}
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) maximum_of_double(a, u)
#define NEUTRAL -__builtin_inf()
#define IN double
#define T double
#define COMBINE_ONE(a, u) maximum_of_double_alone(a, u)
#define scatter scatter_float64_max
#include "../scatter.c"
