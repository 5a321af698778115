/* The base of fuser.Array: its fields, what they say about shape and dtype, and giving its memory up.

   Python's class adds the methods and no fields; it hands itself over by `adopt_array`, with what it needs in return. */
#include "device_array.h"

PyTypeObject *array_type;
static PyObject *stand_in;    /* _Deleted(shape, dtype, reason) */
static PyObject *numpy_dtype; /* from a torch dtype to NumPy's */
static PyObject *carried;     /* a mapping whose keys are the dtypes that torch lacks */

/* All living arrays, in the order in which they were made. The GIL guards it. */
static ArrayObject living = {.previous = &living, .next = &living};
static bool collecting;          /* whether Python's garbage collector is at work, and somebody asked what it frees */
static Py_ssize_t collected;     /* how many arrays it has freed since it began */

static PyObject *allocate(PyTypeObject *type) {
    ArrayObject *self = (ArrayObject *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->previous = living.previous;
    self->next = &living;
    living.previous->next = self;
    living.previous = self;
    return (PyObject *)self;
}

static void clear_fields(ArrayObject *self) {
    self->previous->next = self->next;
    self->next->previous = self->previous;
    collected += collecting;
    if (self->weak_references != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    Py_CLEAR(self->data);
    Py_CLEAR(self->dtype);
}

static void base_dealloc(ArrayObject *self) {
    clear_fields(self);
    Py_TYPE(self)->tp_free(self);
}

/* Of fuser.Array itself, a class made in Python, whose instances hold a reference to it. */
static void adopted_dealloc(ArrayObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    clear_fields(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *new_array(PyObject *data, PyObject *dtype, bool weak_type) {
    ArrayObject *self = (ArrayObject *)allocate(array_type);
    if (self == NULL) {
        Py_DECREF(data);
        return NULL;
    }
    self->data = data;
    self->dtype = Py_XNewRef(dtype);
    self->weak_type = weak_type;
    return (PyObject *)self;
}

static int set_fields(ArrayObject *self, PyObject *data, PyObject *weak_type, PyObject *dtype) {
    int weak = weak_type == NULL ? 0 : PyObject_IsTrue(weak_type);
    int keeps = 0;
    if (weak >= 0 && dtype != NULL && dtype != Py_None && !PyArray_Check(data) && carried != NULL)
        keeps = PySequence_Contains(carried, dtype);
    if (weak < 0 || keeps < 0)
        return -1;
    Py_XSETREF(self->data, Py_NewRef(data));
    Py_XSETREF(self->dtype, keeps ? Py_NewRef(dtype) : NULL);
    self->weak_type = (char)weak;
    self->deleted = 0;
    return 0;
}

static PyObject *base_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    ArrayObject *self = (ArrayObject *)allocate(type);
    if (self != NULL)
        self->data = Py_NewRef(Py_None);
    return (PyObject *)self;
}

static int base_init(ArrayObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "weak_type", "dtype", NULL};
    PyObject *data, *weak_type = NULL, *dtype = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:Array", names, &data, &weak_type, &dtype))
        return -1;
    return set_fields(self, data, weak_type, dtype);
}

/* Array(data), Array(data, weak_type) and Array(data, weak_type, dtype) without a tuple of arguments. */
static PyObject *make_array(PyObject *type, PyObject *const *args, size_t flags, PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (names != NULL || count < 1 || count > 3) {
        PyObject *tuple = PyTuple_New(count), *self = NULL;
        PyObject *named = names == NULL ? NULL : PyDict_New();
        for (Py_ssize_t k = 0; tuple != NULL && k < count; k++)
            PyTuple_SET_ITEM(tuple, k, Py_NewRef(args[k]));
        for (Py_ssize_t k = 0; named != NULL && k < PyTuple_GET_SIZE(names); k++)
            PyDict_SetItem(named, PyTuple_GET_ITEM(names, k), args[count + k]);
        if (tuple != NULL && !PyErr_Occurred())
            self = PyType_Type.tp_call(type, tuple, named);
        Py_XDECREF(tuple);
        Py_XDECREF(named);
        return self;
    }
    ArrayObject *self = (ArrayObject *)allocate((PyTypeObject *)type);
    if (self != NULL && set_fields(self, args[0], count > 1 ? args[1] : NULL, count > 2 ? args[2] : NULL) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *shape_of(ArrayObject *self) {
    if (is_device_array(self->data))
        return PyArray_IntTupleFromIntp((int)Py_SIZE(self->data), ((DeviceArray *)self->data)->dims);
    if (PyArray_Check(self->data))
        return PyArray_IntTupleFromIntp(PyArray_NDIM((PyArrayObject *)self->data),
                                        PyArray_DIMS((PyArrayObject *)self->data));
    PyObject *found = PyObject_GetAttrString(self->data, "shape");
    PyObject *shape = found == NULL ? NULL : PySequence_Tuple(found);
    Py_XDECREF(found);
    if (shape != NULL && !PyTuple_CheckExact(shape)) /* torch.Size is a tuple of its own kind */
        Py_SETREF(shape, PyTuple_GetSlice(shape, 0, PyTuple_GET_SIZE(shape)));
    return shape;
}

static PyObject *dtype_of(ArrayObject *self) {
    if (self->dtype != NULL)
        return Py_NewRef(self->dtype);
    if (PyArray_Check(self->data))
        return Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)self->data));
    if (is_device_array(self->data))
        return Py_NewRef((PyObject *)((DeviceArray *)self->data)->dtype);
    PyObject *found = PyObject_GetAttrString(self->data, "dtype");
    if (found == NULL || PyArray_DescrCheck(found))
        return found;
    PyObject *dtype = PyObject_CallOneArg(numpy_dtype, found);
    Py_DECREF(found);
    return dtype;
}

static PyObject *get_data(ArrayObject *self, void *closure) { return Py_NewRef(self->data); }

static int set_data(ArrayObject *self, PyObject *data, void *closure) {
    if (data == NULL) {
        PyErr_SetString(PyExc_AttributeError, "an array has its data until it is deleted");
        return -1;
    }
    Py_SETREF(self->data, Py_NewRef(data));
    return 0;
}

static PyObject *get_shape(ArrayObject *self, void *closure) { return shape_of(self); }

static PyObject *get_dtype(ArrayObject *self, void *closure) { return dtype_of(self); }

static PyObject *get_ndim(ArrayObject *self, void *closure) {
    if (PyArray_Check(self->data))
        return PyLong_FromLong(PyArray_NDIM((PyArrayObject *)self->data));
    PyObject *shape = shape_of(self);
    PyObject *ndim = shape == NULL ? NULL : PyLong_FromSsize_t(PyTuple_GET_SIZE(shape));
    Py_XDECREF(shape);
    return ndim;
}

/* Put what says why in place of the memory, and return the memory. */
static PyObject *give_up(ArrayObject *self, PyObject *reason) {
    PyObject *shape = shape_of(self), *dtype = shape == NULL ? NULL : dtype_of(self);
    PyObject *left = dtype == NULL ? NULL : PyObject_CallFunctionObjArgs(stand_in, shape, dtype, reason, NULL);
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    if (left == NULL)
        return NULL;
    PyObject *data = self->data;
    self->data = left;
    self->deleted = 1;
    return data;
}

PyObject *present_data(ArrayObject *self) {
    if (!self->deleted)
        return Py_NewRef(self->data);
    PyObject *error = PyObject_CallMethod(self->data, "error", NULL);
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *donated_data(ArrayObject *self, bool *alone) {
    static PyObject *reason;
    *alone = false;
    if (self->deleted)
        return present_data(self);
    if (reason == NULL && (reason = PyUnicode_InternFromString("it was donated to a jitted call")) == NULL)
        return NULL;
    PyObject *data = give_up(self, reason);
    if (data != NULL && is_device_array(data)) {
        *alone = alone_on_device((DeviceArray *)data);
        return data;
    }
    if (data == NULL || Py_REFCNT(data) != 1 || !PyArray_Check(data) || !PyArray_ISWRITEABLE((PyArrayObject *)data))
        return data;
    PyArrayObject *array = (PyArrayObject *)data;
    *alone = PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA) ||
             (owns_memory(PyArray_BASE(array)) && Py_REFCNT(PyArray_BASE(array)) == 1);
    return data;
}

static PyObject *adopt_array(PyObject *module, PyObject *args) {
    PyTypeObject *type;
    if (!PyArg_ParseTuple(args, "O!OOO", &PyType_Type, &type, &stand_in, &numpy_dtype, &carried))
        return NULL;
    Py_INCREF(args); /* they live as long as the process */
    array_type = type;
    /* No array refers to another, so the collector need not look at them; there are no instances yet. */
    type->tp_flags &= ~Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = NULL;
    type->tp_clear = NULL;
    type->tp_free = PyObject_Free;
    type->tp_dealloc = (destructor)adopted_dealloc;
    type->tp_vectorcall = make_array;
    Py_RETURN_NONE;
}

/* live_arrays(): a list of the arrays whose memory has not been given up. */
static PyObject *live_arrays(PyObject *module, PyObject *nothing) {
    PyObject *found = PyList_New(0);
    for (ArrayObject *self = living.next; found != NULL && self != &living; self = self->next)
        if (!self->deleted && self->data != NULL && is_array((PyObject *)self) && PyList_Append(found, (PyObject *)self) < 0)
            Py_CLEAR(found);
    return found;
}

/* collecting(begins): what Python's garbage collector frees from now on counts; the count since the last call. */
static PyObject *watch_collector(PyObject *module, PyObject *begins) {
    Py_ssize_t count = collected;
    collecting = PyObject_IsTrue(begins) > 0;
    collected = 0;
    return PyLong_FromSsize_t(count);
}

static PyMemberDef members[] = {
    {"_dtype", T_OBJECT, offsetof(ArrayObject, dtype), 0, "the elements' dtype where the tensor's is but a carrier"},
    {"_weak_type", T_BOOL, offsetof(ArrayObject, weak_type), 0, "whether the dtype came from a Python scalar"},
    {"_deleted", T_BOOL, offsetof(ArrayObject, deleted), 0, "whether the memory was given up"},
    {"weak_type", T_BOOL, offsetof(ArrayObject, weak_type), READONLY,
     "Whether the dtype came from a Python scalar and so gives way to others."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weak_references), READONLY},
    {NULL},
};

static PyGetSetDef properties[] = {
    {"_data", (getter)get_data, (setter)set_data, "an ndarray or a torch tensor"},
    {"shape", (getter)get_shape, NULL, "Extents of the dimensions, outermost first."},
    {"dtype", (getter)get_dtype, NULL, "The dtype of the elements."},
    {"ndim", (getter)get_ndim, NULL, "The number of dimensions."},
    {NULL},
};

static void as_buffer_error(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_Format(PyExc_BufferError, "an array's memory cannot be read as a buffer: %S", value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* The memory of an array on the host, read-only: what memoryview, hashlib and whatever else takes bytes look at.

   The view holds what owns the memory, so deleting the array leaves it valid, and donation, which wants the only reference, copies. */
static int get_buffer(ArrayObject *self, Py_buffer *view, int flags) {
    view->obj = NULL;
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "arrays are immutable; np.array(x) is a copy that can be written to");
        return -1;
    }
    /* What is on a device is copied, and what has no values for others, random keys, is refused in Python. */
    bool on_host = !self->deleted && self->data != NULL && PyArray_Check(self->data) &&
                   !PyDataType_HASFIELDS(PyArray_DESCR((PyArrayObject *)self->data));
    PyObject *memory = on_host ? Py_NewRef(self->data) : PyObject_CallMethod((PyObject *)self, "__array__", NULL);
    int status = memory == NULL ? -1 : PyObject_GetBuffer(memory, view, flags);
    Py_XDECREF(memory);
    if (status == 0)
        view->readonly = 1;
    else if (!PyErr_ExceptionMatches(PyExc_BufferError))
        as_buffer_error();
    return status;
}

static PyBufferProcs buffer = {.bf_getbuffer = (getbufferproc)get_buffer};

static PyTypeObject base_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.ArrayBase",
    .tp_doc = "The fields of an array.",
    .tp_basicsize = sizeof(ArrayObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_weaklistoffset = offsetof(ArrayObject, weak_references),
    .tp_new = base_new,
    .tp_init = (initproc)base_init,
    .tp_dealloc = (destructor)base_dealloc,
    .tp_members = members,
    .tp_getset = properties,
    .tp_as_buffer = &buffer,
};

static PyMethodDef functions[] = {
    {"live_arrays", live_arrays, METH_NOARGS, "The arrays whose memory has not been given up."},
    {"watch_collector", watch_collector, METH_O, "Count the arrays that the garbage collector frees; how many it has."},
    {"adopt_array", adopt_array, METH_VARARGS, "Take fuser.Array, and what arrays need from Python."},
    {NULL},
};

int add_array(PyObject *module) {
    return add_type(module, &base_type) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
