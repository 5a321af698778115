// Sorts of uint32 with 4 bytes beside each key, as random permutations take them, and top_k, as `on_demand.sort_text` writes them.
#define BITS 32
#define KIND 0
#define PAYLOAD 4
#define PAYLOAD_BITS 32
#define sort sort_uint32_4
#define top_k top_k_uint32
#include "../gemm/poll.c"
#include "../sort.c"
