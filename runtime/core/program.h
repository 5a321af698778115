/* Programs: an executable with what lies between it and the user's values. */
#pragma once
#include "executable.h"

/* One leaf of the arguments: an object, owned, or a Python number as the bytes that a kernel reads. */
typedef struct {
    PyObject *object; /* a fuser.Array, an ndarray, or NULL for a number */
    bool foreign;     /* over memory that others may write */
    _Alignas(16) char number[16];
} Operand;

typedef struct {
    bool weak_type;
    bool reshapes;   /* another value's memory in this shape */
    int ndim;
    npy_intp *dims;
    PyObject *dtype; /* of elements that torch knows only as carriers, or NULL */
} Result;

typedef struct {
    PyObject_HEAD
    Executable *executable;
    bool *donated;
    bool *watched;       /* donated operands to be told of, once, if others hold their memory too */
    PyObject *tell;      /* called with the position of such a one */
    Result *results;
    PyObject *shapes;    /* the results' shapes as tuples, for what is no ndarray */
    PyObject *template;  /* the results' tree with numbers for leaves, or NULL where `unflatten` must build it */
    PyObject *unflatten; /* from a list of leaves */
    PyObject *place;     /* takes memory to where kernels can read it */
    bool host;           /* whether ndarrays are there already */
} Program;

extern PyTypeObject program_type;

/* The results' tree for operands in the order of the executable's inputs. References stay with the caller. */
PyObject *run_program(const Program *program, const Operand *const *operands, Py_ssize_t count);
/* A tree like `template`, whose integers are the numbers of its leaves; references stay with the caller. */
PyObject *build_tree(PyObject *template, PyObject **leaves);
/* Whether a template holds what can be built here: tuples, lists, dicts, None and integers. */
bool buildable_tree(PyObject *template);
