// Sorts of float64 with 8 bytes beside each key, NumPy's positions, as `on_demand.sort_text` writes them.
#define BITS 64
#define KIND 2
#define PAYLOAD 8
#define PAYLOAD_BITS 64
#define INFINITE ((KEY)9218868437227405312ull)
#define sort sort_float64_8
#include "../gemm/poll.c"
#include "../sort.c"
