// Products of int8, whose sums and results are int32, as `on_demand.gemm_text` writes them.
#define PAIRED
#define FOURFOLD
#define TILE_DOT "tdpbssd"
#define IN int8_t
#define T int32_t
#define OUT int32_t
#define SAME 0
#define WHOLE 1
#define LOAD(x) (x)
#define SAVE(x) (x)
#define gemm gemm_int8_int32
#include "gemm.h"
