// Elements of uint8, or other elements of this width, scattered, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define REPLACES 
#define LOAD(x) (x)
#define COMBINE(a, u) (u)
#define IN uint8_t
#define T uint8_t
#define scatter scatter_uint8_set
#include "../scatter.c"
