// Sorts of float32 alone, as `on_demand.sort_text` writes them.
#define BITS 32
#define KIND 2
#define PAYLOAD 0
#define PAYLOAD_BITS 0
#define INFINITE ((KEY)2139095040ull)
#define sort sort_float32_0
#include "../gemm/poll.c"
#include "../sort.c"
