// Sorts of float32 with 8 bytes beside each key, NumPy's positions, as `on_demand.sort_text` writes them.
#define BITS 32
#define KIND 2
#define PAYLOAD 8
#define PAYLOAD_BITS 64
#define INFINITE ((KEY)2139095040ull)
#define sort sort_float32_8
#include "../gemm/poll.c"
#include "../sort.c"
