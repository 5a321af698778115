// Sorts of int32 with 4 bytes beside each key, as ranks and positions by an argsort of an argsort take them, and top_k, as
// `on_demand.sort_text` writes them.
#define BITS 32
#define KIND 1
#define PAYLOAD 4
#define PAYLOAD_BITS 32
#define sort sort_int32_4
#define top_k top_k_int32
#include "../gemm/poll.c"
#include "../sort.c"
