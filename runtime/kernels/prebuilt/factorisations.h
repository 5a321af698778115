// Factorisations of real matrices, under names of their type.
#define COMPLEX 0
#define CONJ(x) (~(x))
#define lu NAMED(lu)
#define qr NAMED(qr)
#define reflections NAMED(reflections)
#define cholesky NAMED(cholesky)
#define eigh NAMED(eigh)
#define svd NAMED(svd)
#define trsm NAMED(trsm)
#define small_lu NAMED(small_lu)
#define small_cholesky NAMED(small_cholesky)
#define small_trsm NAMED(small_trsm)
#include "../gemm/poll.c"
#include "../lapack.c"
#include "../small_factorisations.c"
