/* Routines of CUDA's libraries as operations of a program: planned once, then enqueued from C. */
#pragma once
#include "device_array.h"

enum { MOST_ARRAYS = 8 };

typedef struct LibraryCall LibraryCall;
struct LibraryCall {
    /* Enqueue on a stream. `at` are the arrays' addresses in the routine's order, and then the workspace's. */
    Status (*run)(LibraryCall *call, const Address *at, Handle stream);
    void (*destroy)(LibraryCall *call);
    int arrays;       /* without the workspace */
    size_t workspace; /* bytes */
    bool uncapturable; /* whether a trial found that the library waits for the device meanwhile, so that no graph can hold it */
};

/* The call in a capsule, which destroys it; `call` begins the library's own structure, zeroed and of PyMem_Calloc. */
PyObject *new_library_call(LibraryCall *call);
LibraryCall *library_call_of(PyObject *capsule);
/* With the device's context: load the kernel of set_addresses, once; -1 with an exception set. */
int load_addresses(void);
/* table[k] = first + k * stride for k below `count`, on the device: the addresses of a stack of matrices. */
Status set_addresses(Address table, Address first, int64_t stride, int count, Handle stream);
/* Open a library, find its functions and give its handle; NULL with OSError. `places` are pairs of a name and where to put it. */
typedef struct { const char *name; void **place; } Symbol;
void *open_library(const char *path, const Symbol *symbols, int count);

int add_library_call(PyObject *module);
int add_fourier(PyObject *module); /* fourier.c: transforms by cuFFT */
int add_solver(PyObject *module);  /* solver.c: factorisations by cuSOLVER, triangular systems by cuBLAS */
