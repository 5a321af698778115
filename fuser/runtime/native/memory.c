#include "core.h"

static PyObject *empty; /* fuser.runtime.memory.empty */

int add_memory(PyObject *module) { return 0; }

void *pool_take(size_t size) { return aligned_alloc(64, (size + 63) & ~(size_t)63); }

void pool_give(void *data) { free(data); }

PyObject *new_ndarray(int ndim, const npy_intp *dims, PyArray_Descr *dtype, PyObject *label) {
    npy_intp size = PyArray_MultiplyList(dims, ndim) * PyDataType_ELSIZE(dtype);
    if (size < (64 << 10)) {
        Py_INCREF(dtype);
        return PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, NULL, NULL, 0, NULL);
    }
    if (empty == NULL) {
        PyObject *memory = PyImport_ImportModule("fuser.runtime.memory");
        if (memory == NULL || (empty = PyObject_GetAttrString(memory, "empty")) == NULL)
            return NULL;
        Py_DECREF(memory);
    }
    PyObject *shape = PyArray_IntTupleFromIntp(ndim, dims);
    PyObject *array = shape ? PyObject_CallFunctionObjArgs(empty, shape, dtype, NULL) : NULL;
    Py_XDECREF(shape);
    return array;
}

void refuse_memory(size_t size, PyObject *label) { PyErr_NoMemory(); }

int poll_signals(void) {
    PyGILState_STATE state = PyGILState_Ensure();
    int raised = PyErr_CheckSignals();
    PyGILState_Release(state);
    return raised;
}
