/* Factorisations by cuSOLVER and cuBLAS, and triangular systems by cuBLAS: matrices in columns, in place, a stack of them one after
   another or, where a routine takes many small ones at once, by a table of their addresses that the device writes. */
#include "library_call.h"
#include <dlfcn.h>
#include <pthread.h>

enum { TYPES = 4, BLAS_WORKSPACE = 8 << 20, LOWER = 0, UPPER = 1, VECTORS = 1 };
enum { POTRF, GETRF, GEQRF, ORGQR, SYEVD, GESVD, TRSM, POTRF_BATCHED, GETRF_BATCHED, TRSM_BATCHED, ROUTINES };

typedef void *At;

/* Of each type, in the order float, double, complex float, complex double. */
static struct {
    void *solver, *blas;
    int (*solver_create)(Handle *), (*solver_stream)(Handle, Handle);
    int (*blas_create)(Handle *), (*blas_stream)(Handle, Handle), (*blas_work)(Handle, At, size_t);
    int (*potrf_size[TYPES])(Handle, int, int, At, int, int *);
    int (*potrf[TYPES])(Handle, int, int, At, int, At, int, At);
    int (*getrf_size[TYPES])(Handle, int, int, At, int, int *);
    int (*getrf[TYPES])(Handle, int, int, At, int, At, At, At);
    int (*geqrf_size[TYPES])(Handle, int, int, At, int, int *);
    int (*geqrf[TYPES])(Handle, int, int, At, int, At, At, int, At);
    int (*orgqr_size[TYPES])(Handle, int, int, int, At, int, At, int *);
    int (*orgqr[TYPES])(Handle, int, int, int, At, int, At, At, int, At);
    int (*syevd_size[TYPES])(Handle, int, int, int, At, int, At, int *);
    int (*syevd[TYPES])(Handle, int, int, int, At, int, At, At, int, At);
    int (*gesvd_size[TYPES])(Handle, int, int, int *);
    int (*gesvd[TYPES])(Handle, signed char, signed char, int, int, At, int, At, At, int, At, int, At, int, At, At);
    int (*potrf_batched[TYPES])(Handle, int, int, At, int, At, int);
    int (*trsm[TYPES])(Handle, int, int, int, int, int, int, const void *, At, int, At, int);
    int (*trsm_batched[TYPES])(Handle, int, int, int, int, int, int, const void *, At, int, At, int, int);
    int (*getrf_batched[TYPES])(Handle, int, At, int, At, At, int);
} lib;

typedef struct {
    LibraryCall call;
    int routine, type, batch, m, n, k, flags[4]; /* m rows, n columns; flags are a routine's own */
    int length;                                   /* of the workspace, in elements */
} Solver;

static const int element_bytes[TYPES] = {4, 8, 8, 16}, real_bytes[TYPES] = {4, 8, 4, 8};
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* a handle has one stream */

static At at_bytes(Address address, int64_t bytes) { return (At)(uintptr_t)(address + (uint64_t)bytes); }

static int least(int a, int b) { return a < b ? a : b; }

/* One matrix of a stack, by cuSOLVER. The last array is an int of the routine's for each matrix; the workspace comes after it. */
static int factor(const Solver *s, const Address *at, int b) {
    Handle handle = here()->solver;
    int type = s->type, m = s->m, n = s->n, rank = least(m, n);
    int64_t width = element_bytes[type], size = (int64_t)m * n * width;
    At a = at_bytes(at[0], b * size), info = at_bytes(at[s->call.arrays - 1], 4 * b), work = at_bytes(at[s->call.arrays], 0);
    switch (s->routine) {
    case POTRF: return lib.potrf[type](handle, s->flags[0], n, a, n, work, s->length, info);
    case GETRF: return lib.getrf[type](handle, m, n, a, m, work, at_bytes(at[1], 4 * b * (int64_t)rank), info);
    case GEQRF: return lib.geqrf[type](handle, m, n, a, m, at_bytes(at[1], b * rank * width), work, s->length, info);
    case ORGQR: return lib.orgqr[type](handle, m, n, s->k, a, m, at_bytes(at[1], b * s->k * width), work, s->length, info);
    case SYEVD: return lib.syevd[type](handle, VECTORS, s->flags[0], n, a, n, at_bytes(at[1], b * (int64_t)n * real_bytes[type]), work, s->length, info);
    default: {
        bool vectors = s->flags[0] != 'N';
        int64_t columns = s->flags[0] == 'A' ? m : n;
        At values = at_bytes(at[1], b * (int64_t)n * real_bytes[type]);
        At left = vectors ? at_bytes(at[2], b * columns * m * width) : NULL, right = vectors ? at_bytes(at[3], b * (int64_t)n * n * width) : NULL;
        return lib.gesvd[type](handle, (signed char)s->flags[0], (signed char)s->flags[0], m, n, a, m, values, left, m, right, n, work, s->length, NULL, info);
    }
    }
}

/* Triangular systems: m × n right sides, whose matrices stand on the side flags[0]; flags[1 … 3]: triangle, transposition, diagonal. */
static int solve(const Solver *s, const Address *at, int b) {
    static const double wide[2] = {1, 0};
    static const float narrow[2] = {1, 0};
    int order = s->flags[0] ? s->n : s->m;
    int64_t width = element_bytes[s->type];
    return lib.trsm[s->type](here()->triangular, s->flags[0], s->flags[1], s->flags[2], s->flags[3], s->m, s->n,
                             s->type % 2 ? (const void *)wide : narrow, at_bytes(at[0], b * order * order * width), order,
                             at_bytes(at[1], b * (int64_t)s->m * s->n * width), s->m);
}

/* A stack of small matrices at once: the tables of their addresses lie after cuBLAS's workspace. */
static Status batched(const Solver *s, const Address *at, Handle stream) {
    static const double wide[2] = {1, 0};
    static const float narrow[2] = {1, 0};
    Address table = at[s->call.arrays] + BLAS_WORKSPACE, second = table + 8 * (uint64_t)s->batch;
    int64_t width = element_bytes[s->type];
    int order = s->routine == TRSM_BATCHED && !s->flags[0] ? s->m : s->n, result;
    Status status = set_addresses(table, at[0], order * (int64_t)order * width, s->batch, stream);
    if (!status && s->routine == TRSM_BATCHED)
        status = set_addresses(second, at[1], s->m * (int64_t)s->n * width, s->batch, stream);
    if (status)
        return status;
    switch (s->routine) {
    case POTRF_BATCHED: result = lib.potrf_batched[s->type](here()->solver, s->flags[0], s->n, at_bytes(table, 0), s->n, at_bytes(at[1], 0), s->batch); break;
    case GETRF_BATCHED: result = lib.getrf_batched[s->type](here()->triangular, s->n, at_bytes(table, 0), s->n, at_bytes(at[1], 0), at_bytes(at[2], 0), s->batch); break;
    default:
        result = lib.trsm_batched[s->type](here()->triangular, s->flags[0], s->flags[1], s->flags[2], s->flags[3], s->m, s->n,
                                           s->type % 2 ? (const void *)wide : narrow, at_bytes(table, 0), order, at_bytes(second, 0), s->m, s->batch);
    }
    return result ? OF_SOLVER + result : 0;
}

static bool by_blas(int routine) { return routine == TRSM || routine >= GETRF_BATCHED; }

static Status run(LibraryCall *call, const Address *at, Handle stream) {
    const Solver *s = (Solver *)call;
    pthread_mutex_lock(&one_at_a_time);
    int result = by_blas(s->routine) ? lib.blas_stream(here()->triangular, stream) : lib.solver_stream(here()->solver, stream);
    if (!result && by_blas(s->routine)) /* its own would be memory that a captured graph allocates */
        result = lib.blas_work(here()->triangular, at_bytes(at[call->arrays], 0), BLAS_WORKSPACE);
    Status status = result ? OF_SOLVER + result : 0;
    if (!status && s->routine >= POTRF_BATCHED)
        status = batched(s, at, stream);
    else
        for (int b = 0; !status && b < s->batch; b++) {
            result = s->routine == TRSM ? solve(s, at, b) : factor(s, at, b);
            status = result ? OF_SOLVER + result : 0;
        }
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

static void destroy(LibraryCall *call) {}

/* The elements of a routine's workspace. */
static int measure(Solver *s) {
    Handle handle = here()->solver;
    int type = s->type, m = s->m, n = s->n, *length = &s->length;
    switch (s->routine) {
    case POTRF: return lib.potrf_size[type](handle, s->flags[0], n, NULL, n, length);
    case GETRF: return lib.getrf_size[type](handle, m, n, NULL, m, length);
    case GEQRF: return lib.geqrf_size[type](handle, m, n, NULL, m, length);
    case ORGQR: return lib.orgqr_size[type](handle, m, n, s->k, NULL, m, NULL, length);
    case SYEVD: return lib.syevd_size[type](handle, VECTORS, s->flags[0], n, NULL, n, NULL, length);
    case GESVD: return lib.gesvd_size[type](handle, m, n, length);
    default: return 0;
    }
}

static const struct { const char *name; int arrays; } routines[ROUTINES] = {
    {"potrf", 2}, {"getrf", 3}, {"geqrf", 3}, {"orgqr", 3}, {"syevd", 3}, {"gesvd", 5}, {"trsm", 2},
    {"potrf_batched", 2}, {"getrf_batched", 3}, {"trsm_batched", 2},
};

/* The library's handle of the thread's device, made where there is none; -1 with an exception set. */
static int need_handle(bool of_blas) {
    Handle *handle = of_blas ? &here()->triangular : &here()->solver;
    int result = *handle != NULL ? 0 : of_blas ? lib.blas_create(handle) : lib.solver_create(handle);
    if (result)
        PyErr_Format(PyExc_RuntimeError, "%s does not start (status %d)", of_blas ? "cuBLAS" : "cuSOLVER", result);
    return result ? -1 : 0;
}

/* solver_call(routine, type, batch, m, n, k, flags): a stack of `batch` matrices of m rows and n columns; `type` is 0 … 3 for float,
   double and the complex ones of their parts. Its arrays, in order: what is factored (potrf, getrf, geqrf, orgqr, syevd, gesvd) or
   triangular (trsm), and what else the routine reads or writes. RuntimeError where the library has none. */
static PyObject *solver_call(PyObject *module, PyObject *args) {
    CONTEXT_GUARD(guard);
    const char *name;
    Solver found = {.call = {.run = run, .destroy = destroy}};
    int *flags = found.flags;
    if (!PyArg_ParseTuple(args, "siiiii(iiii)", &name, &found.type, &found.batch, &found.m, &found.n, &found.k, &flags[0], &flags[1], &flags[2], &flags[3]))
        return NULL;
    while (found.routine < ROUTINES && strcmp(routines[found.routine].name, name))
        found.routine++;
    if (found.routine == ROUTINES || found.type < 0 || found.type >= TYPES)
        return PyErr_Format(PyExc_ValueError, "no routine %s of type %d", name, found.type);
    if ((by_blas(found.routine) ? lib.blas : lib.solver) == NULL)
        return PyErr_Format(PyExc_RuntimeError, "the library of %s is not open", name);
    if (enter_device(&guard) < 0 || need_handle(by_blas(found.routine)) < 0)
        return NULL;
    int result = measure(&found);
    if (result)
        return PyErr_Format(PyExc_RuntimeError, "cuSOLVER has no %s of %d x %d (status %d)", name, found.m, found.n, result);
    bool many = found.routine >= POTRF_BATCHED;
    if (many && load_addresses() < 0)
        return NULL;
    found.call.arrays = routines[found.routine].arrays;
    found.call.workspace = (size_t)found.length * element_bytes[found.type];
    if (many || found.routine == TRSM)
        found.call.workspace = BLAS_WORKSPACE + (many ? 16 * (size_t)found.batch : 0);
    Solver *self = PyMem_Malloc(sizeof *self);
    if (self == NULL)
        return PyErr_NoMemory();
    *self = found;
    return new_library_call(&self->call);
}

/* The function of each type under its name: a letter and, where complex numbers have one of their own, another word. */
static int find(void *library, const char *path, void *places, const char *prefix, const char *real, const char *other) {
    static const char letters[] = "SDCZ";
    char name[64];
    for (int type = 0; type < TYPES; type++) {
        snprintf(name, sizeof name, "%s%c%s", prefix, letters[type], type < 2 ? real : other);
        if ((((void **)places)[type] = dlsym(library, name)) == NULL)
            return PyErr_Format(PyExc_OSError, "%s has no %s", path, name), -1;
    }
    return 0;
}

static int find_of_solver(void *library, const char *path) {
    static const struct { void *size, *routine; const char *real, *other; } found[] = {
        {lib.potrf_size, lib.potrf, "potrf", "potrf"}, {lib.getrf_size, lib.getrf, "getrf", "getrf"},
        {lib.geqrf_size, lib.geqrf, "geqrf", "geqrf"}, {lib.orgqr_size, lib.orgqr, "orgqr", "ungqr"},
        {lib.syevd_size, lib.syevd, "syevd", "heevd"}, {lib.gesvd_size, lib.gesvd, "gesvd", "gesvd"},
    };
    for (size_t k = 0; k < sizeof found / sizeof *found; k++) {
        char real[32], other[32];
        snprintf(real, sizeof real, "%s_bufferSize", found[k].real);
        snprintf(other, sizeof other, "%s_bufferSize", found[k].other);
        if (find(library, path, found[k].size, "cusolverDn", real, other) < 0 ||
            find(library, path, found[k].routine, "cusolverDn", found[k].real, found[k].other) < 0)
            return -1;
    }
    return find(library, path, lib.potrf_batched, "cusolverDn", "potrfBatched", "potrfBatched");
}

/* solver_open(path): open cuSOLVER; OSError where it is not there. */
static PyObject *solver_open(PyObject *module, PyObject *path) {
    static const Symbol symbols[] = {{"cusolverDnCreate", (void **)&lib.solver_create}, {"cusolverDnSetStream", (void **)&lib.solver_stream}};
    const char *name = PyUnicode_AsUTF8(path);
    void *library = name == NULL ? NULL : open_library(name, symbols, 2);
    if (library == NULL || find_of_solver(library, name) < 0)
        return NULL;
    lib.solver = library;
    Py_RETURN_NONE;
}

/* triangular_open(path): open cuBLAS; OSError where it is not there. */
static PyObject *triangular_open(PyObject *module, PyObject *path) {
    static const Symbol symbols[] = {{"cublasCreate_v2", (void **)&lib.blas_create},
                                     {"cublasSetStream_v2", (void **)&lib.blas_stream},
                                     {"cublasSetWorkspace_v2", (void **)&lib.blas_work}};
    const char *name = PyUnicode_AsUTF8(path);
    void *library = name == NULL ? NULL : open_library(name, symbols, 3);
    if (library == NULL || find(library, name, lib.trsm, "cublas", "trsm_v2", "trsm_v2") < 0 ||
        find(library, name, lib.trsm_batched, "cublas", "trsmBatched", "trsmBatched") < 0 ||
        find(library, name, lib.getrf_batched, "cublas", "getrfBatched", "getrfBatched") < 0)
        return NULL;
    lib.blas = library;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"solver_open", solver_open, METH_O, "solver_open(path): open cuSOLVER."},
    {"triangular_open", triangular_open, METH_O, "triangular_open(path): open cuBLAS."},
    {"solver_call", solver_call, METH_VARARGS, "solver_call(routine, type, batch, m, n, k, flags): a library call."},
    {NULL},
};

int add_solver(PyObject *module) { return PyModule_AddFunctions(module, functions); }
