// Products of int64, as `on_demand.gemm_text` writes them.
#define IN int64_t
#define T int64_t
#define OUT int64_t
#define gemm gemm_int64_int64
#include "gemm.h"
