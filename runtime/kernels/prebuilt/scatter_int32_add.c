// Sums of int32 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) ((a) + (u))
#define NEUTRAL 0
#define IN int32_t
#define T int32_t
#define scatter scatter_int32_add
#include "../scatter.c"
