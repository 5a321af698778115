// Sums of float64 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) ((a) + (u))
#define NEUTRAL -0.0
#define IN double
#define T double
#define scatter scatter_float64_add
#include "../scatter.c"
