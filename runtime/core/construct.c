/* The Python type _native.Executable: built from what fuser.runtime.executable prepared, called with arrays. */
#include "executable.h"

/* The integers of a tuple in memory of PyMem; NULL with an exception set. */
static int *integers(PyObject *sequence, int *count) {
    PyObject *tuple = PySequence_Tuple(sequence);
    if (tuple == NULL)
        return NULL;
    *count = (int)PyTuple_GET_SIZE(tuple);
    int *result = PyMem_Malloc((*count + 1) * sizeof(int));
    for (int k = 0; result != NULL && k < *count; k++)
        result[k] = (int)PyLong_AsLong(PyTuple_GET_ITEM(tuple, k));
    Py_DECREF(tuple);
    if (result == NULL)
        PyErr_NoMemory();
    if (PyErr_Occurred()) {
        PyMem_Free(result);
        return NULL;
    }
    return result;
}

static int64_t *wide_integers(PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    int64_t *result = count < 0 ? NULL : PyMem_Malloc((count + 1) * sizeof(int64_t));
    for (Py_ssize_t k = 0; result != NULL && k < count; k++)
        result[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, k));
    if (result == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    if (PyErr_Occurred()) {
        PyMem_Free(result);
        return NULL;
    }
    return result;
}

/* -- construction */

static int read_type(Executable *self, PyObject *item) {
    int slot;
    PyObject *shape;
    PyArray_Descr *dtype;
    if (!PyArg_ParseTuple(item, "iO!O!", &slot, &PyTuple_Type, &shape, &PyArrayDescr_Type, &dtype))
        return -1;
    if (slot < 0 || slot >= self->slot_count || self->types[slot].dtype != NULL) {
        PyErr_Format(PyExc_ValueError, "slot %d cannot be described", slot);
        return -1;
    }
    SlotType *type = &self->types[slot];
    Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
    type->dims = PyMem_Malloc((ndim + 1) * sizeof(npy_intp));
    if (type->dims == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < ndim; k++)
        type->dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    type->ndim = (int)ndim;
    type->dtype = (PyArray_Descr *)Py_NewRef((PyObject *)dtype);
    type->bytes = PyArray_MultiplyList(type->dims, type->ndim) * PyDataType_ELSIZE(dtype);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

static int read_types(Executable *self, PyObject *types) {
    self->types = PyMem_Calloc(self->slot_count + 1, sizeof(SlotType));
    if (self->types == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int k = 0; k < self->slot_count; k++)
        self->types[k].ndim = -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(types); k++)
        if (read_type(self, PyTuple_GET_ITEM(types, k)) < 0)
            return -1;
    return 0;
}

static int read_consts(Executable *self, PyObject *consts) {
    Py_ssize_t count = PyDict_Size(consts), position = 0;
    self->const_slots = PyMem_Malloc((count + 1) * sizeof(int));
    self->consts = PyMem_Malloc((count + 1) * sizeof(PyObject *));
    if (self->const_slots == NULL || self->consts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (PyObject *slot, *value; PyDict_Next(consts, &position, &slot, &value); self->const_count++) {
        self->const_slots[self->const_count] = (int)PyLong_AsLong(slot);
        self->consts[self->const_count] = Py_NewRef(value);
    }
    return PyErr_Occurred() == NULL ? 0 : -1;
}

static int read_outputs(Executable *self, Step *step, PyObject *outputs, bool kernel) {
    Py_ssize_t count = PyTuple_GET_SIZE(outputs);
    step->outputs = PyMem_Calloc(count + 1, sizeof(Output));
    if (step->outputs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; step->output_count < count; step->output_count++) {
        Output *output = &step->outputs[step->output_count];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(outputs, step->output_count), "iinO", &output->slot, &output->reuse,
                              &output->offset, &output->label))
            return -1;
        const SlotType *type = &self->types[output->slot];
        if (output->offset >= 0 && (type->ndim < 0 || (size_t)(output->offset + type->bytes) > self->arena)) {
            PyErr_Format(PyExc_ValueError, "step %U writes outside of the arena", step->name);
            return -1;
        }
        Py_INCREF(output->label);
        self->lends |= output->offset >= 0 && !kernel;
    }
    return 0;
}

static int read_step(Executable *self, Step *step, PyObject *item) {
    const char *kind;
    PyObject *sizes, *arguments, *outputs, *drops;
    unsigned long long address;
    int keeps_gil;
    if (!PyArg_ParseTuple(item, "sUOKO!OO!Op", &kind, &step->name, &step->function, &address, &PyTuple_Type, &sizes,
                          &arguments, &PyTuple_Type, &outputs, &drops, &keeps_gil)) {
        step->name = step->function = NULL;
        return -1;
    }
    Py_INCREF(step->name);
    Py_INCREF(step->function);
    step->kernel = (Kernel)(uintptr_t)address;
    step->keeps_gil = keeps_gil;
    step->meets = strcmp(kind, "meeting") == 0;
    for (const StepKind *known = step_kinds; known->name != NULL; known++)
        if (strcmp(kind, known->name) == 0)
            step->run = known->run;
    if (step->run == NULL) {
        PyErr_Format(PyExc_ValueError, "no kind of step %s", kind);
        return -1;
    }
    if ((step->arguments = integers(arguments, &step->argument_count)) == NULL ||
        (step->drops = integers(drops, &step->drop_count)) == NULL || (step->sizes = wide_integers(sizes)) == NULL)
        return -1;
    return read_outputs(self, step, outputs, address != 0);
}

static int read_steps(Executable *self, PyObject *steps) {
    Py_ssize_t count = PyTuple_GET_SIZE(steps);
    self->steps = PyMem_Calloc(count + 1, sizeof(Step));
    if (self->steps == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        self->step_count++; /* first, so that what is there of it is freed if the rest cannot be read */
        if (read_step(self, &self->steps[k], PyTuple_GET_ITEM(steps, k)) < 0)
            return -1;
    }
    return 0;
}

/* Which outputs a kernel writes into memory of their own, and whether arrays over the arena are handed out. */
static int trace_slots(Executable *self) {
    bool *written = PyMem_Calloc(2 * self->slot_count + 1, sizeof(bool)), *in_arena = written + self->slot_count;
    self->fresh = PyMem_Calloc(self->output_count + 1, sizeof(bool));
    if (written == NULL || self->fresh == NULL) {
        PyMem_Free(written);
        PyErr_NoMemory();
        return -1;
    }
    for (const Step *step = self->steps; step < self->steps + self->step_count; step++) {
        for (int k = 0; k < step->argument_count; k++)
            self->lends |= in_arena[step->arguments[k]] && step->kernel == NULL;
        for (int k = 0; k < step->output_count; k++) {
            written[step->outputs[k].slot] = step->kernel != NULL;
            in_arena[step->outputs[k].slot] = step->outputs[k].offset >= 0;
        }
    }
    for (int k = 0; k < self->output_count; k++) {
        self->fresh[k] = written[self->outputs[k]];
        self->lends |= in_arena[self->outputs[k]];
    }
    PyMem_Free(written);
    return 0;
}

static PyObject *executable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    int slot_count, typed;
    Py_ssize_t arena;
    PyObject *inputs, *consts, *types, *steps, *outputs, *allocate, *label;
    if (!PyArg_ParseTuple(args, "iOO!O!pO!OOnU", &slot_count, &inputs, &PyDict_Type, &consts, &PyTuple_Type, &types,
                          &typed, &PyTuple_Type, &steps, &outputs, &allocate, &arena, &label))
        return NULL;
    Executable *self = (Executable *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->slot_count = slot_count;
    self->typed = typed;
    self->arena = arena;
    self->label = Py_NewRef(label);
    self->allocate = allocate == Py_None ? NULL : Py_NewRef(allocate);
    self->device = allocate == device_empty_function;
    if (read_types(self, types) < 0 || read_consts(self, consts) < 0 ||
        (self->inputs = integers(inputs, &self->input_count)) == NULL ||
        (self->outputs = integers(outputs, &self->output_count)) == NULL || read_steps(self, steps) < 0 ||
        trace_slots(self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* -- destruction */

static int executable_traverse(Executable *self, visitproc visit, void *arg) {
    for (int k = 0; k < self->const_count; k++)
        Py_VISIT(self->consts[k]);
    for (int k = 0; k < self->step_count; k++)
        Py_VISIT(self->steps[k].function);
    Py_VISIT(self->allocate);
    return 0;
}

static void free_step(Step *step) {
    Py_XDECREF(step->name);
    Py_XDECREF(step->function);
    for (int k = 0; k < step->output_count; k++)
        Py_XDECREF(step->outputs[k].label);
    PyMem_Free(step->outputs);
    PyMem_Free(step->arguments);
    PyMem_Free(step->drops);
    PyMem_Free(step->sizes);
}

static void executable_dealloc(Executable *self) {
    PyObject_GC_UnTrack(self);
    for (int k = 0; k < self->const_count; k++)
        Py_XDECREF(self->consts[k]);
    for (int k = 0; k < self->step_count; k++)
        free_step(&self->steps[k]);
    for (int k = 0; self->types != NULL && k < self->slot_count; k++) {
        Py_XDECREF(self->types[k].dtype);
        PyMem_Free(self->types[k].dims);
    }
    Py_XDECREF(self->allocate);
    Py_XDECREF(self->label);
    void *blocks[] = {self->inputs, self->const_slots, self->consts, self->outputs,
                      self->steps,  self->types,       self->fresh};
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
        PyMem_Free(blocks[k]);
    Py_TYPE(self)->tp_free(self);
}

/* -- calls from Python */

/* "float32[3,4]", as the error of a wrong input has it. */
static PyObject *words(PyArray_Descr *dtype, int ndim, const npy_intp *dims) {
    PyObject *text = PyUnicode_FromFormat("%S[", dtype);
    for (int k = 0; text != NULL && k < ndim; k++)
        Py_SETREF(text, PyUnicode_FromFormat(k ? "%U,%zd" : "%U%zd", text, (Py_ssize_t)dims[k]));
    if (text != NULL)
        Py_SETREF(text, PyUnicode_FromFormat("%U]", text));
    return text;
}

static int refuse(PyObject *array, const SlotType *type, int number) {
    PyArrayObject *found = (PyArrayObject *)array;
    PyObject *wanted = words(type->dtype, type->ndim, type->dims);
    PyObject *given = words(PyArray_DESCR(found), PyArray_NDIM(found), PyArray_DIMS(found));
    if (wanted != NULL && given != NULL)
        PyErr_Format(PyExc_TypeError, "this executable takes %U as array %d, got %U", wanted, number, given);
    Py_XDECREF(wanted);
    Py_XDECREF(given);
    return -1;
}

int read_inputs(const Executable *self, PyObject *const *args, Py_ssize_t count, Slot *inputs) {
    if (count != self->input_count) {
        PyErr_Format(PyExc_TypeError, "this executable takes %d arrays, got %zd", self->input_count, count);
        return -1;
    }
    for (int k = 0; k < count; k++) {
        const SlotType *type = &self->types[self->inputs[k]];
        if (self->typed && PyArray_Check(args[k]) && !same_type(args[k], type))
            return refuse(args[k], type, k);
    }
    for (int k = 0; k < count; k++)
        if (put_input(&inputs[k], Py_NewRef(args[k])) < 0) {
            while (k-- > 0)
                Py_CLEAR(inputs[k].object);
            return -1;
        }
    return 0;
}

/* Mark the inputs at the positions in `positions`, a collection of integers. */
static int mark(PyObject *positions, Slot *inputs, Py_ssize_t count, bool writable) {
    PyObject *list = PySequence_List(positions);
    for (Py_ssize_t k = 0; list != NULL && k < PyList_GET_SIZE(list); k++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyList_GET_ITEM(list, k));
        if (position < 0 || position >= count) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_IndexError, "no input at this position");
            break;
        }
        inputs[position].writable |= writable;
        inputs[position].foreign |= !writable;
    }
    Py_XDECREF(list);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

PyObject *list_of(PyObject **outputs, int count) {
    PyObject *list = PyList_New(count);
    for (int k = 0; k < count; k++) {
        if (list == NULL)
            Py_DECREF(outputs[k]);
        else
            PyList_SET_ITEM(list, k, outputs[k]);
    }
    return list;
}

static PyObject *run_on(const Executable *self, Slot *inputs) {
    PyObject *outputs[self->output_count + 1];
    return run_executable(self, inputs, outputs) < 0 ? NULL : list_of(outputs, self->output_count);
}

static PyObject *call(Executable *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Slot *inputs = PyMem_Calloc(self->input_count + 1, sizeof(Slot));
    if (inputs == NULL)
        return PyErr_NoMemory();
    PyObject *list = NULL;
    int status = read_inputs(self, args, count, inputs);
    for (Py_ssize_t k = 0; status == 0 && names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        bool writable = PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), "writable") == 0;
        status = mark(args[count + k], inputs, count, writable);
    }
    if (status == 0)
        list = run_on(self, inputs);
    else
        for (int k = 0; k < self->input_count; k++)
            Py_XDECREF(inputs[k].object);
    PyMem_Free(inputs);
    return list;
}

static PyMethodDef methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS,
     "call(*arrays, writable=(), foreign=()): the list of outputs."},
    {NULL},
};

PyTypeObject executable_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Executable",
    .tp_doc = "Steps over slots.",
    .tp_basicsize = sizeof(Executable),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = executable_new,
    .tp_dealloc = (destructor)executable_dealloc,
    .tp_traverse = (traverseproc)executable_traverse,
    .tp_methods = methods,
};

int add_executable(PyObject *module) { return add_type(module, &executable_type); }
