// Elements of 32 bits scattered by int32, as `on_demand.scatter_text` writes them.
#include <stdint.h>
#define REPLACES
#define LOAD(x) (x)
#define COMBINE(a, u) (u)
#define IN uint32_t
#define T uint32_t
#define IDX int32_t
#define scatter scatter_uint32_set_int32
#include "../scatter.c"
