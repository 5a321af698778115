/* What a call depends on beside its arguments, a thread's own: the current trace, and the settings in a program's key.

   Python writes both (fuser.trace.core and fuser.config); the dispatcher reads them without leaving C. */
#include "core.h"

static _Thread_local PyObject *current_trace; /* owned; NULL for evaluation */
static PyObject *evaluation;

typedef struct {
    int x64;         /* -1: as the process has it */
    int64_t backend; /* a number for each name; -1: as the process has it */
} Settings;

static Settings of_process = {0, 0};
static _Thread_local Settings of_thread = {-1, -1};

bool evaluating(void) { return current_trace == NULL || current_trace == evaluation; }

bool x64_enabled(void) { return of_thread.x64 >= 0 ? of_thread.x64 : of_process.x64; }

int64_t backend_number(void) { return of_thread.backend >= 0 ? of_thread.backend : of_process.backend; }

static PyObject *get_trace(PyObject *self, void *closure) {
    return Py_NewRef(current_trace == NULL ? Py_None : current_trace);
}

static int set_trace(PyObject *self, PyObject *value, void *closure) {
    Py_XSETREF(current_trace, value == NULL || value == Py_None ? NULL : Py_NewRef(value));
    return 0;
}

static PyObject *set_evaluation(PyObject *module, PyObject *trace) {
    Py_XSETREF(evaluation, Py_NewRef(trace));
    Py_RETURN_NONE;
}

static PyObject *set_x64(PyObject *module, PyObject *args) {
    PyObject *value;
    int thread;
    if (!PyArg_ParseTuple(args, "Op", &value, &thread))
        return NULL;
    int wanted = value == Py_None ? -1 : PyObject_IsTrue(value);
    *(thread ? &of_thread.x64 : &of_process.x64) = wanted;
    Py_RETURN_NONE;
}

static PyObject *set_backend(PyObject *module, PyObject *args) {
    long long number;
    int thread;
    if (!PyArg_ParseTuple(args, "Lp", &number, &thread))
        return NULL;
    *(thread ? &of_thread.backend : &of_process.backend) = number;
    Py_RETURN_NONE;
}

static PyObject *settings_number(PyObject *module, PyObject *ignored) { return PyLong_FromLongLong(backend_number()); }

static PyGetSetDef properties[] = {
    {"trace", get_trace, set_trace, "The trace that is current in this thread; None for evaluation."},
    {NULL},
};

static PyTypeObject state_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.ThreadState",
    .tp_doc = "The calling thread's trace.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_getset = properties,
};

static PyMethodDef functions[] = {
    {"set_evaluation", set_evaluation, METH_O, "Say which trace is evaluation."},
    {"set_x64", set_x64, METH_VARARGS, "set_x64(value, of_thread): None is as the process has it."},
    {"settings_number", settings_number, METH_NOARGS, "The number of the settings that calls depend on, in this thread."},
    {"set_backend", set_backend, METH_VARARGS, "set_backend(number, of_thread): -1 is as the process has it."},
    {NULL},
};

int add_state(PyObject *module) {
    return add_type(module, &state_type) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
