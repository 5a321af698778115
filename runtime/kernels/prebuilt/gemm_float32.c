// Products of float32, as `on_demand.gemm_text` writes them.
#define IN float
#define T float
#define OUT float
#define gemm gemm_float32_float32
#include "gemm.h"
