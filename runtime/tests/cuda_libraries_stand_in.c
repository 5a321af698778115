/* Stand-ins for libcublasLt, libcublas, libcusolver and libcufft on the streams of cuda_stand_in.c, whose text comes before this one. */

/* ---- cuBLASLt */

int cublasLtCreate(void **handle) { static int one; *handle = &one; return 0; }
int cublasLtMatmulDescCreate(Desc **desc, int compute, int scale) { *desc = calloc(1, sizeof **desc); (*desc)->scale = scale; return 0; }
int cublasLtMatmulDescSetAttribute(Desc *desc, int attribute, const void *value, size_t bytes) {
    if (attribute != 3 && attribute != 4) return 7;
    desc->transposed[attribute - 3] = *(const int *)value;
    return 0;
}
int cublasLtMatmulDescDestroy(Desc *desc) { free(desc); return 0; }
int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *layout = calloc(1, sizeof **layout);
    **layout = (Layout){type, rows, columns, leading, 1, 0};
    return leading < (int64_t)rows ? 7 : 0;
}
int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t bytes) {
    if (attribute == 5) layout->batch = *(const int *)value;
    else if (attribute == 6) layout->stride = *(const int64_t *)value;
    else return 7;
    return 0;
}
int cublasLtMatrixLayoutDestroy(Layout *layout) { free(layout); return 0; }
/* What operands and results are said to be multiples of, in bytes: an algorithm is chosen for that and refuses others. */
int cublasLtMatmulPreferenceCreate(void **preference) { *preference = calloc(4, sizeof(uint32_t)); return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
    if (attribute == 1) return 0;
    if (attribute < 5 || attribute > 8 || bytes != sizeof(uint32_t)) return 7;
    ((uint32_t *)preference)[attribute - 5] = *(const uint32_t *)value;
    return 0;
}
int cublasLtMatmulPreferenceDestroy(void *preference) { free(preference); return 0; }
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } Found;
int cublasLtMatmulAlgoGetHeuristic(void *handle, Desc *desc, Layout *a, Layout *b, Layout *c, Layout *d, void *preference, int wanted, Found *found, int *count) {
    *count = a->type < 2; /* floats and doubles */
    found->workspace = 1024;
    for (int k = 0; k < 4; k++) found->algorithm[k] = ((const uint32_t *)preference)[k];
    return 0;
}
int cublasLtMatmul(void *handle, Desc *desc, const void *alpha, const void *a, Layout *la, const void *b, Layout *lb, const void *beta, const void *c, Layout *lc, void *d, Layout *ld, const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
    Task task = {.kind = PRODUCT, .product = {*desc, *la, *lb, *lc, {(uint64_t)a, (uint64_t)b, (uint64_t)d}}};
    const void *operands[] = {a, b, c, d};
    counts.calls++, counts.products++;
    for (int k = 0; k < 4; k++)
        if (algorithm[k] == 0 || (uint64_t)operands[k] % algorithm[k]) return 7;
    if ((uint64_t)workspace % 256) return 7;
    if (checking && !streams[of(stream)].capturing && access_memory(of(stream), (uint64_t)workspace, bytes, 1, "a product's workspace")) return 14;
    return enqueue(stream, &task) ? 13 : 0;
}

/* ---- libraries' routines, whose results a function of the tests computes */

static void *of_solver, *of_blas, *of_fft[4096];
static int64_t plans[4096][8];
static int plan_count;
static const int width[] = {4, 8, 8, 16}, real_width[] = {4, 8, 4, 8};

static int enqueue_routine(void *stream, Routine made) {
    Task task = {.kind = ROUTINE, .routine = malloc(sizeof made)};
    *task.routine = made;
    counts.calls++, counts.routines++;
    return enqueue(stream, &task) ? 13 : 0;
}
/* cuSOLVER's, which may wait for the device: that ends a capture. */
static int enqueue_solver(Routine made) {
    static int kept; /* an error of the library's runtime, which the next call takes for its own */
    Stream *stream = &streams[of(of_solver)];
    if (stream->capturing && !solver_captures) { kept = stream->invalid = 1; return 7; }
    if (kept) { kept = 0; return 6; }
    return enqueue_routine(of_solver, made);
}
#define AT(x) (uint64_t)(uintptr_t)(x)
int cusolverDnCreate(void **handle) { static int one; *handle = &one; return 0; }
int cusolverDnSetStream(void *handle, void *stream) { of_solver = stream; return 0; }
int cublasCreate_v2(void **handle) { static int one; *handle = &one; return 0; }
int cublasSetStream_v2(void *handle, void *stream) { of_blas = stream; return 0; }
int cublasSetWorkspace_v2(void *handle, void *work, size_t bytes) { return bytes && checking && !memory_at(AT(work)) ? 7 : 0; }
static int potrf(int type, int triangle, int n, void *a, int lda, void *work, int length, int *info) {
    return enqueue_solver((Routine){"potrf", {type, 1, triangle, n}, {AT(a), AT(info), AT(work)}, {(uint64_t)n * n * width[type], 4, length * width[type]}});
}
static int getrf(int type, int m, int n, void *a, int lda, void *work, int *pivots, int *info) {
    int rank = m < n ? m : n;
    return enqueue_solver((Routine){"getrf", {type, 1, m, n}, {AT(a), AT(pivots), AT(info), AT(work)}, {(uint64_t)n * m * width[type], 4 * rank, 4, n * width[type]}});
}
static int geqrf(int type, int m, int n, void *a, int lda, void *taus, void *work, int length, int *info) {
    int rank = m < n ? m : n;
    return enqueue_solver((Routine){"geqrf", {type, 1, m, n}, {AT(a), AT(taus), AT(info), AT(work)}, {(uint64_t)n * m * width[type], rank * width[type], 4, length * width[type]}});
}
static int orgqr(int type, int m, int n, int k, void *a, int lda, void *taus, void *work, int length, int *info) {
    return enqueue_solver((Routine){"orgqr", {type, 1, m, n, k}, {AT(taus), AT(a), AT(info), AT(work)}, {k * width[type], (uint64_t)n * m * width[type], 4, length * width[type]}, 1});
}
static int syevd(int type, int vectors, int triangle, int n, void *a, int lda, void *values, void *work, int length, int *info) {
    return enqueue_solver((Routine){"syevd", {type, 1, triangle, n}, {AT(a), AT(values), AT(info), AT(work)}, {(uint64_t)n * n * width[type], n * real_width[type], 4, length * width[type]}});
}
static int gesvd(int type, int job, int m, int n, void *a, void *values, void *u, void *v, void *work, int length, int *info) {
    uint64_t columns = job == 'A' ? m : n;
    if (m < n) return 3;
    return enqueue_solver((Routine){"gesvd", {type, 1, job, m, n}, {AT(a), AT(values), AT(u), AT(v), AT(info), AT(work)},
        {(uint64_t)n * m * width[type], n * real_width[type], u ? columns * m * width[type] : 0, v ? (uint64_t)n * n * width[type] : 0, 4, length * width[type]}});
}
#define SOLVER(T, type, OR, SY) \
    int cusolverDn##T##potrf_bufferSize(void *h, int t, int n, void *a, int l, int *length) { *length = n; return l < n ? 3 : 0; } \
    int cusolverDn##T##potrf(void *h, int t, int n, void *a, int l, void *w, int c, int *i) { return potrf(type, t, n, a, l, w, c, i); } \
    int cusolverDn##T##getrf_bufferSize(void *h, int m, int n, void *a, int l, int *length) { *length = n; return l < m ? 3 : 0; } \
    int cusolverDn##T##getrf(void *h, int m, int n, void *a, int l, void *w, int *p, int *i) { return getrf(type, m, n, a, l, w, p, i); } \
    int cusolverDn##T##geqrf_bufferSize(void *h, int m, int n, void *a, int l, int *length) { *length = n; return l < m ? 3 : 0; } \
    int cusolverDn##T##geqrf(void *h, int m, int n, void *a, int l, void *t, void *w, int c, int *i) { return geqrf(type, m, n, a, l, t, w, c, i); } \
    int cusolverDn##T##OR##gqr_bufferSize(void *h, int m, int n, int k, void *a, int l, void *t, int *length) { *length = n; return n > m || k > n ? 3 : 0; } \
    int cusolverDn##T##OR##gqr(void *h, int m, int n, int k, void *a, int l, void *t, void *w, int c, int *i) { return orgqr(type, m, n, k, a, l, t, w, c, i); } \
    int cusolverDn##T##SY##evd_bufferSize(void *h, int v, int t, int n, void *a, int l, void *s, int *length) { *length = 2 * n; return 0; } \
    int cusolverDn##T##SY##evd(void *h, int v, int t, int n, void *a, int l, void *s, void *w, int c, int *i) { return syevd(type, v, t, n, a, l, s, w, c, i); } \
    int cusolverDn##T##gesvd_bufferSize(void *h, int m, int n, int *length) { *length = 3 * n; return m < n ? 3 : 0; } \
    int cusolverDn##T##gesvd(void *h, signed char u, signed char v, int m, int n, void *a, int l, void *s, void *left, int ll, void *right, int lr, void *w, int c, void *r, int *i) { return gesvd(type, u, m, n, a, s, left, right, w, c, i); } \
    int cusolverDn##T##potrfBatched(void *h, int t, int n, void *table, int l, int *info, int batch) { \
        return enqueue_solver((Routine){"potrf_batched", {type, batch, t, n}, {AT(table), AT(info)}, {8 * batch, 4 * batch}, 1}); } \
    int cublas##T##getrfBatched(void *h, int n, void *table, int l, int *pivots, int *info, int batch) { \
        return enqueue_routine(of_blas, (Routine){"getrf_batched", {type, batch, n, n}, {AT(table), AT(pivots), AT(info)}, {8 * batch, 4 * n * batch, 4 * batch}, 1}); } \
    int cublas##T##trsm_v2(void *h, int side, int t, int op, int diag, int m, int n, const void *one, void *a, int la, void *b, int lb) { \
        uint64_t order = side ? n : m; \
        return enqueue_routine(of_blas, (Routine){"trsm", {type, 1, side, t, op, diag, m, n}, {AT(a), AT(b)}, {order * order * width[type], (uint64_t)m * n * width[type]}, 1}); } \
    int cublas##T##trsmBatched(void *h, int side, int t, int op, int diag, int m, int n, const void *one, void *a, int la, void *b, int lb, int batch) { \
        return enqueue_routine(of_blas, (Routine){"trsm_batched", {type, batch, side, t, op, diag, m, n}, {AT(a), AT(b)}, {8 * batch, 8 * batch}, 2}); }
SOLVER(S, 0, or, sy)
SOLVER(D, 1, or, sy)
SOLVER(C, 2, un, he)
SOLVER(Z, 3, un, he)

int cufftCreate(int *plan) { if (plan_count == 4096) return 5; *plan = plan_count++; return 0; }
int cufftDestroy(int plan) { return 0; }
int cufftSetAutoAllocation(int plan, int allocate) { return 0; }
int cufftMakePlanMany64(int plan, int rank, long long *n, long long *in, long long is, long long id, long long *out, long long os, long long od, int type, long long batch, size_t *work) {
    int64_t made[8] = {type, batch, rank, rank > 0 ? n[0] : 1, rank > 1 ? n[1] : 1, rank > 2 ? n[2] : 1, id, od};
    memcpy(plans[plan], made, sizeof made);
    *work = 256;
    return is != 1 || os != 1;
}
int cufftSetStream(int plan, void *stream) { of_fft[plan] = stream; return 0; }
int cufftSetWorkArea(int plan, void *work) { return checking && !memory_at(AT(work)) ? 3 : 0; }
static int transform(int plan, void *from, void *to, int direction) {
    const int64_t *p = plans[plan];
    uint64_t wide = p[0] >= 0x69 ? 2 : 1, in = p[0] == 0x2a || p[0] == 0x6a ? 4 : 8, out = p[0] == 0x2c || p[0] == 0x6c ? 4 : 8;
    Routine made = {"fft", {p[0], p[1], p[2], p[3], p[4], p[5], direction}, {AT(from), AT(to)}, {p[1] * p[6] * in * wide, p[1] * p[7] * out * wide}, out != 4};
    return enqueue_routine(of_fft[plan], made);
}
int cufftExecC2C(int plan, void *from, void *to, int direction) { return transform(plan, from, to, direction); }
int cufftExecZ2Z(int plan, void *from, void *to, int direction) { return transform(plan, from, to, direction); }
int cufftExecR2C(int plan, void *from, void *to) { return transform(plan, from, to, -1); }
int cufftExecD2Z(int plan, void *from, void *to) { return transform(plan, from, to, -1); }
int cufftExecC2R(int plan, void *from, void *to) { return transform(plan, from, to, 1); }
int cufftExecZ2D(int plan, void *from, void *to) { return transform(plan, from, to, 1); }
