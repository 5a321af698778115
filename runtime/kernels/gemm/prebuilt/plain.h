// Products whose operands, sums and results are of one type, under a name of that type.
#define SAME 1
#define WHOLE 1
#define LOAD(x) (x)
#define SAVE(x) (x)
#define gemm JOINED(gemm_, T)
#define JOINED(a, b) JOINED_AS_WRITTEN(a, b)
#define JOINED_AS_WRITTEN(a, b) a##b
#include "../poll.c"
#include "../base.c"
#include "../packed.c"
#include "../unpacked.c"
#include "../gemv.c"
#include "../gemm.c"
