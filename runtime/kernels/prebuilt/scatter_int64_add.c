// Sums of int64 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) ((a) + (u))
#define NEUTRAL 0
#define IN int64_t
#define T int64_t
#define scatter scatter_int64_add
#include "../scatter.c"
