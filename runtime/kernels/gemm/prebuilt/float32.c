// gemm for float, as `library.gemm_text` writes it.
#define IN float
#define T float
#define OUT float
#include "plain.h"
