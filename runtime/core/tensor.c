/* PyTorch's tensors as ndarrays over their memory, and the other way round, by DLPack's C exchange interface (dlpack.h 1.3): no
   Python in between. */
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

typedef struct Managed {
    uint32_t major, minor;
    void *array; /* its own */
    void (*release)(struct Managed *self);
    uint64_t flags;
    Described tensor;
    int64_t extents[2 * NPY_MAXDIMS]; /* the shape, then the strides; not of the interface */
} Managed; /* DLManagedTensorVersioned */

typedef struct {
    uint32_t major, minor;
    void *previous;
    void *allocate, *own;
    int (*give)(Managed *tensor, void **object);
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

/* Called by torch, on any thread, once no tensor needs the memory. */
static void release(Managed *self) {
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF((PyObject *)self->array);
        PyGILState_Release(state);
    }
    free(self);
}

/* Whether the array is writable memory of as many elements as these extents have, which are not none. */
static bool dense(PyObject *array, PyObject *extents) {
    if (!PyArray_CheckExact(array) || !PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_CARRAY))
        return false;
    npy_intp size = 1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(extents); k++)
        size *= PyLong_AsSsize_t(PyTuple_GET_ITEM(extents, k));
    return size > 0 && PyArray_SIZE((PyArrayObject *)array) == size;
}

/* tensor_over(code, extents, shape, strides, offset, otherwise, array): the tensor of this shape and these strides that begins
   `offset` elements into the memory of an ndarray of as many elements as these extents have, with DLPack's code of its type;
   `otherwise(array)` for what is no such array. */
static PyObject *tensor_over(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "tensor_over takes a code, three tuples, an offset, a function and an array");
        return NULL;
    }
    Py_ssize_t ndim = PyTuple_GET_SIZE(args[2]);
    if (torch_exchange == NULL || torch_exchange->give == NULL || ndim > NPY_MAXDIMS ||
        PyTuple_GET_SIZE(args[3]) != ndim || !dense(args[6], args[1]))
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(args[5], args[6]);
    Managed *own = malloc(sizeof *own);
    if (own == NULL)
        return PyErr_NoMemory();
    PyArrayObject *array = (PyArrayObject *)args[6];
    *own = (Managed){.major = MAJOR, .array = Py_NewRef(args[6]), .release = release};
    own->tensor = (Described){.data = PyArray_DATA(array), .device = {HOST, 0}, .ndim = (int32_t)ndim};
    own->tensor.dtype.code = (uint8_t)PyLong_AsLong(args[0]);
    own->tensor.dtype.bits = (uint8_t)(8 * PyArray_ITEMSIZE(array));
    own->tensor.dtype.lanes = 1;
    own->tensor.byte_offset = (uint64_t)(PyLong_AsSsize_t(args[4]) * PyArray_ITEMSIZE(array));
    own->tensor.shape = own->extents;
    own->tensor.strides = own->extents + ndim;
    for (Py_ssize_t k = 0; k < ndim; k++) {
        own->extents[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(args[2], k));
        own->extents[ndim + k] = PyLong_AsLongLong(PyTuple_GET_ITEM(args[3], k));
    }
    void *found = NULL;
    if (PyErr_Occurred() || torch_exchange->give(own, &found) != 0) {
        Py_DECREF(args[6]);
        free(own);
        return NULL;
    }
    return found;
}

static PyMethodDef methods[] = {
    {"adopt_tensors", adopt_tensors, METH_O, "Take torch's exchange interface."},
    {"tensor_view", (PyCFunction)(void (*)(void))tensor_view, METH_FASTCALL, "An ndarray over a tensor's memory."},
    {"tensor_over", (PyCFunction)(void (*)(void))tensor_over, METH_FASTCALL, "A tensor over an ndarray's memory."},
    {NULL},
};

int add_tensor(PyObject *module) { return PyModule_AddFunctions(module, methods); }
