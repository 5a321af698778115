// Products of float32 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) ((a) * (u))
#define NEUTRAL 1
#define IN float
#define T float
#define scatter scatter_float32_mul
#include "../scatter.c"
