// Products whose operands, sums and results are of one type.
#define SAME 1
#define WHOLE 1
#define LOAD(x) (x)
#define SAVE(x) (x)
#include "../gemm/poll.c"
#include "../gemm/base.c"
#include "../gemm/packed.c"
#include "../gemm/unpacked.c"
#include "../gemm/gemv.c"
#include "../gemm/inner.c"
#include "../gemm/gemm.c"
