/* FastPath: how an accelerated function answers calls whose arguments are like those of an earlier one, without Python.

   NumPy answers where it was found to be faster: the function itself is called. Else a program does, if what the trace read from
   outside is as it was: arguments become its inputs, its last results tell of events, others are written to the caller's arrays,
   and the rest becomes the results' tree. fuser/interop/fast_path.py makes these, and says which calls have none. */
#include "fast_path.h"

typedef enum { ARRAY, DENSE_ARRAY, NUMBER, VALUE } Test;

typedef struct {
    int test;
    PyObject *expected;   /* of a number its type, else the value */
    PyArray_Descr *dtype; /* of an array */
    int ndim;
    npy_intp *dims;
} Argument;

typedef enum { OUTPUT, MADE, SCALAR, PYTHON_NUMBER, CONSTANT, PASSED } LeafKind;

typedef struct {
    int kind, number;  /* of the program's output, or of the argument that is passed back */
    PyObject *object;  /* what makes the result of the output; a constant; functions that make a view of the argument */
} Leaf;

typedef struct {
    int argument, output; /* -1: a constant is written */
    PyObject *reads, *index, *value;
    int ndim; /* of the value; the output may be the same elements in another shape */
    npy_intp *dims;
} Assignment;

struct FastPath {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    bool retired;
    int argument_count, input_count, first_flag, leaf_count, assignment_count;
    Argument *arguments;
    PyObject *function; /* NULL where a program answers */
    PyObject *guards, *declined, *event, *errors, *default_errors, *template;
    int64_t backend;
    Executable *executable;
    int *inputs; /* arguments by number; -1 - n: what the guards capture */
    Leaf *leaves;
    Assignment *assignments;
};

#define MOST_INPUTS 32

/* -- whether a call is the path's: 1, 0, or -1 with an exception set */

static bool same_array(PyObject *object, const Argument *argument) {
    if (!PyArray_CheckExact(object))
        return false;
    PyArrayObject *array = (PyArrayObject *)object;
    if (argument->test == DENSE_ARRAY && !PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED))
        return false;
    return PyArray_NDIM(array) == argument->ndim &&
           PyArray_CompareLists(PyArray_DIMS(array), argument->dims, argument->ndim) &&
           (PyArray_DESCR(array) == argument->dtype || PyArray_EquivTypes(PyArray_DESCR(array), argument->dtype));
}

static int fits(const FastPath *path, PyObject *const *args, Py_ssize_t count) {
    if (path->retired || count != path->argument_count)
        return 0;
    for (int k = 0; k < count; k++) {
        const Argument *argument = &path->arguments[k];
        int same = 1;
        if (argument->test == NUMBER)
            same = (PyObject *)Py_TYPE(args[k]) == argument->expected;
        else if (argument->test != VALUE)
            same = same_array(args[k], argument);
        else if (args[k] != argument->expected)
            same = Py_TYPE(args[k]) != Py_TYPE(argument->expected)
                       ? 0
                       : PyObject_RichCompareBool(args[k], argument->expected, Py_EQ);
        if (same <= 0)
            return same;
    }
    return 1;
}

static int default_state(const FastPath *path) {
    PyObject *errors;
    if (backend_number() != path->backend)
        return 0;
    if (PyContextVar_Get(path->errors, NULL, &errors) < 0)
        return -1;
    Py_XDECREF(errors);
    return errors == path->default_errors;
}

/* Whether nobody else reads the memory that is written. */
static bool writable(const FastPath *path, PyObject *const *args) {
    for (const Assignment *each = path->assignments; each < path->assignments + path->assignment_count; each++) {
        PyArrayObject *target = (PyArrayObject *)args[each->argument];
        if (!PyArray_ISWRITEABLE(target))
            return false;
        const char *start = PyArray_DATA(target), *end = start + PyArray_NBYTES(target);
        for (int k = 0; k < path->argument_count; k++) {
            if (k == each->argument || !PyArray_Check(args[k]))
                continue;
            const char *other = PyArray_DATA((PyArrayObject *)args[k]);
            if (start < other + PyArray_NBYTES((PyArrayObject *)args[k]) && other < end)
                return false;
        }
    }
    return true;
}

/* -- the program's inputs and outputs */

static int put_number(Slot *slot, PyObject *object, char *bytes) {
    if (PyFloat_CheckExact(object)) {
        double value = PyFloat_AS_DOUBLE(object);
        memcpy(bytes, &value, sizeof value);
    } else if (PyComplex_CheckExact(object)) {
        Py_complex value = PyComplex_AsCComplex(object);
        memcpy(bytes, &value, sizeof value);
    } else {
        PyArray_ScalarAsCtype(object, bytes);
    }
    slot->data = bytes;
    return 1;
}

static int put_captured(const FastPath *path, Slot *slot, PyObject *object, int input, char *bytes) {
    const SlotType *type = &path->executable->types[path->executable->inputs[input]];
    if (PyFloat_CheckExact(object) && type->ndim == 0 && type->dtype->type_num == NPY_DOUBLE)
        return put_number(slot, object, bytes);
    if (!PyArray_CheckExact(object) || !same_type(object, type))
        return 0;
    return put_input(slot, Py_NewRef(object)) < 0 ? -1 : 1;
}

/* 1, or with no references taken 0 (a captured value is not what the program takes) or -1. */
static int put_inputs(const FastPath *path, PyObject *const *args, PyObject *captured, Slot *inputs, char (*numbers)[16]) {
    int status = 1, k = 0;
    for (; k < path->input_count && status > 0; k++) {
        int from = path->inputs[k];
        inputs[k] = (Slot){0};
        if (from < 0)
            status = put_captured(path, &inputs[k], PyTuple_GET_ITEM(captured, -1 - from), k, numbers[k]);
        else if (path->arguments[from].test == NUMBER)
            status = put_number(&inputs[k], args[from], numbers[k]);
        else
            status = put_input(&inputs[k], Py_NewRef(args[from])) < 0 ? -1 : 1;
    }
    for (; status <= 0 && k > 0; k--)
        Py_CLEAR(inputs[k - 1].object);
    return status;
}

static bool told_of_event(const FastPath *path, PyObject **outputs) {
    for (int k = path->first_flag; k < path->executable->output_count; k++) {
        const char *flag = PyArray_DATA((PyArrayObject *)outputs[k]);
        for (npy_intp n = 0; n < PyArray_SIZE((PyArrayObject *)outputs[k]); n++)
            if (flag[n])
                return true;
    }
    return false;
}

/* -- effects and results */

static PyObject *read_by(PyObject *array, PyObject *reads) {
    array = Py_NewRef(array);
    for (Py_ssize_t k = 0; array != NULL && k < PyTuple_GET_SIZE(reads); k++)
        Py_SETREF(array, PyObject_CallOneArg(PyTuple_GET_ITEM(reads, k), array));
    return array;
}

static PyObject *value_of(const Assignment *assignment, PyObject **outputs) {
    if (assignment->output < 0)
        return Py_NewRef(assignment->value);
    PyArrayObject *array = (PyArrayObject *)outputs[assignment->output];
    PyArray_Dims shape = {assignment->dims, assignment->ndim};
    if (PyArray_NDIM(array) == shape.len && PyArray_CompareLists(PyArray_DIMS(array), shape.ptr, shape.len))
        return Py_NewRef((PyObject *)array);
    return PyArray_Newshape(array, &shape, NPY_CORDER);
}

static int write_all(const FastPath *path, PyObject *const *args, PyObject **outputs) {
    int status = 0;
    for (int k = 0; k < path->assignment_count && status == 0; k++) {
        const Assignment *each = &path->assignments[k];
        PyObject *array = read_by(args[each->argument], each->reads);
        PyObject *value = array == NULL ? NULL : value_of(each, outputs);
        status = value == NULL ? -1 : PyObject_SetItem(array, each->index, value);
        Py_XDECREF(array);
        Py_XDECREF(value);
    }
    return status;
}

static PyObject *leaf_of(const Leaf *leaf, PyObject *const *args, PyObject **outputs) {
    PyArrayObject *output = leaf->kind < CONSTANT ? (PyArrayObject *)outputs[leaf->number] : NULL;
    switch (leaf->kind) {
    case OUTPUT:
        return Py_NewRef((PyObject *)output);
    case MADE:
        return PyObject_CallOneArg(leaf->object, (PyObject *)output);
    case SCALAR:
        return PyArray_ToScalar(PyArray_DATA(output), output);
    case PYTHON_NUMBER:
        return PyArray_GETITEM(output, PyArray_DATA(output));
    case CONSTANT:
        return Py_NewRef(leaf->object);
    default:
        return read_by(args[leaf->number], leaf->object);
    }
}

static PyObject *tree_of(const FastPath *path, PyObject *const *args, PyObject **outputs) {
    PyObject *leaves[path->leaf_count + 1], *tree = NULL;
    int made = 0;
    while (made < path->leaf_count && (leaves[made] = leaf_of(&path->leaves[made], args, outputs)) != NULL)
        made++;
    if (made == path->leaf_count)
        tree = build_tree(path->template, leaves);
    while (made-- > 0)
        Py_DECREF(leaves[made]);
    return tree;
}

/* -- the call */

/* The call run in NumPy, by Python, which counts events. */
static PyObject *decline(const FastPath *path, PyObject *const *args) {
    return PyObject_Vectorcall(path->declined, args, path->argument_count, NULL);
}

static PyObject *finish(const FastPath *path, PyObject *const *args, PyObject **outputs) {
    PyObject *result = NULL;
    if (told_of_event(path, outputs))
        result = decline(path, args);
    else if (write_all(path, args, outputs) == 0)
        result = tree_of(path, args, outputs);
    for (int k = 0; k < path->executable->output_count; k++)
        Py_DECREF(outputs[k]);
    return result;
}

static int run(const FastPath *path, PyObject *const *args, PyObject *captured, PyObject **result) {
    if (!writable(path, args)) {
        *result = decline(path, args);
        return 1;
    }
    Slot inputs[MOST_INPUTS];
    _Alignas(16) char numbers[MOST_INPUTS][16];
    int status = put_inputs(path, args, captured, inputs, numbers);
    if (status <= 0)
        return status < 0;
    PyObject *outputs[path->executable->output_count + 1];
    if (run_executable(path->executable, inputs, outputs) == 0) {
        *result = finish(path, args, outputs);
    } else if (PyErr_ExceptionMatches(path->event)) {
        PyErr_Clear();
        *result = decline(path, args);
    }
    return 1;
}

/* What the guards capture, NULL with an exception set, or None where something outside has changed. */
static PyObject *captured_by(const FastPath *path, PyObject *const *args) {
    PyObject *leaves = PyTuple_New(path->argument_count);
    for (int k = 0; leaves != NULL && k < path->argument_count; k++)
        PyTuple_SET_ITEM(leaves, k, Py_NewRef(args[k]));
    PyObject *captured = leaves == NULL ? NULL : PyObject_CallOneArg(path->guards, leaves);
    Py_XDECREF(leaves);
    return captured;
}

int take_fast_path(FastPath *path, PyObject *const *args, Py_ssize_t count, PyObject **result) {
    *result = NULL;
    int status = fits(path, args, count);
    if (status <= 0)
        return status < 0;
    if (path->function != NULL) {
        *result = PyObject_Vectorcall(path->function, args, count, NULL);
        return 1;
    }
    status = default_state(path);
    if (status <= 0)
        return status < 0;
    PyObject *captured = captured_by(path, args);
    status = captured == NULL ? 1 : captured == Py_None ? 0 : run(path, args, captured, result);
    Py_XDECREF(captured);
    return status;
}

/* path(*args): the call's result, or the path itself where Python must look at it. */
static PyObject *call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names) {
    PyObject *result = NULL;
    if (names != NULL || !take_fast_path((FastPath *)self, args, PyVectorcall_NARGS(flags), &result))
        return Py_NewRef(self);
    return result;
}

/* -- the Python type */

static int read_dims(PyObject *shape, int *ndim, npy_intp **dims) {
    *ndim = (int)PyTuple_GET_SIZE(shape);
    *dims = PyMem_Malloc((*ndim + 1) * sizeof(npy_intp));
    if (*dims == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int k = 0; k < *ndim; k++)
        (*dims)[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    return PyErr_Occurred() == NULL ? 0 : -1;
}

static int read_argument(Argument *argument, PyObject *item) {
    PyObject *expected, *shape;
    if (!PyArg_ParseTuple(item, "iOO!", &argument->test, &expected, &PyTuple_Type, &shape))
        return -1;
    argument->expected = Py_NewRef(expected);
    if (argument->test > DENSE_ARRAY)
        return 0;
    if (!PyArray_DescrCheck(expected)) {
        PyErr_SetString(PyExc_TypeError, "an array is told by its dtype");
        return -1;
    }
    argument->dtype = (PyArray_Descr *)expected; /* `expected` holds it */
    return read_dims(shape, &argument->ndim, &argument->dims);
}

static int read_leaf(const FastPath *path, Leaf *leaf, PyObject *item) {
    PyObject *object;
    if (!PyArg_ParseTuple(item, "iiO", &leaf->kind, &leaf->number, &object))
        return -1;
    leaf->object = Py_NewRef(object);
    int most = leaf->kind == PASSED ? path->argument_count : leaf->kind == CONSTANT ? 1 : path->executable->output_count;
    if (leaf->number < 0 || leaf->number >= most || (leaf->kind == PASSED && !PyTuple_Check(object))) {
        PyErr_SetString(PyExc_ValueError, "a result is an output, an argument or a constant");
        return -1;
    }
    return 0;
}

static int read_assignment(const FastPath *path, Assignment *each, PyObject *item) {
    PyObject *reads, *index, *value, *shape;
    if (!PyArg_ParseTuple(item, "iO!OiOO!", &each->argument, &PyTuple_Type, &reads, &index, &each->output, &value,
                          &PyTuple_Type, &shape))
        return -1;
    each->reads = Py_NewRef(reads);
    each->index = Py_NewRef(index);
    each->value = Py_NewRef(value);
    if (read_dims(shape, &each->ndim, &each->dims) < 0)
        return -1;
    bool known = each->argument >= 0 && each->argument < path->argument_count &&
                 path->arguments[each->argument].test == DENSE_ARRAY;
    if (!known || each->output >= path->executable->output_count) {
        PyErr_SetString(PyExc_ValueError, "outputs are written to dense array arguments");
        return -1;
    }
    return 0;
}

static void *rows_of(PyObject *tuple, size_t size, int *count) {
    *count = (int)PyTuple_GET_SIZE(tuple);
    void *rows = PyMem_Calloc(*count + 1, size);
    if (rows == NULL)
        PyErr_NoMemory();
    return rows;
}

static int read_arguments(FastPath *self, PyObject *arguments) {
    self->arguments = rows_of(arguments, sizeof(Argument), &self->argument_count);
    for (int k = 0; self->arguments != NULL && k < self->argument_count; k++)
        if (read_argument(&self->arguments[k], PyTuple_GET_ITEM(arguments, k)) < 0)
            return -1;
    return self->arguments == NULL ? -1 : 0;
}

static int read_inputs_of(FastPath *self, PyObject *inputs) {
    self->inputs = rows_of(inputs, sizeof(int), &self->input_count);
    if (self->inputs == NULL)
        return -1;
    for (int k = 0; k < self->input_count; k++) {
        self->inputs[k] = (int)PyLong_AsLong(PyTuple_GET_ITEM(inputs, k));
        int from = self->inputs[k];
        if (from >= self->argument_count || (from >= 0 && (self->arguments[from].test == ARRAY || self->arguments[from].test == VALUE))) {
            PyErr_SetString(PyExc_ValueError, "inputs are dense arrays, numbers or what guards capture");
            return -1;
        }
    }
    if (PyErr_Occurred() != NULL)
        return -1;
    if (self->input_count > MOST_INPUTS || self->input_count != self->executable->input_count) {
        PyErr_SetString(PyExc_ValueError, "the inputs are not the executable's");
        return -1;
    }
    return 0;
}

static int read_program(FastPath *self, PyObject *program) {
    PyObject *inputs, *leaves, *assignments;
    if (!PyArg_ParseTuple(program, "O!O!iO!O!OOOOOOL", &executable_type, &self->executable, &PyTuple_Type, &inputs,
                          &self->first_flag, &PyTuple_Type, &leaves, &PyTuple_Type, &assignments, &self->template,
                          &self->guards, &self->declined, &self->event, &self->errors, &self->default_errors,
                          &self->backend)) {
        self->executable = NULL;
        self->template = self->guards = self->declined = self->event = self->errors = self->default_errors = NULL;
        return -1;
    }
    PyObject *held[] = {(PyObject *)self->executable, self->template, self->guards,        self->declined,
                        self->event,                  self->errors,   self->default_errors};
    for (size_t k = 0; k < sizeof held / sizeof *held; k++)
        Py_INCREF(held[k]);
    if (!PyContextVar_CheckExact(self->errors) || !buildable_tree(self->template) || self->first_flag < 0) {
        PyErr_SetString(PyExc_ValueError, "this program has no fast path");
        return -1;
    }
    if (read_inputs_of(self, inputs) < 0 ||
        (self->leaves = rows_of(leaves, sizeof(Leaf), &self->leaf_count)) == NULL ||
        (self->assignments = rows_of(assignments, sizeof(Assignment), &self->assignment_count)) == NULL)
        return -1;
    for (int k = 0; k < self->leaf_count; k++)
        if (read_leaf(self, &self->leaves[k], PyTuple_GET_ITEM(leaves, k)) < 0)
            return -1;
    for (int k = 0; k < self->assignment_count; k++)
        if (read_assignment(self, &self->assignments[k], PyTuple_GET_ITEM(assignments, k)) < 0)
            return -1;
    return 0;
}

/* FastPath(arguments, function or None, program or None) */
static PyObject *fast_path_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *arguments, *function, *program;
    if (!PyArg_ParseTuple(args, "O!OO", &PyTuple_Type, &arguments, &function, &program))
        return NULL;
    FastPath *self = (FastPath *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = call;
    self->function = function == Py_None ? NULL : Py_NewRef(function);
    if (read_arguments(self, arguments) < 0 || (self->function == NULL && read_program(self, program) < 0))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int fast_path_traverse(FastPath *self, visitproc visit, void *arg) {
    Py_VISIT(self->function);
    Py_VISIT(self->executable);
    Py_VISIT(self->template);
    Py_VISIT(self->guards);
    Py_VISIT(self->declined);
    for (int k = 0; self->arguments != NULL && k < self->argument_count; k++)
        Py_VISIT(self->arguments[k].expected);
    for (int k = 0; self->leaves != NULL && k < self->leaf_count; k++)
        Py_VISIT(self->leaves[k].object);
    for (int k = 0; self->assignments != NULL && k < self->assignment_count; k++) {
        Py_VISIT(self->assignments[k].reads);
        Py_VISIT(self->assignments[k].index);
        Py_VISIT(self->assignments[k].value);
    }
    return 0;
}

static int fast_path_clear(FastPath *self) {
    self->retired = true;
    Py_CLEAR(self->function);
    Py_CLEAR(self->guards);
    Py_CLEAR(self->declined);
    return 0;
}

static void free_rows(FastPath *self) {
    for (int k = 0; self->arguments != NULL && k < self->argument_count; k++) {
        Py_XDECREF(self->arguments[k].expected);
        PyMem_Free(self->arguments[k].dims);
    }
    for (int k = 0; self->leaves != NULL && k < self->leaf_count; k++)
        Py_XDECREF(self->leaves[k].object);
    for (int k = 0; self->assignments != NULL && k < self->assignment_count; k++) {
        Py_XDECREF(self->assignments[k].reads);
        Py_XDECREF(self->assignments[k].index);
        Py_XDECREF(self->assignments[k].value);
        PyMem_Free(self->assignments[k].dims);
    }
    PyMem_Free(self->arguments);
    PyMem_Free(self->leaves);
    PyMem_Free(self->assignments);
    PyMem_Free(self->inputs);
}

static void fast_path_dealloc(FastPath *self) {
    PyObject_GC_UnTrack(self);
    fast_path_clear(self);
    free_rows(self);
    Py_XDECREF((PyObject *)self->executable);
    Py_XDECREF(self->template);
    Py_XDECREF(self->event);
    Py_XDECREF(self->errors);
    Py_XDECREF(self->default_errors);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *retire(FastPath *self, PyObject *ignored) {
    self->retired = true;
    Py_RETURN_NONE;
}

static PyMemberDef members[] = {
    {"retired", T_BOOL, offsetof(FastPath, retired), READONLY, "Whether no call is this path's any more."},
    {NULL},
};

static PyMethodDef methods[] = {
    {"retire", (PyCFunction)retire, METH_NOARGS, "No call is this path's any more."},
    {NULL},
};

PyTypeObject fast_path_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.FastPath",
    .tp_doc = "How calls with such arguments are answered without Python.",
    .tp_basicsize = sizeof(FastPath),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(FastPath, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = fast_path_new,
    .tp_dealloc = (destructor)fast_path_dealloc,
    .tp_traverse = (traverseproc)fast_path_traverse,
    .tp_clear = (inquiry)fast_path_clear,
    .tp_members = members,
    .tp_methods = methods,
};

int add_fast_path(PyObject *module) { return add_type(module, &fast_path_type); }
