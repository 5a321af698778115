// Greatest of int64 scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define LOAD(x) (x)
#define SAVE(x) (x)
#define COMBINE(a, u) ((u) > (a) ? (u) : (a))
#define NEUTRAL (-9223372036854775807LL - 1)
#define IN int64_t
#define T int64_t
#define scatter scatter_int64_max
#include "../scatter.c"
