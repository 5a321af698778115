// Sorts of int64 alone, as `on_demand.sort_text` writes them.
#define BITS 64
#define KIND 1
#define PAYLOAD 0
#define PAYLOAD_BITS 0
#define sort sort_int64_0
#include "../gemm/poll.c"
#include "../sort.c"
