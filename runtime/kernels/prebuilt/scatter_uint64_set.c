// Elements of uint64, or other elements of this width, scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define REPLACES 
#define LOAD(x) (x)
#define COMBINE(a, u) (u)
#define IN uint64_t
#define T uint64_t
#define scatter scatter_uint64_set
#include "../scatter.c"
