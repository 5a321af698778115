/* Replay: a list of functions over slots, called one after the other in a context of its own, in which NumPy warns of nothing.

   What each gives is checked against the dtype and shape that are known, and made so by a function of Python where it differs. */
#include "core.h"

typedef struct {
    int slot, ndim;
    npy_intp *dims;
    PyArray_Descr *dtype;
    PyObject *shape;
} Made;

typedef struct {
    PyObject *function, *name;
    int *reads, *drops;
    Made *made;
    int read_count, drop_count, made_count;
} Operation;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *context; /* is copied for each call, since none can be entered twice */
    PyObject *settle;  /* (value, dtype, shape) -> dense ndarray */
    PyObject *refuse;  /* (error, name) -> a better MemoryError */
    PyObject **values; /* constants, and NULL for what is made */
    Operation *operations;
    int *outputs;
    int input_count, value_count, operation_count, output_count;
} Replay;

#define SLOTS_ON_STACK 64

/* -- calls */

static bool settled(PyObject *value, const Made *made) {
    if (!PyArray_CheckExact(value))
        return false;
    PyArrayObject *array = (PyArrayObject *)value;
    return PyArray_DESCR(array) == made->dtype && PyArray_NDIM(array) == made->ndim &&
           PyArray_CompareLists(PyArray_DIMS(array), made->dims, made->ndim) && PyArray_IS_C_CONTIGUOUS(array);
}

/* The value in its slot, which takes over a reference to it. */
static int keep(const Replay *self, PyObject **slots, const Made *made, PyObject *value) {
    Py_INCREF(value);
    if (!settled(value, made))
        Py_SETREF(value, PyObject_CallFunctionObjArgs(self->settle, value, (PyObject *)made->dtype, made->shape, NULL));
    slots[made->slot] = value;
    return value == NULL ? -1 : 0;
}

static int keep_all(const Replay *self, PyObject **slots, const Operation *operation, PyObject *found) {
    bool several = PyList_Check(found) || PyTuple_Check(found);
    if (!several && operation->made_count == 1)
        return keep(self, slots, &operation->made[0], found);
    if (!several || PySequence_Fast_GET_SIZE(found) != operation->made_count) {
        PyErr_Format(PyExc_SystemError, "%U gave other than its %d results", operation->name, operation->made_count);
        return -1;
    }
    for (int k = 0; k < operation->made_count; k++)
        if (keep(self, slots, &operation->made[k], PySequence_Fast_GET_ITEM(found, k)) < 0)
            return -1;
    return 0;
}

static void refuse(const Replay *self, const Operation *operation) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *better = PyObject_CallFunctionObjArgs(self->refuse, error, operation->name, NULL);
    if (better != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(better), better);
    Py_XDECREF(better);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

static int run_operation(const Replay *self, PyObject **slots, const Operation *operation) {
    PyObject *some[8], **arguments = some;
    if (operation->read_count > 8 && (arguments = PyMem_Malloc(operation->read_count * sizeof *arguments)) == NULL)
        return PyErr_NoMemory(), -1;
    for (int k = 0; k < operation->read_count; k++)
        arguments[k] = slots[operation->reads[k]];
    PyObject *found = PyObject_Vectorcall(operation->function, arguments, operation->read_count, NULL);
    if (arguments != some)
        PyMem_Free(arguments);
    int status = found == NULL ? -1 : keep_all(self, slots, operation, found);
    Py_XDECREF(found);
    if (status < 0 && PyErr_ExceptionMatches(PyExc_MemoryError))
        refuse(self, operation);
    for (int k = 0; status == 0 && k < operation->drop_count; k++)
        Py_CLEAR(slots[operation->drops[k]]);
    return status;
}

static PyObject *run_all(const Replay *self, PyObject **slots) {
    PyObject *context = PyContext_Copy(self->context);
    if (context == NULL || PyContext_Enter(context) < 0) {
        Py_XDECREF(context);
        return NULL;
    }
    int status = 0;
    for (int k = 0; status == 0 && k < self->operation_count; k++)
        status = run_operation(self, slots, &self->operations[k]);
    PyObject *outputs = status < 0 ? NULL : PyTuple_New(self->output_count);
    for (int k = 0; outputs != NULL && k < self->output_count; k++)
        PyTuple_SET_ITEM(outputs, k, Py_NewRef(slots[self->outputs[k]]));
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyContext_Exit(context);
    PyErr_Restore(type, error, traceback);
    Py_DECREF(context);
    return outputs;
}

static PyObject *call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Replay *self = (Replay *)object;
    if (PyVectorcall_NARGS(flags) != self->input_count || names != NULL)
        return PyErr_Format(PyExc_TypeError, "this replay takes %d arrays", self->input_count);
    int count = self->input_count + self->value_count;
    PyObject *some[SLOTS_ON_STACK], **slots = some;
    if (count > SLOTS_ON_STACK && (slots = PyMem_Malloc(count * sizeof *slots)) == NULL)
        return PyErr_NoMemory();
    for (int k = 0; k < count; k++)
        slots[k] = Py_XNewRef(k < self->input_count ? args[k] : self->values[k - self->input_count]);
    PyObject *outputs = run_all(self, slots);
    for (int k = 0; k < count; k++)
        Py_XDECREF(slots[k]);
    if (slots != some)
        PyMem_Free(slots);
    return outputs;
}

/* -- construction */

static int *integers(PyObject *tuple, int *count) {
    *count = (int)PyTuple_GET_SIZE(tuple);
    int *found = PyMem_Malloc((*count + 1) * sizeof *found);
    for (int k = 0; found != NULL && k < *count; k++)
        found[k] = (int)PyLong_AsLong(PyTuple_GET_ITEM(tuple, k));
    if (found == NULL)
        PyErr_NoMemory();
    return found;
}

static int read_made(PyObject *item, Made *made) {
    PyObject *dtype, *shape;
    if (!PyArg_ParseTuple(item, "iO!O!", &made->slot, &PyArrayDescr_Type, &dtype, &PyTuple_Type, &shape))
        return -1;
    made->ndim = (int)PyTuple_GET_SIZE(shape);
    made->dims = PyMem_Malloc((made->ndim + 1) * sizeof *made->dims);
    if (made->dims == NULL)
        return PyErr_NoMemory(), -1;
    for (int k = 0; k < made->ndim; k++)
        made->dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    made->dtype = (PyArray_Descr *)Py_NewRef(dtype);
    made->shape = Py_NewRef(shape);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_operation(PyObject *item, Operation *operation) {
    PyObject *function, *reads, *made, *drops, *name;
    if (!PyArg_ParseTuple(item, "OO!O!O!U", &function, &PyTuple_Type, &reads, &PyTuple_Type, &made, &PyTuple_Type, &drops,
                          &name))
        return -1;
    operation->function = Py_NewRef(function);
    operation->name = Py_NewRef(name);
    operation->reads = integers(reads, &operation->read_count);
    operation->drops = integers(drops, &operation->drop_count);
    operation->made_count = (int)PyTuple_GET_SIZE(made);
    operation->made = PyMem_Calloc(operation->made_count + 1, sizeof(Made));
    if (operation->reads == NULL || operation->drops == NULL || operation->made == NULL)
        return -1;
    for (int k = 0; k < operation->made_count; k++)
        if (read_made(PyTuple_GET_ITEM(made, k), &operation->made[k]) < 0)
            return -1;
    return PyErr_Occurred() ? -1 : 0;
}

static int read_replay(Replay *self, PyObject *operations, PyObject *values, PyObject *outputs) {
    self->value_count = (int)PyTuple_GET_SIZE(values);
    self->values = PyMem_Calloc(self->value_count + 1, sizeof *self->values);
    self->operations = PyMem_Calloc(PyTuple_GET_SIZE(operations) + 1, sizeof *self->operations);
    self->outputs = integers(outputs, &self->output_count);
    if (self->values == NULL || self->operations == NULL || self->outputs == NULL)
        return PyErr_NoMemory(), -1;
    for (int k = 0; k < self->value_count; k++) {
        PyObject *value = PyTuple_GET_ITEM(values, k);
        self->values[k] = value == Py_None ? NULL : Py_NewRef(value);
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(operations); k++) {
        self->operation_count = (int)k + 1;
        if (read_operation(PyTuple_GET_ITEM(operations, k), &self->operations[k]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *operations, *values, *outputs, *context, *settle, *better;
    int input_count;
    if (!PyArg_ParseTuple(args, "iO!O!O!OOO", &input_count, &PyTuple_Type, &operations, &PyTuple_Type, &values,
                          &PyTuple_Type, &outputs, &context, &settle, &better))
        return NULL;
    Replay *self = (Replay *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = call;
    self->input_count = input_count;
    self->context = Py_NewRef(context);
    self->settle = Py_NewRef(settle);
    self->refuse = Py_NewRef(better);
    if (read_replay(self, operations, values, outputs) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int replay_traverse(Replay *self, visitproc visit, void *arg) {
    Py_VISIT(self->context);
    Py_VISIT(self->settle);
    Py_VISIT(self->refuse);
    for (int k = 0; k < self->operation_count; k++)
        Py_VISIT(self->operations[k].function);
    return 0;
}

static void drop_operation(Operation *operation) {
    for (int k = 0; operation->made != NULL && k < operation->made_count; k++) {
        PyMem_Free(operation->made[k].dims);
        Py_XDECREF(operation->made[k].dtype);
        Py_XDECREF(operation->made[k].shape);
    }
    PyMem_Free(operation->made);
    PyMem_Free(operation->reads);
    PyMem_Free(operation->drops);
    Py_XDECREF(operation->function);
    Py_XDECREF(operation->name);
}

static void replay_dealloc(Replay *self) {
    PyObject_GC_UnTrack(self);
    for (int k = 0; self->values != NULL && k < self->value_count; k++)
        Py_XDECREF(self->values[k]);
    for (int k = 0; k < self->operation_count; k++)
        drop_operation(&self->operations[k]);
    PyMem_Free(self->values);
    PyMem_Free(self->operations);
    PyMem_Free(self->outputs);
    Py_XDECREF(self->context);
    Py_XDECREF(self->settle);
    Py_XDECREF(self->refuse);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject replay_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Replay",
    .tp_doc = "Functions over slots, one after the other.",
    .tp_basicsize = sizeof(Replay),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Replay, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = replay_new,
    .tp_dealloc = (destructor)replay_dealloc,
    .tp_traverse = (traverseproc)replay_traverse,
};

int add_replay(PyObject *module) { return add_type(module, &replay_type); }
