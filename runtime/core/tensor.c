/* PyTorch's tensors as ndarrays over their memory, by DLPack's C exchange interface (dlpack.h 1.3): no Python in between. */
#include "core.h"

typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Described; /* DLTensor */

typedef struct {
    uint32_t major, minor;
    void *previous;
    void *allocate, *own, *give;
    int (*describe)(void *object, Described *out);
    void *stream;
} Exchange; /* DLPackExchangeAPI */

enum { HOST = 1, MAJOR = 1 };
static const Exchange *torch_exchange;

/* adopt_tensors(capsule): torch.Tensor.__dlpack_c_exchange_api__; whether this file knows its version. */
static PyObject *adopt_tensors(PyObject *module, PyObject *capsule) {
    const Exchange *given = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (given == NULL)
        return NULL;
    if (given->major == MAJOR && given->describe != NULL)
        torch_exchange = given;
    return PyBool_FromLong(torch_exchange != NULL);
}

/* Whether the tensor's elements lie densely with its dimensions in this order, which have these extents. */
static bool lies(const Described *tensor, PyObject *extents, PyObject *order, npy_intp *dims) {
    int64_t stride = 1;
    for (int k = tensor->ndim - 1; k >= 0; k--) {
        long dim = PyLong_AsLong(PyTuple_GET_ITEM(order, k));
        dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(extents, k));
        if (dim < 0 || dim >= tensor->ndim || tensor->shape[dim] != dims[k] || dims[k] < 1)
            return false;
        if (dims[k] > 1 && tensor->strides != NULL && tensor->strides[dim] != stride)
            return false;
        if (tensor->strides == NULL && dim != k)
            return false;
        stride *= dims[k];
    }
    return true;
}

/* tensor_view(dtype, extents, order, otherwise, tensor): the ndarray of these extents over a tensor of the CPU's whose
   dimensions lie in this order; `otherwise(tensor)` where it lies in another way. */
static PyObject *tensor_view(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 5 || !PyArray_DescrCheck(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "tensor_view takes a dtype, two tuples, a function and a tensor");
        return NULL;
    }
    PyArray_Descr *dtype = (PyArray_Descr *)args[0];
    Described tensor;
    npy_intp dims[NPY_MAXDIMS];
    Py_ssize_t ndim = PyTuple_GET_SIZE(args[1]);
    if (torch_exchange == NULL || ndim > NPY_MAXDIMS || PyTuple_GET_SIZE(args[2]) != ndim)
        return PyObject_CallOneArg(args[3], args[4]);
    if (torch_exchange->describe(args[4], &tensor) != 0) {
        PyErr_Clear();
        return PyObject_CallOneArg(args[3], args[4]);
    }
    if (tensor.device.type != HOST || tensor.ndim != ndim || tensor.data == NULL ||
        tensor.dtype.bits * tensor.dtype.lanes != 8 * PyDataType_ELSIZE(dtype) || !lies(&tensor, args[1], args[2], dims))
        return PyObject_CallOneArg(args[3], args[4]);
    Py_INCREF(dtype);
    PyObject *found = PyArray_NewFromDescr(&PyArray_Type, dtype, (int)ndim, dims, NULL,
                                           (char *)tensor.data + tensor.byte_offset, NPY_ARRAY_CARRAY, NULL);
    if (found != NULL && PyArray_SetBaseObject((PyArrayObject *)found, Py_NewRef(args[4])) < 0)
        Py_CLEAR(found);
    return found;
}

static PyMethodDef methods[] = {
    {"adopt_tensors", adopt_tensors, METH_O, "Take torch's exchange interface."},
    {"tensor_view", (PyCFunction)(void (*)(void))tensor_view, METH_FASTCALL, "An ndarray over a tensor's memory."},
    {NULL},
};

int add_tensor(PyObject *module) { return PyModule_AddFunctions(module, methods); }
