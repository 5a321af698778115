// Products of float32 whose operands are read by tables, as `on_demand.gemm_text` writes them.
#define BY_TABLES
#define ROWS_OF_KERNELS
#define IN float
#define T float
#define OUT float
#define tables_of_rows tables_of_rows_float32_float32
#include "gemm.h"
