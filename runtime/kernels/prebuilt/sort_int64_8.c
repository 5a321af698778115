// Sorts of int64 with 8 bytes beside each key, NumPy's positions, as `on_demand.sort_text` writes them.
#define BITS 64
#define KIND 1
#define PAYLOAD 8
#define PAYLOAD_BITS 64
#define sort sort_int64_8
#include "../gemm/poll.c"
#include "../sort.c"
