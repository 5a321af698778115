// Elements of uint16, or other elements of this width, scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define REPLACES 
#define LOAD(x) (x)
#define COMBINE(a, u) (u)
#define IN uint16_t
#define T uint16_t
#define scatter scatter_uint16_set
#include "../scatter.c"
