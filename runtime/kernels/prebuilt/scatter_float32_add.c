// Sums of float32 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) ((a) + (u))
#define NEUTRAL -0.0
#define IN float
#define T float
#define scatter scatter_float32_add
#include "../scatter.c"
