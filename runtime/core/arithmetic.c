/* Arithmetic that NumPy has no operation for, on dense arrays: Threefry-2x32, x·y + z rounded once, and polynomials.

   The definitions are NumPy's, in fuser/ir/scalar.py; these give the same bits. */
#include "core.h"

#include <math.h>

static inline uint32_t turned(uint32_t x, int bits) { return x << bits | x >> (32 - bits); }

/* Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): 20 rounds. */
static void threefry_of(const uint32_t key[2], uint32_t high, uint32_t low, uint32_t *first, uint32_t *second) {
    static const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
    uint32_t x0 = high + key[0], x1 = low + key[1];
    for (int round = 0; round < 5; round++) {
        for (int k = 0; k < 4; k++) {
            x0 += x1;
            x1 = turned(x1, turns[round % 2][k]) ^ x0;
        }
        x0 += keys[(round + 1) % 3];
        x1 += keys[(round + 2) % 3] + round + 1;
    }
    *first = x0;
    *second = x1;
}

static bool dense(PyObject *object, int type_number) {
    return PyArray_Check(object) && PyArray_TYPE((PyArrayObject *)object) == type_number &&
           PyArray_CHKFLAGS((PyArrayObject *)object, NPY_ARRAY_CARRAY_RO);
}

/* threefry(words, size, start, first, second): both words of the positions from `start` on, `size` of them under each key. */
static PyObject *threefry(PyObject *module, PyObject *args) {
    PyObject *words, *firsts, *seconds;
    unsigned long long size, start;
    if (!PyArg_ParseTuple(args, "OKKOO", &words, &size, &start, &firsts, &seconds))
        return NULL;
    if (!dense(words, NPY_UINT32) || !dense(firsts, NPY_UINT32) || !dense(seconds, NPY_UINT32) || size == 0) {
        PyErr_SetString(PyExc_TypeError, "threefry takes dense arrays of uint32");
        return NULL;
    }
    const uint32_t *keys = PyArray_DATA((PyArrayObject *)words);
    uint32_t *first = PyArray_DATA((PyArrayObject *)firsts), *second = PyArray_DATA((PyArrayObject *)seconds);
    npy_intp count = PyArray_SIZE((PyArrayObject *)firsts);
    Py_BEGIN_ALLOW_THREADS
    for (npy_intp k = 0; k < count; k++) {
        unsigned long long place = start + k, owner = place / size, position = place % size;
        threefry_of(keys + 2 * owner, position >> 32, (uint32_t)position, first + k, second + k);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* fma(x, y, z, out): dense arrays of one shape and of float32 or float64. */
static PyObject *fused(PyObject *module, PyObject *args) {
    PyObject *arrays[4];
    if (!PyArg_ParseTuple(args, "OOOO", &arrays[0], &arrays[1], &arrays[2], &arrays[3]))
        return NULL;
    bool wide = dense(arrays[3], NPY_DOUBLE);
    npy_intp count = PyArray_Check(arrays[3]) ? PyArray_SIZE((PyArrayObject *)arrays[3]) : 0;
    for (int k = 0; k < 4; k++)
        if (!dense(arrays[k], wide ? NPY_DOUBLE : NPY_FLOAT) || PyArray_SIZE((PyArrayObject *)arrays[k]) != count) {
            PyErr_SetString(PyExc_TypeError, "fma takes dense arrays of one size, of float32 or float64");
            return NULL;
        }
    void *data[4];
    for (int k = 0; k < 4; k++)
        data[k] = PyArray_DATA((PyArrayObject *)arrays[k]);
    Py_BEGIN_ALLOW_THREADS
    for (npy_intp k = 0; k < count; k++)
        if (wide)
            ((double *)data[3])[k] = fma(((double *)data[0])[k], ((double *)data[1])[k], ((double *)data[2])[k]);
        else
            ((float *)data[3])[k] = fmaf(((float *)data[0])[k], ((float *)data[1])[k], ((float *)data[2])[k]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* horner(x, coefficients, out): a polynomial, highest power first; each product and sum rounded. float32 or float64, dense. */
static PyObject *horner(PyObject *module, PyObject *args) {
    PyObject *xs, *coefficients, *out;
    if (!PyArg_ParseTuple(args, "OOO", &xs, &coefficients, &out))
        return NULL;
    int type = dense(out, NPY_DOUBLE) ? NPY_DOUBLE : NPY_FLOAT;
    if (!dense(xs, type) || !dense(coefficients, type) || !dense(out, type) ||
        PyArray_SIZE((PyArrayObject *)xs) != PyArray_SIZE((PyArrayObject *)out)) {
        PyErr_SetString(PyExc_TypeError, "horner takes dense arrays of float32 or float64");
        return NULL;
    }
    npy_intp count = PyArray_SIZE((PyArrayObject *)xs), length = PyArray_SIZE((PyArrayObject *)coefficients);
    void *x = PyArray_DATA((PyArrayObject *)xs), *c = PyArray_DATA((PyArrayObject *)coefficients);
    void *result = PyArray_DATA((PyArrayObject *)out);
#define HORNER(type)                                                                                                   \
    for (npy_intp k = 0; k < count; k++) {                                                                             \
        type total = ((type *)c)[0];                                                                                   \
        for (npy_intp n = 1; n < length; n++)                                                                          \
            total = total * ((type *)x)[k] + ((type *)c)[n];                                                           \
        ((type *)result)[k] = total;                                                                                   \
    }
    Py_BEGIN_ALLOW_THREADS
    if (type == NPY_DOUBLE)
        HORNER(double)
    else
        HORNER(float)
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"threefry", threefry, METH_VARARGS, "threefry(words, size, start, first, second): Threefry-2x32 of positions."},
    {"horner", horner, METH_VARARGS, "horner(x, coefficients, out): a polynomial, each step rounded."},
    {"fma", fused, METH_VARARGS, "fma(x, y, z, out): x·y + z rounded once."},
    {NULL},
};

int add_arithmetic(PyObject *module) { return PyModule_AddFunctions(module, functions); }
