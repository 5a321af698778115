/* Dispatcher: the base of jitted functions, which answers calls that it knows and passes the others to Python.

   A call's arguments are flattened to tokens, the entry is looked up and its program run. Python's `_in_python` takes what is
   traced or not understood here, `_missed` what is new; that one registers an entry before it runs the program. */
#include "fast_path.h"
#include "table.h"

#define MOST_ENTRIES 1024

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Table *table;           /* NULL while empty */
    PyObject *numbers;      /* static_argnums */
    PyObject *static_names; /* static_argnames */
    PyObject *paths;        /* of an accelerated function, a tuple of FastPaths; else NULL */
} Dispatcher;

#ifdef Py_GIL_DISABLED
#define LOCKED Py_BEGIN_CRITICAL_SECTION(self)
#define UNLOCKED Py_END_CRITICAL_SECTION()
#else
#define LOCKED
#define UNLOCKED
#endif

static PyObject *call_name, *missed_name;

/* -- calls */

static PyObject *in_python(PyObject *self, PyObject *name, PyObject *const *args, size_t flags, PyObject *names) {
    PyObject *method = PyObject_GetAttr(self, name);
    PyObject *result = method == NULL ? NULL : PyObject_Vectorcall(method, args, PyVectorcall_NARGS(flags), names);
    Py_XDECREF(method);
    return result;
}

static Table *current_table(Dispatcher *self) {
    Table *table;
    LOCKED;
    table = (Table *)Py_XNewRef((PyObject *)self->table);
    UNLOCKED;
    return table;
}

static PyObject *run_entry(const Entry *entry, const Flat *flat) {
    const Operand *some[LEAVES_INLINE];
    const Operand **operands = some;
    if (flat->leaf_count > LEAVES_INLINE && (operands = PyMem_Malloc(flat->leaf_count * sizeof *operands)) == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < flat->leaf_count; k++)
        operands[entry->order == NULL ? k : entry->order[k]] = &flat->leaves[k];
    PyObject *result = run_program((const Program *)entry->program, operands, flat->leaf_count);
    if (operands != some)
        PyMem_Free(operands);
    return result;
}

static PyObject *dispatch(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Dispatcher *self = (Dispatcher *)object;
    if (!evaluating())
        return in_python(object, call_name, args, flags, names);
    Arguments arguments = {args, PyVectorcall_NARGS(flags), names, self->numbers, self->static_names};
    Flat flat;
    Outcome outcome = flatten(&flat, &arguments);
    PyObject *result = NULL;
    Table *table = outcome == FLAT ? current_table(self) : NULL;
    Entry *entry = table == NULL ? NULL : find_entry(table, &flat);
    if (outcome == FLAT && entry == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear(); /* Python compares the arguments again, and says which cannot be compared */
        outcome = UNKNOWN;
    }
    if (entry != NULL)
        result = run_entry(entry, &flat);
    Py_XDECREF(table);
    drop_flat(&flat);
    if (entry == NULL && outcome != FAILED && !PyErr_Occurred())
        return in_python(object, outcome == FLAT ? missed_name : call_name, args, flags, names);
    Py_XDECREF(entry);
    return result;
}

/* A call of an accelerated function: by the first path whose call it is. */
static PyObject *dispatch_to_path(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Dispatcher *self = (Dispatcher *)object;
    PyObject *paths, *result = NULL;
    LOCKED;
    paths = names == NULL ? Py_XNewRef(self->paths) : NULL;
    UNLOCKED;
    int answered = 0;
    for (Py_ssize_t k = 0; paths != NULL && !answered && k < PyTuple_GET_SIZE(paths); k++)
        answered = take_fast_path((FastPath *)PyTuple_GET_ITEM(paths, k), args, PyVectorcall_NARGS(flags), &result);
    Py_XDECREF(paths);
    return answered ? result : in_python(object, call_name, args, flags, names);
}

/* -- registration */

static PyObject *with_keywords(PyObject *args, PyObject *kwargs, PyObject **names) {
    PyObject *values = PyDict_Values(kwargs), *keys = PyDict_Keys(kwargs), *all = NULL;
    *names = keys == NULL ? NULL : PyList_AsTuple(keys);
    PyObject *tuple = values == NULL ? NULL : PyList_AsTuple(values);
    if (tuple != NULL && *names != NULL)
        all = PySequence_Concat(args, tuple);
    Py_XDECREF(values);
    Py_XDECREF(keys);
    Py_XDECREF(tuple);
    return all;
}

static int add_entry(Dispatcher *self, Entry *entry) {
    Table *table, *old;
    int status = -1;
    LOCKED;
    old = self->table;
    table = with_entry(old, entry, MOST_ENTRIES);
    if (table != NULL) {
        self->table = table;
        status = 0;
    }
    UNLOCKED;
    if (table != NULL)
        Py_XDECREF(old);
    return status;
}

static int register_flat(Dispatcher *self, const Arguments *arguments, const Flat *flat, PyObject *numbered,
                         PyObject *program) {
    Table *table = current_table(self);
    Entry *known = find_entry(table, flat); /* another thread was faster */
    Py_XDECREF(table);
    if (known != NULL || PyErr_Occurred()) {
        Py_XDECREF(known);
        return PyErr_Occurred() ? -1 : 0;
    }
    int *order = PyMem_Malloc((flat->leaf_count + 1) * sizeof(int));
    Entry *entry = NULL;
    if (order != NULL && number_leaves(arguments, numbered, order, flat->leaf_count) == 0)
        entry = new_entry(flat, order, program);
    PyMem_Free(order);
    int status = entry == NULL ? -1 : add_entry(self, entry);
    Py_XDECREF(entry);
    return status;
}

/* remember(args, kwargs, numbered, program): calls with such arguments run the program from now on. */
static PyObject *remember(Dispatcher *self, PyObject *parameters) {
    PyObject *args, *kwargs, *numbered, *program, *names;
    if (!PyArg_ParseTuple(parameters, "O!O!O!O!", &PyTuple_Type, &args, &PyDict_Type, &kwargs, &PyTuple_Type, &numbered,
                          &program_type, &program))
        return NULL;
    PyObject *all = with_keywords(args, kwargs, &names);
    Flat flat;
    int status = -1;
    if (all != NULL) {
        Arguments arguments = {((PyTupleObject *)all)->ob_item, PyTuple_GET_SIZE(args), names, self->numbers,
                               self->static_names};
        Outcome outcome = flatten(&flat, &arguments);
        status = outcome == FLAT ? register_flat(self, &arguments, &flat, numbered, program) : outcome == FAILED ? -1 : 0;
        drop_flat(&flat);
    }
    Py_XDECREF(all);
    Py_XDECREF(names);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* answer_by(paths): calls are looked for in these FastPaths, and else Python's. */
static PyObject *answer_by(Dispatcher *self, PyObject *paths) {
    PyObject *old;
    bool right = PyTuple_CheckExact(paths);
    for (Py_ssize_t k = 0; right && k < PyTuple_GET_SIZE(paths); k++)
        right = Py_IS_TYPE(PyTuple_GET_ITEM(paths, k), &fast_path_type);
    if (!right) {
        PyErr_SetString(PyExc_TypeError, "calls are answered by a tuple of FastPaths");
        return NULL;
    }
    LOCKED;
    old = self->paths;
    self->paths = Py_NewRef(paths);
    self->vectorcall = dispatch_to_path;
    UNLOCKED;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *forget(Dispatcher *self, PyObject *ignored) {
    Table *old;
    LOCKED;
    old = self->table;
    self->table = NULL;
    UNLOCKED;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *known_calls(Dispatcher *self, PyObject *ignored) {
    Table *table = current_table(self);
    PyObject *count = PyLong_FromSsize_t(table_size(table));
    Py_XDECREF(table);
    return count;
}

/* -- the Python type */

static int dispatcher_init(Dispatcher *self, PyObject *args, PyObject *kwargs) {
    PyObject *numbers, *names;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &numbers, &PyTuple_Type, &names))
        return -1;
    Py_XSETREF(self->numbers, Py_NewRef(numbers));
    Py_XSETREF(self->static_names, Py_NewRef(names));
    return 0;
}

static PyObject *dispatcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Dispatcher *self = (Dispatcher *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = dispatch;
    self->numbers = PyTuple_New(0);
    self->static_names = PyTuple_New(0);
    return (PyObject *)self;
}

static int dispatcher_traverse(Dispatcher *self, visitproc visit, void *arg) {
    Py_VISIT(self->table);
    Py_VISIT(self->paths);
    return 0;
}

static int dispatcher_clear(Dispatcher *self) {
    Py_CLEAR(self->table);
    Py_CLEAR(self->paths);
    return 0;
}

static void dispatcher_dealloc(Dispatcher *self) {
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->table);
    Py_CLEAR(self->paths);
    Py_CLEAR(self->numbers);
    Py_CLEAR(self->static_names);
    Py_TYPE(self)->tp_free(self);
}

/* As a function does, a jitted one becomes a method where it is found on a class. */
static PyObject *bind(PyObject *self, PyObject *instance, PyObject *owner) {
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static PyMethodDef methods[] = {
    {"_remember", (PyCFunction)remember, METH_VARARGS, "Run a program for such arguments from now on."},
    {"_answer_by", (PyCFunction)answer_by, METH_O, "Look for calls in these FastPaths, and pass the others to Python."},
    {"_forget", (PyCFunction)forget, METH_NOARGS, "Forget every program."},
    {"_known_calls", (PyCFunction)known_calls, METH_NOARGS, "How many signatures are answered without Python."},
    {NULL},
};

static PyTypeObject dispatcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Dispatcher",
    .tp_doc = "A function that looks its program up by the arguments.",
    .tp_basicsize = sizeof(Dispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Dispatcher, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = bind,
    .tp_new = dispatcher_new,
    .tp_init = (initproc)dispatcher_init,
    .tp_dealloc = (destructor)dispatcher_dealloc,
    .tp_traverse = (traverseproc)dispatcher_traverse,
    .tp_clear = (inquiry)dispatcher_clear,
    .tp_methods = methods,
};

/* Before Python 3.12 a class made in Python is called through a tuple of its arguments, whatever its base can do. */
static PyObject *call_directly(PyObject *module, PyObject *type) {
    if (PyType_Check(type) && ((PyTypeObject *)type)->tp_call == PyVectorcall_Call) {
        ((PyTypeObject *)type)->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
        PyType_Modified((PyTypeObject *)type);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"call_directly", call_directly, METH_O, "Let the instances of a subclass of Dispatcher be called without a tuple."},
    {NULL},
};

int add_dispatch(PyObject *module) {
    call_name = PyUnicode_InternFromString("_in_python");
    missed_name = PyUnicode_InternFromString("_missed");
    if (call_name == NULL || missed_name == NULL || add_leaf_types(module) < 0 || PyType_Ready(&entry_type) < 0 ||
        PyType_Ready(&table_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return add_type(module, &dispatcher_type);
}
