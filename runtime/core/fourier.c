/* Fourier transforms by cuFFT, which is opened at run time: a plan for each transform of a program. Nothing is scaled. */
#include "library_call.h"
#include <pthread.h>

enum { C2C_32 = 0x29, R2C_32 = 0x2a, C2R_32 = 0x2c, C2C_64 = 0x69, R2C_64 = 0x6a, C2R_64 = 0x6c, FORWARD = -1, BACKWARD = 1, MOST_RANK = 3 };

static struct {
    void *library;
    int (*create)(int *);
    int (*destroy)(int);
    int (*allocate)(int, int);
    int (*plan)(int, int, long long *, long long *, long long, long long, long long *, long long, long long, int, long long, size_t *);
    int (*stream)(int, Handle);
    int (*work)(int, void *);
    int (*c2c)(int, void *, void *, int), (*z2z)(int, void *, void *, int);
    int (*r2c)(int, void *, void *), (*d2z)(int, void *, void *), (*c2r)(int, void *, void *), (*z2d)(int, void *, void *);
} fft;

static const Symbol symbols[] = {
    {"cufftCreate", (void **)&fft.create},         {"cufftDestroy", (void **)&fft.destroy},
    {"cufftSetAutoAllocation", (void **)&fft.allocate}, {"cufftMakePlanMany64", (void **)&fft.plan},
    {"cufftSetStream", (void **)&fft.stream},      {"cufftSetWorkArea", (void **)&fft.work},
    {"cufftExecC2C", (void **)&fft.c2c},           {"cufftExecZ2Z", (void **)&fft.z2z},
    {"cufftExecR2C", (void **)&fft.r2c},           {"cufftExecD2Z", (void **)&fft.d2z},
    {"cufftExecC2R", (void **)&fft.c2r},           {"cufftExecZ2D", (void **)&fft.z2d},
};

typedef struct {
    LibraryCall call;
    const Device *device; /* whose the plan is */
    int plan, type, direction;
} Transform;

static Status enqueued(const LibraryCall *call, const Address *at, Handle stream) {
    const Transform *self = (const Transform *)call;
    void *from = (void *)(uintptr_t)at[0], *to = (void *)(uintptr_t)at[1];
    int result = fft.stream(self->plan, stream);
    if (!result && call->workspace)
        result = fft.work(self->plan, (void *)(uintptr_t)at[2]);
    if (result)
        return OF_FFT + result;
    switch (self->type) {
    case C2C_32: result = fft.c2c(self->plan, from, to, self->direction); break;
    case C2C_64: result = fft.z2z(self->plan, from, to, self->direction); break;
    case R2C_32: result = fft.r2c(self->plan, from, to); break;
    case R2C_64: result = fft.d2z(self->plan, from, to); break;
    case C2R_32: result = fft.c2r(self->plan, from, to); break;
    default: result = fft.z2d(self->plan, from, to); break;
    }
    return result ? OF_FFT + result : 0;
}

static Status transform(LibraryCall *call, const Address *at, Handle stream) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* a plan has one stream, and one workspace */
    pthread_mutex_lock(&one_at_a_time);
    Status result = enqueued(call, at, stream);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

static void destroy(LibraryCall *call) {
    CONTEXT_GUARD(guard);
    const Transform *self = (Transform *)call;
    if (enter_context(&guard, self->device) < 0)
        PyErr_WriteUnraisable(NULL);
    else
        fft.destroy(self->plan);
}

static long long product_of_all(const long long *numbers, int count) {
    long long product = 1;
    for (int k = 0; k < count; k++)
        product *= numbers[k];
    return product;
}

/* fft_call(kind, wide, lengths, batch): transforms of the last dimensions of a dense array, of the first array into the second; kinds
   are 0 complex, 1 its inverse, 2 of real numbers, 3 its inverse, which destroys its operand. RuntimeError where cuFFT has none. */
static PyObject *fft_call(PyObject *module, PyObject *args) {
    CONTEXT_GUARD(guard);
    static const int types[][4] = {{C2C_32, C2C_32, R2C_32, C2R_32}, {C2C_64, C2C_64, R2C_64, C2R_64}};
    int kind, wide;
    long long batch, lengths[MOST_RANK], inside[MOST_RANK], outside[MOST_RANK];
    PyObject *tuple;
    if (!PyArg_ParseTuple(args, "ipO!L", &kind, &wide, &PyTuple_Type, &tuple, &batch))
        return NULL;
    int rank = (int)PyTuple_GET_SIZE(tuple);
    if (fft.library == NULL || kind < 0 || kind > 3 || rank < 1 || rank > MOST_RANK)
        return PyErr_Format(PyExc_RuntimeError, "cuFFT is not open, or has no transform of kind %d along %d dimensions", kind, rank);
    for (int k = 0; k < rank; k++)
        inside[k] = outside[k] = lengths[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, k));
    if (PyErr_Occurred() || enter_device(&guard) < 0)
        return NULL;
    if (kind == 2)
        outside[rank - 1] = lengths[rank - 1] / 2 + 1;
    if (kind == 3)
        inside[rank - 1] = lengths[rank - 1] / 2 + 1;
    Transform *self = PyMem_Calloc(1, sizeof *self);
    if (self == NULL)
        return PyErr_NoMemory();
    self->call = (LibraryCall){.run = transform, .destroy = destroy, .arrays = 2};
    self->type = types[wide][kind];
    self->device = here();
    self->direction = kind == 0 ? FORWARD : BACKWARD;
    int result = fft.create(&self->plan);
    if (result) {
        PyMem_Free(self);
        return PyErr_Format(PyExc_RuntimeError, "cuFFT has no plan left (status %d)", result);
    }
    PyObject *capsule = new_library_call(&self->call);
    result = capsule == NULL ? 0 : fft.allocate(self->plan, 0);
    if (capsule != NULL && !result)
        result = fft.plan(self->plan, rank, lengths, inside, 1, product_of_all(inside, rank), outside, 1, product_of_all(outside, rank),
                          self->type, batch, &self->call.workspace);
    if (capsule != NULL && result) {
        Py_DECREF(capsule);
        return PyErr_Format(PyExc_RuntimeError, "cuFFT has no transform of %lld elements (status %d)", product_of_all(lengths, rank), result);
    }
    return capsule;
}

/* fft_open(path): open cuFFT; OSError where it is not there. */
static PyObject *fft_open(PyObject *module, PyObject *path) {
    const char *name = PyUnicode_AsUTF8(path);
    void *library = name == NULL ? NULL : open_library(name, symbols, sizeof symbols / sizeof *symbols);
    if (library == NULL)
        return NULL;
    fft.library = library;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"fft_open", fft_open, METH_O, "fft_open(path): open cuFFT."},
    {"fft_call", fft_call, METH_VARARGS, "fft_call(kind, wide, lengths, batch): a transform, as a library call."},
    {NULL},
};

int add_fourier(PyObject *module) { return PyModule_AddFunctions(module, functions); }
