// Sorts of float32 with 4 bytes beside each key, and top_k, as `on_demand.sort_text` writes them.
#define BITS 32
#define KIND 2
#define PAYLOAD 4
#define PAYLOAD_BITS 32
#define INFINITE ((KEY)2139095040ull)
#define sort sort_float32_4
#define top_k top_k_float32
#include "../gemm/poll.c"
#include "../sort.c"
