/* Products by cuBLASLt, which is opened at run time: planned once, then enqueued from C like any other operation.

   cuBLASLt's matrices are column-major. A row-major product C = A B is the column-major Cᵀ = Bᵀ Aᵀ, so that the second
   operand comes first. The heuristics' first algorithm is taken; no TF32: float32 means float32. */
#include "device_program.h"
#include <dlfcn.h>

enum { WORKSPACE_BYTES = 32 << 20 };
enum { TRANSA = 3, TRANSB = 4, BATCH_COUNT = 5, BATCH_STRIDE = 6, MOST_WORKSPACE = 1, LEAST_ALIGNMENT = 5 };

typedef struct { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Found;

static struct {
    void *library;
    int (*create)(Handle *);
    int (*desc_create)(Handle *, int, int);
    int (*desc_set)(Handle, int, const void *, size_t);
    int (*desc_destroy)(Handle);
    int (*layout_create)(Handle *, int, uint64_t, uint64_t, int64_t);
    int (*layout_set)(Handle, int, const void *, size_t);
    int (*layout_destroy)(Handle);
    int (*preference_create)(Handle *);
    int (*preference_set)(Handle, int, const void *, size_t);
    int (*preference_destroy)(Handle);
    int (*choose)(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, Found *, int *);
    int (*multiply)(Handle, Handle, const void *, const void *, Handle, const void *, Handle, const void *, const void *, Handle,
                    void *, Handle, const uint64_t *, void *, size_t, Handle);
} blas;

static const struct { const char *name; void **place; } symbols[] = {
    {"cublasLtCreate", (void **)&blas.create},
    {"cublasLtMatmulDescCreate", (void **)&blas.desc_create},
    {"cublasLtMatmulDescSetAttribute", (void **)&blas.desc_set},
    {"cublasLtMatmulDescDestroy", (void **)&blas.desc_destroy},
    {"cublasLtMatrixLayoutCreate", (void **)&blas.layout_create},
    {"cublasLtMatrixLayoutSetAttribute", (void **)&blas.layout_set},
    {"cublasLtMatrixLayoutDestroy", (void **)&blas.layout_destroy},
    {"cublasLtMatmulPreferenceCreate", (void **)&blas.preference_create},
    {"cublasLtMatmulPreferenceSetAttribute", (void **)&blas.preference_set},
    {"cublasLtMatmulPreferenceDestroy", (void **)&blas.preference_destroy},
    {"cublasLtMatmulAlgoGetHeuristic", (void **)&blas.choose},
    {"cublasLtMatmul", (void **)&blas.multiply},
};

struct Product {
    Handle desc, a, b, c;
    Found found;
    double one[2];
};

static const char kind[] = "fuser.product";

Product *product_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, kind); }

Status multiply(Product *product, Address a, Address b, Address out, Address workspace, Handle stream) {
    static const double zero[2];
    int result = blas.multiply(here()->blas, product->desc, product->one, (void *)(uintptr_t)b, product->b, (void *)(uintptr_t)a,
                               product->a, zero, (void *)(uintptr_t)out, product->c, (void *)(uintptr_t)out, product->c,
                               product->found.algorithm, (void *)(uintptr_t)workspace, product->found.workspace, stream);
    return result ? OF_BLAS + result : 0;
}

/* The handle of the thread's device, made where there is none; -1 with an exception set. */
static int need_handle(void) {
    CONTEXT_GUARD(guard);
    if (here()->blas != NULL)
        return 0;
    if (enter_device(&guard) < 0)
        return -1;
    int result = blas.create(&here()->blas);
    return result ? (PyErr_Format(PyExc_OSError, "cuBLASLt does not start (status %d)", result), -1) : 0;
}

static void free_product(PyObject *capsule) {
    Product *product = product_of(capsule);
    if (product->desc) blas.desc_destroy(product->desc);
    if (product->a) blas.layout_destroy(product->a);
    if (product->b) blas.layout_destroy(product->b);
    if (product->c) blas.layout_destroy(product->c);
    PyMem_Free(product);
}

/* The column-major layout of a row-major matrix of so many rows: transposed, or as it is where it is `flipped`. */
static int lay(Handle *layout, int type, uint64_t rows, uint64_t columns, int64_t leading, int flipped, int batch, int64_t stride) {
    int result = blas.layout_create(layout, type, flipped ? rows : columns, flipped ? columns : rows, leading);
    if (!result && batch > 1)
        result = blas.layout_set(*layout, BATCH_COUNT, &batch, sizeof batch);
    return !result && batch > 1 ? blas.layout_set(*layout, BATCH_STRIDE, &stride, sizeof stride) : result;
}

/* blas_product(type, compute, scale, batch, m, n, k, alignment, a, b): type, compute and scale are cuBLAS's numbers; an operand is
   (leading, flipped, stride): rows of `leading` elements, or columns where it is flipped, and so many to the next of the
   batch. All lie at multiples of `alignment` bytes. RuntimeError where cuBLASLt has no algorithm. */
static PyObject *blas_product(PyObject *module, PyObject *args) {
    int type, compute, scale, batch, a_flipped, b_flipped;
    unsigned alignment;
    long long m, n, k, a_leading, b_leading, a_stride, b_stride;
    if (!PyArg_ParseTuple(args, "iiiiLLLI(LpL)(LpL)", &type, &compute, &scale, &batch, &m, &n, &k, &alignment, &a_leading, &a_flipped,
                          &a_stride, &b_leading, &b_flipped, &b_stride))
        return NULL;
    if (blas.library == NULL)
        return PyErr_Format(PyExc_RuntimeError, "cuBLASLt is not open; blas_open comes first");
    if (need_handle() < 0)
        return NULL;
    Product *product = PyMem_Calloc(1, sizeof *product);
    PyObject *capsule = product == NULL ? PyErr_NoMemory() : PyCapsule_New(product, kind, free_product);
    if (capsule == NULL)
        return NULL;
    bool wide = type == 1 || type == 5; /* float64 and complex128 */
    if (wide)
        product->one[0] = 1;
    else
        memcpy(product->one, &(float){1}, sizeof(float));
    Handle preference = NULL;
    size_t most = WORKSPACE_BYTES;
    int count = 0, result = blas.desc_create(&product->desc, compute, scale);
    /* cuBLASLt's first operand is the second here, each column-major as it lies: transposed where it is flipped. */
    if (!result) result = blas.desc_set(product->desc, TRANSA, &b_flipped, sizeof b_flipped);
    if (!result) result = blas.desc_set(product->desc, TRANSB, &a_flipped, sizeof a_flipped);
    if (!result) result = lay(&product->a, type, m, k, a_leading, a_flipped, batch, a_stride);
    if (!result) result = lay(&product->b, type, k, n, b_leading, b_flipped, batch, b_stride);
    if (!result) result = lay(&product->c, type, m, n, n, 0, batch, m * n);
    if (!result) result = blas.preference_create(&preference);
    if (!result) result = blas.preference_set(preference, MOST_WORKSPACE, &most, sizeof most);
    for (int operand = 0; !result && operand < 4; operand++)
        result = blas.preference_set(preference, LEAST_ALIGNMENT + operand, &alignment, sizeof alignment);
    if (!result)
        result = blas.choose(here()->blas, product->desc, product->b, product->a, product->c, product->c, preference, 1,
                             &product->found, &count);
    if (preference) blas.preference_destroy(preference);
    if (!result && count > 0)
        return capsule;
    Py_DECREF(capsule);
    return PyErr_Format(PyExc_RuntimeError, "cuBLASLt has no product of %lld x %lld x %lld (status %d)", m, k, n, result);
}

static PyObject *blas_workspace(PyObject *module, PyObject *capsule) {
    Product *product = product_of(capsule);
    return product == NULL ? NULL : PyLong_FromSize_t(product->found.workspace);
}

/* blas_open(path): open cuBLASLt; OSError where it is not there. */
static PyObject *blas_open(PyObject *module, PyObject *path) {
    CONTEXT_GUARD(guard);
    const char *name = PyUnicode_AsUTF8(path);
    void *library = name == NULL || enter_device(&guard) < 0 ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (PyErr_Occurred())
        return NULL;
    if (library == NULL)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++)
        if ((*symbols[k].place = dlsym(library, symbols[k].name)) == NULL)
            return PyErr_Format(PyExc_OSError, "%s has no %s", name, symbols[k].name);
    blas.library = library;
    return need_handle() < 0 ? (blas.library = NULL, NULL) : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"blas_open", blas_open, METH_O, "blas_open(path): open cuBLASLt."},
    {"blas_product", blas_product, METH_VARARGS, "blas_product(type, compute, scale, batch, m, n, k, alignment, a, b)"},
    {"blas_workspace", blas_workspace, METH_O, "The bytes that a product works in."},
    {NULL},
};

int add_blas(PyObject *module) { return PyModule_AddFunctions(module, functions); }
