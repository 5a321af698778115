/* Python functions as steps of native loops: what only NumPy and SciPy have, and callbacks, on arrays over the loop's memory.
 *
 *     sizes[0]  the function, of arrays     sizes[1]  the step's name     sizes[2]  the user's line
 *     sizes[3]  operands                    sizes[4]  results
 *     then of each: dtype, rank, extents; Python's objects are addresses, which the loaded kernel keeps alive
 *
 * The caller does not hold the GIL. Nonzero if the function raised: whoever called the loop finds the exception. */
#include "core.h"
#include <numpy/ufuncobject.h>

/* An array over the next buffer; *next goes on to what follows its description. */
static PyObject *array_over(const int64_t **next, void *data) {
    PyArray_Descr *dtype = (PyArray_Descr *)(intptr_t)(*next)[0];
    npy_intp dims[NPY_MAXDIMS];
    int ndim = (int)(*next)[1];
    for (int k = 0; k < ndim; k++)
        dims[k] = (npy_intp)(*next)[2 + k];
    *next += 2 + ndim;
    Py_INCREF(dtype);
    return PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, NULL, data, NPY_ARRAY_CARRAY, NULL);
}

static int copy_result(const int64_t **next, void *data, PyObject *result) {
    PyObject *target = array_over(next, data);
    if (target == NULL)
        return -1;
    PyArrayObject *to = (PyArrayObject *)target, *from = (PyArrayObject *)result;
    int status = -1;
    if (!PyArray_Check(result) || PyArray_NDIM(from) != PyArray_NDIM(to) ||
        !PyArray_CompareLists(PyArray_DIMS(from), PyArray_DIMS(to), PyArray_NDIM(to)) ||
        !PyArray_EquivTypes(PyArray_DESCR(from), PyArray_DESCR(to)))
        PyErr_SetString(PyExc_TypeError, "a step of a loop gave an array of another type than its plan says");
    else if (PyArray_IS_C_CONTIGUOUS(from))
        memmove(data, PyArray_DATA(from), PyArray_NBYTES(to)), status = 0;
    else
        status = PyArray_CopyInto(to, from);
    Py_DECREF(target);
    return status;
}

static int copy_results(const int64_t *next, void **buffers, int count, PyObject *results) {
    PyObject *sequence = PySequence_Fast(results, "a step of a loop gives a sequence of arrays");
    if (sequence == NULL)
        return -1;
    int status = 0;
    if (PySequence_Fast_GET_SIZE(sequence) != count) {
        PyErr_Format(PyExc_ValueError, "a step of a loop gave %zd arrays and its plan says %d",
                     PySequence_Fast_GET_SIZE(sequence), count);
        status = -1;
    }
    for (int k = 0; status == 0 && k < count; k++)
        status = copy_result(&next, buffers[k], PySequence_Fast_GET_ITEM(sequence, k));
    Py_DECREF(sequence);
    return status;
}

static int call_host(void **buffers, const int64_t *sizes) {
    int count = (int)sizes[3], made = 0;
    PyObject *arguments[count + 1];
    const int64_t *next = sizes + 5;
    while (made < count && (arguments[made] = array_over(&next, buffers[made])) != NULL)
        made++;
    PyObject *results = NULL;
    if (made == count)
        results = PyObject_Vectorcall((PyObject *)(intptr_t)sizes[0], arguments, count, NULL);
    if (results == NULL && PyErr_ExceptionMatches(PyExc_MemoryError))
        refuse_step((PyObject *)(intptr_t)sizes[1], (PyObject *)(intptr_t)sizes[2]);
    int status = results == NULL ? -1 : copy_results(next, buffers + count, (int)sizes[4], results);
    Py_XDECREF(results);
    while (made-- > 0)
        Py_DECREF(arguments[made]);
    return status;
}

static int run_host(void **buffers, const int64_t *sizes) {
    PyGILState_STATE held = PyGILState_Ensure();
    int failed = PyErr_Occurred() != NULL || call_host(buffers, sizes) < 0;
    PyGILState_Release(held);
    return failed;
}

/* The addresses of the inner loop `n` of a ufunc, and of the data that it is called with. */
static PyObject *ufunc_loop(PyObject *module, PyObject *args) {
    PyUFuncObject *ufunc;
    int n;
    if (!PyArg_ParseTuple(args, "Oi", &ufunc, &n))
        return NULL;
    if (strcmp(Py_TYPE(ufunc)->tp_name, "numpy.ufunc") != 0 || n < 0 || n >= ufunc->ntypes) {
        PyErr_SetString(PyExc_TypeError, "ufunc_loop takes a ufunc and the number of one of its loops");
        return NULL;
    }
    void *data = ufunc->data == NULL ? NULL : ufunc->data[n];
    return Py_BuildValue("NN", PyLong_FromVoidPtr((void *)ufunc->functions[n]), PyLong_FromVoidPtr(data));
}

static PyMethodDef functions[] = {{"ufunc_loop", ufunc_loop, METH_VARARGS, NULL}, {NULL}};

int add_host(PyObject *module) {
    PyObject *address = PyLong_FromVoidPtr((void *)run_host);
    int status = address == NULL ? -1 : PyModule_AddObjectRef(module, "run_host", address);
    Py_XDECREF(address);
    return status < 0 ? status : PyModule_AddFunctions(module, functions);
}
