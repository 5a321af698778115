// Products of float32 whose operands are read by tables, as `on_demand.gemm_text` writes them.
#define BY_TABLES
#define IN float
#define T float
#define OUT float
#define tables tables_float32_float32
#include "gemm.h"
