/* DeviceArray: the memory of an array on a GPU, and the pool that it comes from.

   Blocks are kept by size and stream and handed out again in the stream's order, so that neither taking nor giving one
   waits for the device; the driver's own pool (cuMemAllocAsync) is asked when none fits. Host arrays go through pinned
   memory that is filled at once and read in the order of the stream. All of this runs under the GIL. */
#include "device_array.h"

/* ---- the pool */

enum { LEAST = 512, STEPS = 8, CLASSES = 512 }; /* sizes between two powers of two */

typedef struct {
    Address address;
    Handle stream;
    Device *device;
} Free;

static struct {
    Free *blocks;
    int count, room;
} pool[CLASSES];
static size_t live, kept, peak;
static PyObject *refuse; /* refuse(bytes, label) raises OutOfMemoryError; refuse(None, None) frees what others keep */

/* The number of the size class of at least so many bytes, and its size. */
static int class_of(size_t bytes, size_t *size) {
    if (bytes <= LEAST) {
        *size = LEAST;
        return 0;
    }
    int power = 63 - __builtin_clzll(bytes - 1);
    size_t step = (size_t)1 << (power < 12 ? 9 : power - 3);
    *size = (bytes + step - 1) / step * step;
    return 1 + power * STEPS + (int)((*size - ((size_t)1 << power)) / step) % STEPS;
}

static Address reused(int class, Handle stream) {
    for (int k = pool[class].count - 1; k >= 0; k--)
        if (pool[class].blocks[k].stream == stream && pool[class].blocks[k].device == here()) {
            Address found = pool[class].blocks[k].address;
            pool[class].count--;
            memmove(&pool[class].blocks[k], &pool[class].blocks[k + 1], (pool[class].count - k) * sizeof(Free));
            return found;
        }
    return 0;
}

/* Give all that the pool keeps back to the driver. */
static void trim(void) {
    for (int class = 0; class < CLASSES; class++)
        while (pool[class].count > 0) {
            CONTEXT_GUARD(guard);
            Free *block = &pool[class].blocks[--pool[class].count];
            if (enter_context(&guard, block->device) < 0) {
                PyErr_Clear();
                continue;
            }
            driver.release(block->address, block->stream);
            driver.stream_synchronize(block->stream);
        }
    kept = 0;
}

Address take_device_memory(size_t bytes, Handle stream, size_t *block, PyObject *label) {
    CONTEXT_GUARD(guard);
    int class = class_of(bytes, block);
    Address found = reused(class, stream);
    if (found != 0)
        kept -= *block;
    else if (enter_device(&guard) < 0)
        return 0;
    if (found == 0 && driver.allocate(&found, *block, stream) != 0) {
        trim();
        PyGC_Collect();
        PyObject *freed = refuse == NULL ? NULL : PyObject_CallFunction(refuse, "OO", Py_None, Py_None);
        Py_XDECREF(freed);
        if (PyErr_Occurred())
            return 0;
        found = reused(class, stream);
        if (found == 0 && driver.allocate(&found, *block, stream) != 0) {
            if (refuse == NULL)
                PyErr_NoMemory();
            else
                Py_XDECREF(PyObject_CallFunction(refuse, "nO", (Py_ssize_t)bytes, label == NULL ? Py_None : label));
            return 0;
        }
    }
    live += *block;
    peak = live > peak ? live : peak;
    return found;
}

void give_device_memory(Address address, size_t block, Handle stream, Device *device) {
    size_t size;
    int class = class_of(block, &size);
    live -= block;
    if (pool[class].count == pool[class].room) {
        int room = 2 * pool[class].room + 8;
        Free *grown = realloc(pool[class].blocks, room * sizeof(Free));
        if (grown == NULL) {
            driver.release(address, stream);
            return;
        }
        pool[class].blocks = grown;
        pool[class].room = room;
    }
    int place = pool[class].count++; /* the lowest address comes last, and is taken first: calls find their memory again */
    for (; place > 0 && pool[class].blocks[place - 1].address < address; place--)
        pool[class].blocks[place] = pool[class].blocks[place - 1];
    pool[class].blocks[place] = (Free){address, stream, device};
    kept += block;
}

/* ---- arrays */

static DeviceArray *blank(int ndim, const npy_intp *dims, PyArray_Descr *dtype) {
    DeviceArray *array = PyObject_NewVar(DeviceArray, &device_array_type, ndim);
    if (array == NULL)
        return NULL;
    array->address = 0;
    array->owner = NULL;
    array->block = 0;
    array->stream = NULL;
    array->device = here();
    array->dtype = (PyArray_Descr *)Py_NewRef((PyObject *)dtype);
    memcpy(array->dims, dims, ndim * sizeof *dims);
    return array;
}

npy_intp device_array_bytes(const DeviceArray *array) {
    return PyArray_MultiplyList(array->dims, (int)Py_SIZE(array)) * PyDataType_ELSIZE(array->dtype);
}

PyObject *new_device_array(int ndim, const npy_intp *dims, PyArray_Descr *dtype, Handle stream, PyObject *label) {
    DeviceArray *array = blank(ndim, dims, dtype);
    if (array == NULL)
        return NULL;
    array->stream = stream;
    array->address = take_device_memory(device_array_bytes(array), stream, &array->block, label);
    if (array->address == 0) {
        array->block = 0;
        Py_CLEAR(array);
    }
    return (PyObject *)array;
}

static DeviceArray *root_of(DeviceArray *array) {
    while (array->owner != NULL && is_device_array(array->owner))
        array = (DeviceArray *)array->owner;
    return array;
}

PyObject *reshaped_device_array(DeviceArray *array, int ndim, const npy_intp *dims) {
    if (PyArray_MultiplyList(dims, ndim) != PyArray_MultiplyList(array->dims, (int)Py_SIZE(array)))
        return PyErr_Format(PyExc_ValueError, "an array on the device cannot take a shape of another number of elements");
    DeviceArray *made = blank(ndim, dims, array->dtype);
    if (made != NULL) {
        made->address = array->address;
        made->device = array->device;
        made->owner = Py_NewRef((PyObject *)root_of(array));
    }
    return (PyObject *)made;
}

PyObject *device_number(const void *number, PyArray_Descr *dtype, Handle stream) {
    DeviceArray *array = (DeviceArray *)new_device_array(0, NULL, dtype, stream, NULL);
    int bytes = (int)PyDataType_ELSIZE(dtype);
    const unsigned char *at = number;
    Status result = 0;
    for (int k = 0; array != NULL && !result && k < bytes;) {
        unsigned word;
        bool whole = bytes - k >= 4;
        memcpy(&word, at + k, whole ? 4 : 1);
        result = whole ? driver.set32(array->address + k, word, 1, stream) : driver.set8(array->address + k, at[k], 1, stream);
        k += whole ? 4 : 1;
    }
    if (array != NULL && check(result, "to write a number") < 0)
        Py_CLEAR(array);
    return (PyObject *)array;
}

int order_device_array(DeviceArray *array, Handle stream) {
    DeviceArray *root = root_of(array);
    Handle *event = &root->device->order_event;
    if (root->device != here()) {
        PyErr_Format(PyExc_ValueError, "an array on cuda:%d reaches a program on cuda:%d; move it with device_put", root->device->number, here()->number);
        return -1;
    }
    if (root->stream == stream)
        return 0;
    if (*event == NULL && check(driver.event_create(event, 2), "an event") < 0) /* without timing */
        return -1;
    if (check(driver.event_record(*event, root->stream), "an event") < 0 ||
        check(driver.stream_wait(stream, *event, 0), "to wait for an event") < 0)
        return -1;
    root->stream = stream;
    return 0;
}

bool alone_on_device(DeviceArray *array) {
    if (Py_REFCNT(array) != 1)
        return false;
    return array->owner == NULL || (is_device_array(array->owner) && Py_REFCNT(array->owner) == 1 &&
                                    ((DeviceArray *)array->owner)->owner == NULL);
}

static void dealloc(DeviceArray *array) {
    if (array->owner == NULL && array->block != 0)
        give_device_memory(array->address, array->block, array->stream, array->device);
    Py_XDECREF(array->owner);
    Py_DECREF(array->dtype);
    PyObject_Free(array);
}

/* ---- to and from the host */

enum { IS_HOST = 1, MEMORY_TYPE = 2, PIECES = 64, SMALL_PIECE = 64 << 10, LARGE_PIECE = 4 << 20, LARGE_PIECES = 4 };

typedef struct {
    char *memory;
    Handle event; /* recorded after the copy out of it */
} Piece;

/* Of each device, whose events they have. */
static struct { Piece small[PIECES], large[LARGE_PIECES]; int next_small, next_large; } pieces[MOST_DEVICES];

/* One piece through pinned memory; waits only where all pieces of its size are still being copied. */
static Status upload_piece(Address to, const char *from, size_t bytes, Handle stream) {
    bool fits = bytes <= SMALL_PIECE;
    int own = here()->number;
    Piece *piece = fits ? &pieces[own].small[pieces[own].next_small++ % PIECES] : &pieces[own].large[pieces[own].next_large++ % LARGE_PIECES];
    Status status = 0;
    if (piece->memory == NULL) {
        status = driver.host_allocate((void **)&piece->memory, fits ? SMALL_PIECE : LARGE_PIECE, 0);
        if (!status)
            status = driver.event_create(&piece->event, 2);
    } else if (driver.event_query(piece->event) != 0) {
        status = driver.event_synchronize(piece->event);
    }
    if (status)
        return status;
    memcpy(piece->memory, from, bytes);
    status = driver.to_device(to, piece->memory, bytes, stream);
    return status ? status : driver.event_record(piece->event, stream);
}

/* device_upload(ndarray): its values on the device, copied in the order of the current stream. */
static PyObject *device_upload(PyObject *module, PyObject *object) {
    CONTEXT_GUARD(guard);
    if (!PyArray_Check(object))
        return PyErr_Format(PyExc_TypeError, "device_upload takes an ndarray");
    PyArrayObject *source = (PyArrayObject *)PyArray_FROM_OF(object, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    Handle stream = source == NULL || enter_device(&guard) < 0 ? NULL : current_stream();
    DeviceArray *array = NULL;
    if (stream != NULL)
        array = (DeviceArray *)new_device_array(PyArray_NDIM(source), PyArray_DIMS(source), PyArray_DESCR(source), stream, NULL);
    Status result = 0;
    if (array != NULL) {
        size_t bytes = PyArray_NBYTES(source);
        for (size_t done = 0; !result && done < bytes; done += LARGE_PIECE)
            result = upload_piece(array->address + done, (const char *)PyArray_DATA(source) + done,
                                  Py_MIN(bytes - done, LARGE_PIECE), stream);
        if (check(result, "a copy to the device") < 0)
            Py_CLEAR(array);
    }
    Py_XDECREF(source);
    return (PyObject *)array;
}

/* device_download(array): its values as a new ndarray, once they are computed. */
static PyObject *device_download(PyObject *module, PyObject *object) {
    CONTEXT_GUARD(guard);
    if (!is_device_array(object))
        return PyErr_Format(PyExc_TypeError, "device_download takes a DeviceArray");
    DeviceArray *array = (DeviceArray *)object;
    if (enter_context(&guard, array->device) < 0)
        return NULL;
    PyArrayObject *made = (PyArrayObject *)new_ndarray((int)Py_SIZE(array), array->dims, array->dtype, NULL);
    if (made == NULL)
        return NULL;
    Handle stream = root_of(array)->stream;
    if (PyArray_NBYTES(made) == 0)
        return (PyObject *)made;
    if (wait_for_stream(stream) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    Status result;
    Py_BEGIN_ALLOW_THREADS
    result = driver.to_host(PyArray_DATA(made), array->address, PyArray_NBYTES(made), stream);
    if (!result)
        result = driver.stream_synchronize(stream);
    Py_END_ALLOW_THREADS
    if (check(result, "a copy from the device") < 0)
        Py_CLEAR(made);
    return (PyObject *)made;
}

/* device_empty(shape, dtype, label): an array of undefined contents. */
static PyObject *device_empty(PyObject *module, PyObject *args) {
    CONTEXT_GUARD(guard);
    PyObject *shape, *label = NULL;
    PyArray_Descr *dtype;
    npy_intp dims[NPY_MAXDIMS];
    if (!PyArg_ParseTuple(args, "O!O!|O", &PyTuple_Type, &shape, &PyArrayDescr_Type, &dtype, &label))
        return NULL;
    int ndim = (int)PyTuple_GET_SIZE(shape);
    for (int k = 0; k < ndim && k < NPY_MAXDIMS; k++)
        dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    Handle stream = PyErr_Occurred() || enter_device(&guard) < 0 ? NULL : current_stream();
    return stream == NULL ? NULL : new_device_array(ndim, dims, dtype, stream, label);
}

PyObject *foreign_device_array(Address address, int ndim, const npy_intp *dims, PyArray_Descr *dtype, PyObject *owner, Handle stream) {
    DeviceArray *array = blank(ndim, dims, dtype);
    if (array != NULL) {
        array->address = address;
        array->owner = Py_NewRef(owner);
        array->stream = stream;
    }
    return (PyObject *)array;
}

/* device_foreign(address, shape, dtype, owner, stream): memory that another library keeps; stream 0: the current one. */
static PyObject *device_foreign(PyObject *module, PyObject *args) {
    CONTEXT_GUARD(guard);
    PyObject *shape, *owner;
    PyArray_Descr *dtype;
    unsigned long long address, stream;
    npy_intp dims[NPY_MAXDIMS];
    if (!PyArg_ParseTuple(args, "KO!O!OK", &address, &PyTuple_Type, &shape, &PyArrayDescr_Type, &dtype, &owner, &stream))
        return NULL;
    int ndim = (int)PyTuple_GET_SIZE(shape);
    for (int k = 0; k < ndim && k < NPY_MAXDIMS; k++)
        dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    if (PyErr_Occurred() || enter_device(&guard) < 0)
        return NULL;
    Handle order = stream ? (Handle)(uintptr_t)stream : current_stream();
    return order == NULL ? NULL : foreign_device_array(address, ndim, dims, dtype, owner, order);
}

/* device_memory(): bytes of live arrays, the most there were, and what the pool keeps for others. */
static PyObject *device_memory(PyObject *module, PyObject *ignored) {
    return Py_BuildValue("{snsnsn}", "live", (Py_ssize_t)live, "peak", (Py_ssize_t)peak, "kept", (Py_ssize_t)kept);
}

/* device_trim(): give what the pool keeps back to the driver. */
static PyObject *device_trim(PyObject *module, PyObject *ignored) {
    CONTEXT_GUARD(guard);
    if (driver.library != NULL && enter_device(&guard) == 0)
        trim();
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* device_refusal(function): what raises OutOfMemoryError. */
static PyObject *device_refusal(PyObject *module, PyObject *function) {
    Py_XSETREF(refuse, Py_NewRef(function));
    Py_RETURN_NONE;
}

/* ---- the Python type */

static PyObject *get_shape(DeviceArray *self, void *closure) {
    return PyArray_IntTupleFromIntp((int)Py_SIZE(self), self->dims);
}

static PyObject *get_dtype(DeviceArray *self, void *closure) { return Py_NewRef((PyObject *)self->dtype); }

static PyObject *get_nbytes(DeviceArray *self, void *closure) { return PyLong_FromSsize_t(device_array_bytes(self)); }

static PyObject *get_address(DeviceArray *self, void *closure) { return PyLong_FromUnsignedLongLong(self->address); }

static PyObject *get_stream(DeviceArray *self, void *closure) { return PyLong_FromVoidPtr(root_of(self)->stream); }

static PyObject *get_device(DeviceArray *self, void *closure) { return PyLong_FromLong(self->device->number); }

static PyObject *get_on_host(DeviceArray *self, void *closure) {
    unsigned type = 0;
    Status result = driver.pointer_attribute(&type, MEMORY_TYPE, self->address);
    return PyBool_FromLong(result == 0 && type == IS_HOST);
}

static PyObject *reshape(DeviceArray *self, PyObject *shape) {
    npy_intp dims[NPY_MAXDIMS];
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > NPY_MAXDIMS)
        return PyErr_Format(PyExc_TypeError, "reshape takes a tuple");
    int ndim = (int)PyTuple_GET_SIZE(shape);
    for (int k = 0; k < ndim; k++)
        dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    return PyErr_Occurred() ? NULL : reshaped_device_array(self, ndim, dims);
}

/* part(offset, shape): what lies so many bytes into it, over the same memory. */
static PyObject *part(DeviceArray *self, PyObject *args) {
    Py_ssize_t offset;
    PyObject *shape;
    npy_intp dims[NPY_MAXDIMS];
    if (!PyArg_ParseTuple(args, "nO!", &offset, &PyTuple_Type, &shape))
        return NULL;
    int ndim = (int)PyTuple_GET_SIZE(shape);
    for (int k = 0; k < ndim && k < NPY_MAXDIMS; k++)
        dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    DeviceArray *made = PyErr_Occurred() ? NULL : blank(ndim, dims, self->dtype);
    if (made == NULL)
        return NULL;
    made->address = self->address + offset;
    made->device = self->device;
    made->owner = Py_NewRef((PyObject *)root_of(self));
    if (offset >= 0 && offset + device_array_bytes(made) <= device_array_bytes(self))
        return (PyObject *)made;
    Py_DECREF(made);
    return PyErr_Format(PyExc_ValueError, "the part lies outside of the array");
}

/* clone(): the same values in memory of their own. */
static PyObject *clone_here(DeviceArray *self) {
    CONTEXT_GUARD(guard);
    Handle stream = enter_device(&guard) < 0 ? NULL : current_stream();
    if (stream == NULL || order_device_array(self, stream) < 0)
        return NULL;
    DeviceArray *made = (DeviceArray *)new_device_array((int)Py_SIZE(self), self->dims, self->dtype, stream, NULL);
    npy_intp bytes = device_array_bytes(self);
    if (made != NULL && bytes && check(driver.copy(made->address, self->address, bytes, stream), "a copy") < 0)
        Py_CLEAR(made);
    return (PyObject *)made;
}

/* A stream of one device goes on once another device's has come so far; each is named in its own device's context. */
static int follow_device(const Device *behind, Handle stream, Device *ahead, Handle done) {
    CONTEXT_GUARD(guard);
    Handle *event = &ahead->order_event;
    if (enter_context(&guard, ahead) < 0 || (*event == NULL && check(driver.event_create(event, 2), "an event") < 0) ||
        check(driver.event_record(*event, done), "an event") < 0 || enter_context(&guard, behind) < 0)
        return -1;
    return check(driver.stream_wait(stream, *event, 0), "to wait for an event");
}

/* copy_here(): the same values in the thread's device's memory, by a copy between the devices that neither waits for. */
static PyObject *copy_here(DeviceArray *self, PyObject *ignored) {
    CONTEXT_GUARD(guard);
    DeviceArray *root = root_of(self);
    Device *own = here(), *other = root->device;
    if (own == other)
        return clone_here(self);
    Handle stream = enter_device(&guard) < 0 ? NULL : current_stream();
    DeviceArray *made = NULL;
    if (stream != NULL)
        made = (DeviceArray *)new_device_array((int)Py_SIZE(self), self->dims, self->dtype, stream, NULL);
    size_t bytes = device_array_bytes(self);
    if (made == NULL || bytes == 0)
        return (PyObject *)made;
    reach_peer(own, other);
    if (follow_device(own, stream, other, root->stream) < 0 ||
        check(driver.copy_peer(made->address, own->context, self->address, other->context, bytes, stream), "a copy between devices") < 0 ||
        follow_device(other, root->stream, own, stream) < 0)
        Py_CLEAR(made);
    return (PyObject *)made;
}

static PyObject *order_here(DeviceArray *self) {
    CONTEXT_GUARD(guard);
    Handle stream = enter_device(&guard) < 0 ? NULL : current_stream();
    return stream == NULL || order_device_array(self, stream) < 0 ? NULL : Py_NewRef((PyObject *)self);
}

/* On the array's own device, whichever the thread works on. */
static PyObject *there(DeviceArray *self, PyObject *(*function)(DeviceArray *)) {
    Device *before = choose_device(self->device);
    PyObject *result = function(self);
    choose_device(before);
    return result;
}

static PyObject *cloned(DeviceArray *self, PyObject *ignored) { return there(self, clone_here); }

static PyObject *ordered(DeviceArray *self, PyObject *ignored) { return there(self, order_here); }

static PyObject *block_until_ready(DeviceArray *self, PyObject *ignored) {
    CONTEXT_GUARD(guard);
    Handle stream = root_of(self)->stream;
    Status result;
    if (enter_context(&guard, self->device) < 0 || wait_for_stream(stream) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    result = driver.stream_synchronize(stream);
    Py_END_ALLOW_THREADS
    return check(result, "to wait") < 0 ? NULL : Py_NewRef((PyObject *)self);
}

static PyObject *is_ready(DeviceArray *self, PyObject *ignored) {
    CONTEXT_GUARD(guard);
    return enter_context(&guard, self->device) < 0 ? NULL : PyBool_FromLong(driver.stream_query(root_of(self)->stream) == 0);
}

static PyGetSetDef properties[] = {
    {"shape", (getter)get_shape, NULL, "Extents of the dimensions."},
    {"dtype", (getter)get_dtype, NULL, "The dtype of the elements."},
    {"nbytes", (getter)get_nbytes, NULL, "Bytes of the elements."},
    {"address", (getter)get_address, NULL, "Where the first element lies."},
    {"stream", (getter)get_stream, NULL, "The stream in whose order the memory is used."},
    {"device", (getter)get_device, NULL, "The device's number."},
    {"on_host", (getter)get_on_host, NULL, "Whether the host may read the memory: of a driver that stands in for one."},
    {NULL},
};

static PyMethodDef methods[] = {
    {"reshape", (PyCFunction)reshape, METH_O, "The same memory in another shape."},
    {"part", (PyCFunction)part, METH_VARARGS, "part(offset, shape): what lies so many bytes into it."},
    {"clone", (PyCFunction)cloned, METH_NOARGS, "The same values in memory of their own."},
    {"copy_here", (PyCFunction)copy_here, METH_NOARGS, "The same values in the memory of the thread's device."},
    {"ordered", (PyCFunction)ordered, METH_NOARGS, "The array, which work on the current stream may use."},
    {"block_until_ready", (PyCFunction)block_until_ready, METH_NOARGS, "Wait until the values are computed."},
    {"is_ready", (PyCFunction)is_ready, METH_NOARGS, "Whether the values are computed."},
    {NULL},
};

PyTypeObject device_array_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.DeviceArray",
    .tp_doc = "The memory of an array on a GPU, C-contiguous.",
    .tp_basicsize = sizeof(DeviceArray),
    .tp_itemsize = sizeof(npy_intp),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)dealloc,
    .tp_methods = methods,
    .tp_getset = properties,
};

static PyMethodDef functions[] = {
    {"device_empty", device_empty, METH_VARARGS, "device_empty(shape, dtype, label): an array of undefined contents."},
    {"device_foreign", device_foreign, METH_VARARGS, "device_foreign(address, shape, dtype, owner, stream)."},
    {"device_upload", device_upload, METH_O, "An ndarray's values on the device."},
    {"device_download", device_download, METH_O, "An array's values as a new ndarray."},
    {"device_memory", device_memory, METH_NOARGS, "Bytes in use, the most there were, and kept for others."},
    {"device_trim", device_trim, METH_NOARGS, "Give what the pool keeps back to the driver."},
    {"device_refusal", device_refusal, METH_O, "Set what raises OutOfMemoryError."},
    {NULL},
};

PyObject *device_empty_function;

int add_device_array(PyObject *module) {
    if (add_type(module, &device_array_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    device_empty_function = PyObject_GetAttrString(module, "device_empty");
    return device_empty_function == NULL ? -1 : 0;
}
