// Products of float64, as `on_demand.gemm_text` writes them.
#define IN double
#define T double
#define OUT double
#define gemm gemm_float64_float64
#include "gemm.h"
