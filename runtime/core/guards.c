/* Guards: whether what a trace read from outside of its function is as it was then. fuser/interop/guards.py says what the nodes
   are and does the same in Python. */
#include "core.h"

typedef enum { HELD, ARGUMENT, ITEM, INDEX, ATTRIBUTE, CELL } Reach;
typedef enum { ANY, MISSING, IS, EQUAL, BITS, LENGTH, KEYS, ARRAY, CONTENTS, TYPE, CODE, SAME, HOLDS } Test;

typedef struct {
    int reach, parent, test;
    Py_ssize_t position; /* of an argument or item */
    PyObject *key, *expected;
    Py_ssize_t length; /* of a sequence; of SAME the other node */
    PyArray_Descr *dtype;
    int ndim;
    npy_intp *dims, *strides;
} Node;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    int count, capture_count;
    Node *nodes;
    int *captures;
} Guards;

#define VALUES_INLINE 64

/* -- reaching: new references, NULL without an exception for what is not there */

static PyObject *attribute(PyObject *parent, PyObject *name) {
    PyObject *value = PyType_Check(parent) ? PyObject_GetAttr(parent, name) : PyObject_GenericGetAttr(parent, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return value;
}

static PyObject *element(PyObject *parent, Py_ssize_t position) {
    if (PyTuple_Check(parent))
        return position < PyTuple_GET_SIZE(parent) ? Py_NewRef(PyTuple_GET_ITEM(parent, position)) : NULL;
    if (PyList_Check(parent))
        return position < PyList_GET_SIZE(parent) ? Py_NewRef(PyList_GET_ITEM(parent, position)) : NULL;
    return NULL;
}

static PyObject *reached(const Node *node, PyObject **values, PyObject *leaves) {
    PyObject *parent = node->parent < 0 ? NULL : values[node->parent];
    switch (node->reach) {
    case HELD:
        return Py_NewRef(node->key);
    case ARGUMENT:
        return element(leaves, node->position);
    case ITEM:
        if (!PyDict_Check(parent))
            return NULL;
        return Py_XNewRef(PyDict_GetItemWithError(parent, node->key));
    case INDEX:
        return element(parent, node->position);
    case ATTRIBUTE:
        return attribute(parent, node->key);
    default:
        return PyCell_Check(parent) ? Py_XNewRef(PyCell_GET(parent)) : NULL;
    }
}

/* -- tests: 1, 0, or -1 with an exception set */

static int equal(PyObject *value, PyObject *expected) {
    if (value == expected)
        return 1;
    if (Py_TYPE(value) != Py_TYPE(expected))
        return 0;
    return PyObject_RichCompareBool(value, expected, Py_EQ);
}

static bool same_bits(PyObject *value, PyObject *expected) {
    if (!PyFloat_CheckExact(value))
        return false;
    double number = PyFloat_AS_DOUBLE(value);
    return memcmp(&number, PyBytes_AS_STRING(expected), sizeof number) == 0;
}

static bool same_length(PyObject *value, const Node *node) {
    if ((PyObject *)Py_TYPE(value) != node->expected)
        return false;
    return (PyTuple_Check(value) || PyList_Check(value)) && PySequence_Fast_GET_SIZE(value) == node->length;
}

static int same_keys(PyObject *value, PyObject *expected) {
    PyObject *keys = PyTuple_GET_ITEM(expected, 1), *key, *item;
    if ((PyObject *)Py_TYPE(value) != PyTuple_GET_ITEM(expected, 0) || PyDict_GET_SIZE(value) != PyTuple_GET_SIZE(keys))
        return 0;
    Py_ssize_t position = 0, number = 0;
    while (PyDict_Next(value, &position, &key, &item)) {
        int same = number < PyTuple_GET_SIZE(keys) ? equal(key, PyTuple_GET_ITEM(keys, number++)) : 0;
        if (same <= 0)
            return same;
    }
    return 1;
}

static bool same_kind(PyObject *value, const Node *node) {
    if (!PyArray_CheckExact(value))
        return false;
    PyArrayObject *array = (PyArrayObject *)value;
    if (PyArray_NDIM(array) != node->ndim || !PyArray_CompareLists(PyArray_DIMS(array), node->dims, node->ndim))
        return false;
    return PyArray_DESCR(array) == node->dtype || PyArray_EquivTypes(PyArray_DESCR(array), node->dtype);
}

static bool same_array(PyObject *value, const Node *node) {
    return same_kind(value, node) &&
           PyArray_CompareLists(PyArray_STRIDES((PyArrayObject *)value), node->strides, node->ndim);
}

static int same_contents(PyObject *value, const Node *node) {
    if (!same_kind(value, node))
        return 0;
    PyArrayObject *dense = PyArray_GETCONTIGUOUS((PyArrayObject *)value);
    if (dense == NULL)
        return -1;
    int same = memcmp(PyArray_DATA(dense), PyBytes_AS_STRING(node->expected), PyArray_NBYTES(dense)) == 0;
    Py_DECREF(dense);
    return same;
}

static int told(PyObject *function, PyObject *value) {
    PyObject *answer = PyObject_CallOneArg(function, value);
    int truth = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return truth;
}

static int holds(const Node *node, PyObject *value, PyObject **values) {
    if (node->test == MISSING || value == NULL)
        return node->test == MISSING && value == NULL;
    switch (node->test) {
    case IS:
        return value == node->expected;
    case EQUAL:
        return equal(value, node->expected);
    case BITS:
        return same_bits(value, node->expected);
    case LENGTH:
        return same_length(value, node);
    case KEYS:
        return same_keys(value, node->expected);
    case ARRAY:
        return same_array(value, node);
    case CONTENTS:
        return same_contents(value, node);
    case TYPE:
        return (PyObject *)Py_TYPE(value) == node->expected;
    case CODE:
        return PyFunction_Check(value) && PyFunction_GET_CODE(value) == node->expected;
    case SAME:
        return value == values[node->length];
    case HOLDS:
        return told(node->expected, value);
    default:
        return 1;
    }
}

/* -- the check */

static PyObject *captured(const Guards *self, PyObject **values) {
    PyObject *result = PyTuple_New(self->capture_count);
    for (int k = 0; result != NULL && k < self->capture_count; k++)
        PyTuple_SET_ITEM(result, k, Py_NewRef(values[self->captures[k]]));
    return result;
}

/* guards(leaves): the captured values, or None where a test fails. */
static PyObject *check(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Guards *self = (Guards *)object;
    if (PyVectorcall_NARGS(flags) != 1 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "guards take the leaves of a call");
        return NULL;
    }
    PyObject *some[VALUES_INLINE];
    PyObject **values = self->count <= VALUES_INLINE ? some : PyMem_Malloc(self->count * sizeof *values);
    if (values == NULL)
        return PyErr_NoMemory();
    int number = 0, status = 1;
    for (; number < self->count && status > 0; number++) {
        values[number] = reached(&self->nodes[number], values, args[0]);
        status = PyErr_Occurred() ? -1 : holds(&self->nodes[number], values[number], values);
    }
    PyObject *result = status < 0 ? NULL : status == 0 ? Py_NewRef(Py_None) : captured(self, values);
    for (int k = 0; k < number; k++)
        Py_XDECREF(values[k]);
    if (values != some)
        PyMem_Free(values);
    return result;
}

/* -- the Python type */

static int read_extents(PyObject *tuple, int ndim, npy_intp **extents) {
    *extents = PyMem_Malloc((ndim + 1) * sizeof(npy_intp));
    if (*extents == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int k = 0; k < ndim; k++)
        (*extents)[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, k));
    return PyErr_Occurred() ? -1 : 0;
}

/* An array's (dtype, shape, strides), or (dtype, shape, bytes). */
static int read_array(Node *node, PyObject *described) {
    PyObject *dtype, *shape, *last;
    if (!PyArg_ParseTuple(described, "O!O!O", &PyArrayDescr_Type, &dtype, &PyTuple_Type, &shape, &last))
        return -1;
    node->dtype = (PyArray_Descr *)Py_NewRef(dtype);
    node->ndim = (int)PyTuple_GET_SIZE(shape);
    if (read_extents(shape, node->ndim, &node->dims) < 0)
        return -1;
    if (node->test == CONTENTS)
        node->expected = Py_NewRef(last);
    return node->test == ARRAY ? read_extents(last, node->ndim, &node->strides) : 0;
}

static int read_expected(Node *node, PyObject *expected) {
    if (node->test == ARRAY || node->test == CONTENTS)
        return read_array(node, expected);
    if (node->test == LENGTH) {
        node->length = PyLong_AsSsize_t(PyTuple_GET_ITEM(expected, 1));
        expected = PyTuple_GET_ITEM(expected, 0);
    } else if (node->test == SAME) {
        node->length = PyLong_AsSsize_t(expected);
    }
    node->expected = Py_NewRef(expected);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_node(Guards *self, int number, PyObject *item) {
    Node *node = &self->nodes[number];
    PyObject *key, *expected;
    if (!PyArg_ParseTuple(item, "iiOiO", &node->reach, &node->parent, &key, &node->test, &expected))
        return -1;
    if (node->parent >= number || (node->parent < 0 && node->reach > ARGUMENT)) {
        PyErr_SetString(PyExc_ValueError, "a guard's node follows the one that it is reached from");
        return -1;
    }
    node->key = Py_NewRef(key);
    if (node->reach == INDEX || node->reach == ARGUMENT)
        node->position = PyLong_AsSsize_t(key);
    return PyErr_Occurred() ? -1 : read_expected(node, expected);
}

static int read_captures(Guards *self, PyObject *captures) {
    for (int k = 0; k < self->capture_count; k++) {
        self->captures[k] = (int)PyLong_AsLong(PyTuple_GET_ITEM(captures, k));
        if (self->captures[k] < 0 || self->captures[k] >= self->count) {
            PyErr_SetString(PyExc_ValueError, "guards capture the values of their nodes");
            return -1;
        }
    }
    return 0;
}

static PyObject *guards_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *nodes, *captures;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &nodes, &PyTuple_Type, &captures))
        return NULL;
    Guards *self = (Guards *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = check;
    Py_ssize_t count = PyTuple_GET_SIZE(nodes);
    self->nodes = PyMem_Calloc(count + 1, sizeof(Node));
    self->captures = PyMem_Calloc(PyTuple_GET_SIZE(captures) + 1, sizeof(int));
    if (self->nodes == NULL || self->captures == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->count = (int)count;
    self->capture_count = (int)PyTuple_GET_SIZE(captures);
    int status = read_captures(self, captures);
    for (int k = 0; status == 0 && k < count; k++)
        status = read_node(self, k, PyTuple_GET_ITEM(nodes, k));
    if (status < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int guards_traverse(Guards *self, visitproc visit, void *arg) {
    for (int k = 0; k < self->count; k++) {
        Py_VISIT(self->nodes[k].key);
        Py_VISIT(self->nodes[k].expected);
    }
    return 0;
}

static int guards_clear(Guards *self) {
    int count = self->count;
    self->count = 0;
    for (int k = 0; k < count; k++) {
        Py_CLEAR(self->nodes[k].key);
        Py_CLEAR(self->nodes[k].expected);
        Py_CLEAR(self->nodes[k].dtype);
        PyMem_Free(self->nodes[k].dims);
        PyMem_Free(self->nodes[k].strides);
    }
    return 0;
}

static void guards_dealloc(Guards *self) {
    PyObject_GC_UnTrack(self);
    guards_clear(self);
    PyMem_Free(self->nodes);
    PyMem_Free(self->captures);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject guards_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Guards",
    .tp_doc = "Whether what a trace read from outside is as it was.",
    .tp_basicsize = sizeof(Guards),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Guards, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = guards_new,
    .tp_dealloc = (destructor)guards_dealloc,
    .tp_traverse = (traverseproc)guards_traverse,
    .tp_clear = (inquiry)guards_clear,
};

int add_guards(PyObject *module) { return add_type(module, &guards_type); }
