// Fourier transforms of numbers whose parts are float32, as `on_demand.fourier_text` writes them.
#define T float
#define WORD int32_t
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA __builtin_fmaf
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#define fourier fourier_float32
#include "../fourier/columns.c"
#include "../fourier/transform.c"
