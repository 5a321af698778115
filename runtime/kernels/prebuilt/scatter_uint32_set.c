// Elements of uint32, or other elements of this width, scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define REPLACES 
#define LOAD(x) (x)
#define COMBINE(a, u) (u)
#define IN uint32_t
#define T uint32_t
#define scatter scatter_uint32_set
#include "../scatter.c"
