/* Suspended: a call of an executable that stops at each collective, so that one thread can run several devices by turns.

   `advance()` runs up to the next collective and gives its function and its operands, or None at the end;
   `advance(results)` goes on with what came of it. `outputs()` follows the end. Not for two threads at once. */
#include "executable.h"

typedef struct {
    PyObject_HEAD
    Executable *executable;
    Call call;
    int next;    /* the step that the call stands at */
    bool begun;  /* there is a call to be ended */
    bool meeting; /* it stands at a collective */
    bool busy;
} Suspended;

static PyObject *suspended_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    if (PyTuple_GET_SIZE(args) < 1 || !PyObject_TypeCheck(PyTuple_GET_ITEM(args, 0), &executable_type)) {
        PyErr_SetString(PyExc_TypeError, "Suspended takes an Executable, and its inputs");
        return NULL;
    }
    Executable *executable = (Executable *)PyTuple_GET_ITEM(args, 0);
    Slot *inputs = PyMem_Calloc(executable->input_count + 1, sizeof(Slot));
    Slot *slots = PyMem_Malloc((executable->slot_count + 1) * sizeof(Slot));
    Suspended *self = inputs == NULL || slots == NULL ? (Suspended *)PyErr_NoMemory() : (Suspended *)type->tp_alloc(type, 0);
    PyObject *const *arrays = ((PyTupleObject *)args)->ob_item + 1;
    if (self == NULL || read_inputs(executable, arrays, PyTuple_GET_SIZE(args) - 1, inputs) < 0) {
        PyMem_Free(slots);
        Py_CLEAR(self);
    } else {
        self->executable = (Executable *)Py_NewRef(executable);
        self->begun = true;
        if (begin_call(&self->call, executable, slots, inputs, NULL) < 0)
            Py_CLEAR(self);
    }
    PyMem_Free(inputs);
    return (PyObject *)self;
}

static void suspended_dealloc(Suspended *self) {
    if (self->begun) {
        end_call(&self->call, NULL);
        PyMem_Free(self->call.slots);
    }
    Py_XDECREF(self->executable);
    Py_TYPE(self)->tp_free(self);
}

/* The function of a collective and a list of its operands. */
static PyObject *asked(Suspended *self, const Step *step) {
    PyObject *operands = PyList_New(step->argument_count);
    for (int k = 0; operands != NULL && k < step->argument_count; k++) {
        PyObject *array = slot_object(&self->call, step->arguments[k]);
        if (array == NULL)
            Py_CLEAR(operands);
        else
            PyList_SET_ITEM(operands, k, Py_NewRef(array));
    }
    return operands == NULL ? NULL : Py_BuildValue("(ON)", step->function, operands);
}

static int take_results(Suspended *self, PyObject *results) {
    const Step *step = &self->executable->steps[self->next];
    if (!self->meeting) {
        PyErr_SetString(PyExc_RuntimeError, "the call does not wait for results");
        return -1;
    }
    if (fill_outputs(&self->call, step, results) < 0)
        return -1;
    drop_dead(&self->call, step);
    self->meeting = false;
    self->next++;
    return 0;
}

static PyObject *advance(Suspended *self, PyObject *const *args, Py_ssize_t count) {
    if (self->busy || count > 1 || (count == 0 && self->meeting)) {
        PyErr_SetString(PyExc_RuntimeError, self->busy ? "another thread runs this call" : "the call waits for one list of results");
        return NULL;
    }
    if (count == 1 && take_results(self, args[0]) < 0)
        return NULL;
    self->busy = true;
    int status = walk_to_meeting(&self->call, &self->next);
    self->busy = false;
    self->meeting = status == 1;
    if (status < 0)
        return NULL;
    if (status == 0)
        Py_RETURN_NONE;
    return asked(self, &self->executable->steps[self->next]);
}

static PyObject *outputs(Suspended *self, PyObject *unused) {
    PyObject *found[self->executable->output_count + 1];
    if (self->next < self->executable->step_count) {
        PyErr_SetString(PyExc_RuntimeError, "the call has not come to its end");
        return NULL;
    }
    return gather_results(&self->call, found) < 0 ? NULL : list_of(found, self->executable->output_count);
}

static PyMethodDef methods[] = {
    {"advance", (PyCFunction)(void (*)(void))advance, METH_FASTCALL,
     "advance(results=...): (function, operands) of the next collective, None at the end."},
    {"outputs", (PyCFunction)outputs, METH_NOARGS, "The list of outputs, at the end."},
    {NULL},
};

static PyTypeObject suspended_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Suspended",
    .tp_doc = "Suspended(executable, *arrays): a call that stops at each collective.",
    .tp_basicsize = sizeof(Suspended),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = suspended_new,
    .tp_dealloc = (destructor)suspended_dealloc,
    .tp_methods = methods,
};

int add_suspended(PyObject *module) { return add_type(module, &suspended_type); }
