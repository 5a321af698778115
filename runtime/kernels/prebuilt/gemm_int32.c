// Products of int32, as `on_demand.gemm_text` writes them.
#define IN int32_t
#define T int32_t
#define OUT int32_t
#define gemm gemm_int32_int32
#include "gemm.h"
