// gemm for double, as `library.gemm_text` writes it.
#define IN double
#define T double
#define OUT double
#include "plain.h"

// What both were built from.
const char gemm_digest[] = GEMM_DIGEST;
