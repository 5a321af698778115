/* PyTorch's tensors as ndarrays and arrays on the device over their memory, and the other way round, by DLPack's C exchange
   interface (dlpack.h 1.3): no Python in between. */
#include "device_array.h"

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

enum { HOST = 1, CUDA = 2, MAJOR = 1, ALIGNMENT = 16 }; /* bytes of the addresses that kernels take */
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

static PyObject *host_view(PyArray_Descr *dtype, int ndim, const npy_intp *dims, char *data, PyObject *tensor) {
    Py_INCREF(dtype);
    PyObject *found = PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, NULL, data, NPY_ARRAY_CARRAY, NULL);
    if (found != NULL && PyArray_SetBaseObject((PyArrayObject *)found, Py_NewRef(tensor)) < 0)
        Py_CLEAR(found);
    return found;
}

/* The memory that torch's current stream works on. */
static PyObject *device_view(PyArray_Descr *dtype, int ndim, const npy_intp *dims, char *data, PyObject *tensor) {
    CONTEXT_GUARD(guard);
    Handle stream = enter_device(&guard) < 0 ? NULL : current_stream();
    return stream == NULL ? NULL : foreign_device_array((Address)(uintptr_t)data, ndim, dims, dtype, tensor, stream);
}

/* Whether programs read the memory where it is: the host's, or that of the thread's device. */
static bool within_reach(const Described *tensor, bool on_device) {
    if (!on_device)
        return tensor->device.type == HOST;
    return tensor->device.type == CUDA && driver.library != NULL && tensor->device.id == here()->number &&
           ((uintptr_t)tensor->data + tensor->byte_offset) % ALIGNMENT == 0;
}

/* tensor_view(dtype, extents, order, otherwise, on_device, tensor): the ndarray, or the DeviceArray, of these extents over a tensor
   of the CPU's, or the GPU's, whose dimensions lie in this order; `otherwise(tensor)` where it lies in another way. */
static PyObject *tensor_view(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 6 || !PyArray_DescrCheck(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "tensor_view takes a dtype, two tuples, a function, a truth value and a tensor");
        return NULL;
    }
    PyArray_Descr *dtype = (PyArray_Descr *)args[0];
    Described tensor;
    npy_intp dims[NPY_MAXDIMS];
    Py_ssize_t ndim = PyTuple_GET_SIZE(args[1]);
    bool on_device = args[4] == Py_True;
    if (torch_exchange == NULL || ndim > NPY_MAXDIMS || PyTuple_GET_SIZE(args[2]) != ndim)
        return PyObject_CallOneArg(args[3], args[5]);
    if (torch_exchange->describe(args[5], &tensor) != 0) {
        PyErr_Clear();
        return PyObject_CallOneArg(args[3], args[5]);
    }
    if (!within_reach(&tensor, on_device) || tensor.ndim != ndim || tensor.data == NULL ||
        tensor.dtype.bits * tensor.dtype.lanes != 8 * PyDataType_ELSIZE(dtype) || !lies(&tensor, args[1], args[2], dims))
        return PyObject_CallOneArg(args[3], args[5]);
    return (on_device ? device_view : host_view)(dtype, (int)ndim, dims, (char *)tensor.data + tensor.byte_offset, args[5]);
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

/* The memory of an ndarray, or of an array on the device once torch's current stream may use it, as DLPack describes it: 1. 0 for
   what is no writable memory of as many elements as these extents have, which are not none; -1 with an error. */
static int memory_of(PyObject *array, PyObject *extents, Described *out, Py_ssize_t *itemsize) {
    npy_intp size = 1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(extents); k++)
        size *= PyLong_AsSsize_t(PyTuple_GET_ITEM(extents, k));
    if (PyErr_Occurred() || size <= 0)
        return PyErr_Occurred() ? -1 : 0;
    if (!is_device_array(array)) {
        *out = (Described){.device = {HOST, 0}};
        if (!PyArray_CheckExact(array) || !PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_CARRAY))
            return 0;
        out->data = PyArray_DATA((PyArrayObject *)array);
        *itemsize = PyArray_ITEMSIZE((PyArrayObject *)array);
        return PyArray_SIZE((PyArrayObject *)array) == size;
    }
    DeviceArray *own = (DeviceArray *)array;
    *out = (Described){.data = (void *)(uintptr_t)own->address, .device = {CUDA, own->device->number}};
    *itemsize = PyDataType_ELSIZE(own->dtype);
    if (PyArray_MultiplyList(own->dims, (int)Py_SIZE(own)) != size)
        return 0;
    PyObject *on_host = PyObject_GetAttrString(array, "on_host"); /* of a driver that stands in for one, and then nothing else waits */
    PyObject *done = on_host == NULL ? NULL : PyObject_CallMethod(array, on_host == Py_True ? "block_until_ready" : "ordered", NULL);
    if (on_host == Py_True)
        out->device.type = HOST, out->device.id = 0;
    Py_XDECREF(on_host);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

/* tensor_over(code, extents, shape, strides, offset, otherwise, array): the tensor of this shape and these strides that begins
   `offset` elements into the memory of an ndarray, or of an array on the device, of as many elements as these extents have, with
   DLPack's code of its type; `otherwise(array)` for what is no such array. */
static PyObject *tensor_over(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "tensor_over takes a code, three tuples, an offset, a function and an array");
        return NULL;
    }
    Py_ssize_t ndim = PyTuple_GET_SIZE(args[2]), itemsize = 0;
    Described memory;
    int dense = 0;
    if (torch_exchange != NULL && torch_exchange->give != NULL && ndim <= NPY_MAXDIMS && PyTuple_GET_SIZE(args[3]) == ndim)
        dense = memory_of(args[6], args[1], &memory, &itemsize);
    if (dense <= 0)
        return dense < 0 ? NULL : PyObject_CallOneArg(args[5], args[6]);
    Managed *own = malloc(sizeof *own);
    if (own == NULL)
        return PyErr_NoMemory();
    *own = (Managed){.major = MAJOR, .array = Py_NewRef(args[6]), .release = release, .tensor = memory};
    own->tensor.ndim = (int32_t)ndim;
    own->tensor.dtype.code = (uint8_t)PyLong_AsLong(args[0]);
    own->tensor.dtype.bits = (uint8_t)(8 * itemsize);
    own->tensor.dtype.lanes = 1;
    own->tensor.byte_offset = (uint64_t)(PyLong_AsSsize_t(args[4]) * itemsize);
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
    {"tensor_view", (PyCFunction)(void (*)(void))tensor_view, METH_FASTCALL, "An array over a tensor's memory."},
    {"tensor_over", (PyCFunction)(void (*)(void))tensor_over, METH_FASTCALL, "A tensor over an array's memory."},
    {NULL},
};

int add_tensor(PyObject *module) { return PyModule_AddFunctions(module, methods); }
