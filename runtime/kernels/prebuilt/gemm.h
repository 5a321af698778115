// Products whose operands, sums and results are of one type, unless it is said how elements are read and written.
#ifndef LOAD
#define SAME 1
#define WHOLE 1
#define LOAD(x) (x)
#define SAVE(x) (x)
#endif
#include "../gemm/poll.c"
#include "../gemm/base.c"
#include "../gemm/packed.c"
#include "../gemm/quads.c"
#include "../gemm/pairs.c"
#include "../gemm/tables.c"
#include "../gemm/unpacked.c"
#include "../gemm/gemv.c"
#include "../gemm/inner.c"
#include "../gemm/narrow.c"
#include "../gemm/matrix_unit.c"
#include "../gemm/gemm.c"
