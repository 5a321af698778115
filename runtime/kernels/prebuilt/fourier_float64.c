// Fourier transforms of numbers whose parts are float64, as `on_demand.fourier_text` writes them.
#define T double
#define WORD int64_t
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA __builtin_fma
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#define fourier fourier_float64
#include "../fourier/columns.c"
#include "../fourier/transform.c"
