// Sorts of float64 alone, as `on_demand.sort_text` writes them.
#define BITS 64
#define KIND 2
#define PAYLOAD 0
#define PAYLOAD_BITS 0
#define INFINITE ((KEY)9218868437227405312ull)
#define sort sort_float64_0
#include "../gemm/poll.c"
#include "../sort.c"
