/* What the files of the native core share. Each file adds its names to the module by one function. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#define PY_ARRAY_UNIQUE_SYMBOL fuser_numpy_api
#ifndef FUSER_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

int add_memory(PyObject *module);     /* memory.c: the pool of blocks */
int add_array(PyObject *module);      /* array.c: the base of fuser.Array */
int add_state(PyObject *module);      /* state.c: the current trace and the settings that a call depends on */
int add_executable(PyObject *module); /* executable.c and construct.c: steps over slots */
int add_suspended(PyObject *module);  /* suspended.c: calls that stop at collectives */
int add_program(PyObject *module);    /* program.c: from operands to the tree of results */
int add_fast_path(PyObject *module); /* fast_path.c: calls of NumPy functions that need no Python */
int add_dispatch(PyObject *module);   /* dispatch.c: from a call's arguments to a program */
int add_guards(PyObject *module);     /* guards.c: what a NumPy function read from outside */
int add_arithmetic(PyObject *module); /* arithmetic.c: what NumPy has no operation for */
int add_replay(PyObject *module);     /* replay.c: functions over slots, one after the other */
int add_foreign(PyObject *module);    /* ffi.c: functions of other people's libraries */
int add_host(PyObject *module);       /* host.c: Python functions as steps of native loops */
int add_tensor(PyObject *module);     /* tensor.c: PyTorch's tensors as ndarrays */
int add_driver(PyObject *module);         /* driver.c: the CUDA driver's library */
int add_device_array(PyObject *module);   /* device_array.c: arrays in a GPU's memory */
int add_device_program(PyObject *module); /* device_program.c: what a GPU runs, launched from here */
int add_blas(PyObject *module);           /* blas.c: products by cuBLASLt */
int add_library_call(PyObject *module);   /* library_call.c: routines of CUDA's libraries */
int add_fourier(PyObject *module);        /* fourier.c: transforms by cuFFT */
int add_solver(PyObject *module);         /* solver.c: linear algebra by cuSOLVER and cuBLAS */
int add_nccl(PyObject *module);           /* nccl.c: collectives between GPUs by NCCL */

/* Add a static type to the module under the last part of its name. */
int add_type(PyObject *module, PyTypeObject *type);

/* memory.c. A block of at least `size` bytes, 64-byte aligned; NULL with no error set if there is none.
   Neither needs the GIL. */
void *pool_take(size_t size);
void pool_give(void *data);
/* As these, with the GIL: collects garbage if need be, and sets OutOfMemoryError where it returns NULL. `label`
   (borrowed, may be NULL) says in errors whose the block is. */
void *take_memory(size_t size, PyObject *label);
void give_memory(void *data);
/* Whether an array's base is a block of the pool that was made for it. */
bool owns_memory(PyObject *base);
/* A C-contiguous ndarray of undefined contents: small ones from NumPy, others over a block. Steals no reference.
   NULL with OutOfMemoryError set, which names the largest live buffers; `label` (borrowed, may be NULL) is this one's. */
PyObject *new_ndarray(int ndim, const npy_intp *dims, PyArray_Descr *dtype, PyObject *label);
/* Set OutOfMemoryError for a block of `size` bytes that pool_take refused. */
void refuse_memory(size_t size, PyObject *label);
/* Instead of the MemoryError that is set: OutOfMemoryError that names the step it comes from. */
void refuse_step(PyObject *name, PyObject *label);
/* For kernels with long loops: takes the GIL and runs pending signal handlers; nonzero if one raised. */
int poll_signals(void);

/* array.c. `data` is an ndarray, a torch tensor, or what stands in its place after deletion; `dtype` is NULL, or the
   dtype of elements that torch knows only as carriers of their bits. */
typedef struct ArrayObject {
    PyObject_HEAD
    PyObject *data;
    PyObject *dtype;
    PyObject *weak_references;
    struct ArrayObject *previous, *next; /* in the ring of all living arrays */
    char weak_type;
    char deleted;
} ArrayObject;

extern PyTypeObject *array_type; /* fuser.Array, once Python has handed it over */

static inline bool is_array(PyObject *object) { return Py_TYPE(object) == array_type; }
/* A fuser.Array over `data`, which is stolen even where this fails. */
PyObject *new_array(PyObject *data, PyObject *dtype, bool weak_type);
/* The memory of an array (a new reference), or NULL with the error of a deleted one. */
PyObject *present_data(ArrayObject *array);
/* Its memory, given up by the array; `*alone` tells whether nobody else can see it, so that a result may go there. */
PyObject *donated_data(ArrayObject *array, bool *alone);

/* state.c */
bool evaluating(void); /* whether the thread's current trace is evaluation */
bool x64_enabled(void);
int64_t backend_number(void);
