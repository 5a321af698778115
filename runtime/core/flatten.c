/* From a call's arguments to leaves and tokens. */
#include "flatten.h"

#include <math.h>

enum { LEAF = 1, TENSOR, TUPLE, LIST, DICT, NONE, POSITIONAL, STATIC, KEYWORDS };

#define DEEPEST 64
#define TYPES 32

static npy_bool taken[TYPES];         /* dtypes that NumPy's arrays and numbers may have, by number */
static PyArray_Descr *narrow[TYPES];  /* and what those of 64 bits are without x64; else NULL */
static npy_bool numeric[TYPES]; /* dtypes that fuser.Array may have */
static PyObject *key_dtype;     /* of random keys, the one structured dtype */

/* -- growth */

static bool grow(void **block, void *first, Py_ssize_t *room, Py_ssize_t size) {
    Py_ssize_t wanted = 4 * *room;
    void *grown = PyMem_Malloc(wanted * size);
    if (grown == NULL)
        return false;
    memcpy(grown, *block, *room * size);
    if (*block != first)
        PyMem_Free(*block);
    *block = grown;
    *room = wanted;
    return true;
}

static bool grow_tokens(Flat *flat) {
    return grow((void **)&flat->tokens, flat->some_tokens, &flat->token_room, sizeof(int64_t));
}

static inline bool push(Flat *flat, int64_t token) {
    if (flat->token_count == flat->token_room && !grow_tokens(flat))
        return false;
    flat->tokens[flat->token_count++] = token;
    uint64_t mixed = (flat->hash ^ (uint64_t)token) * 0x9E3779B97F4A7C15u;
    flat->hash = mixed ^ (mixed >> 29);
    return true;
}

static inline Operand *next_leaf(Flat *flat) {
    if (flat->leaf_count == flat->leaf_room &&
        !grow((void **)&flat->leaves, flat->some_leaves, &flat->leaf_room, sizeof(Operand)))
        return NULL;
    Operand *leaf = &flat->leaves[flat->leaf_count++];
    leaf->object = NULL;
    leaf->foreign = false;
    return leaf;
}

static bool push_object(Flat *flat, PyObject *object, Py_hash_t hash) {
    if (flat->object_count == flat->object_room &&
        !grow((void **)&flat->objects, flat->some_objects, &flat->object_room, sizeof(PyObject *)))
        return false;
    flat->objects[flat->object_count++] = Py_NewRef(object);
    return push(flat, hash);
}

void drop_flat(Flat *flat) {
    for (Py_ssize_t k = 0; k < flat->leaf_count; k++)
        Py_XDECREF(flat->leaves[k].object);
    for (Py_ssize_t k = 0; k < flat->object_count; k++)
        Py_DECREF(flat->objects[k]);
    if (flat->tokens != flat->some_tokens)
        PyMem_Free(flat->tokens);
    if (flat->leaves != flat->some_leaves)
        PyMem_Free(flat->leaves);
    if (flat->objects != flat->some_objects)
        PyMem_Free(flat->objects);
}

/* -- leaves */

static Outcome push_type(Flat *flat, int number, bool weak_type, int ndim, const npy_intp *dims) {
    if (!push(flat, LEAF | (int64_t)weak_type << 8 | (int64_t)ndim << 16 | (int64_t)number << 32))
        return UNKNOWN;
    for (int k = 0; k < ndim; k++)
        if (!push(flat, dims[k]))
            return UNKNOWN;
    return FLAT;
}

/* One number for each dtype: NumPy has two types of the same size where C has int, long and long long. */
static int number_of(int type_number) {
    if (type_number == NPY_LONGLONG && sizeof(long) == sizeof(long long))
        return NPY_LONG;
    return type_number == NPY_ULONGLONG && sizeof(long) == sizeof(long long) ? NPY_ULONG : type_number;
}

static bool known_dtype(PyArrayObject *array) {
    int number = PyArray_TYPE(array);
    if (number < TYPES && numeric[number])
        return PyArray_ISNOTSWAPPED(array);
    if (number >= NPY_USERDEF)
        return true;
    PyArray_Descr *found = PyArray_DESCR(array);
    return number == NPY_VOID && key_dtype != NULL &&
           ((PyObject *)found == key_dtype || PyArray_EquivTypes(found, (PyArray_Descr *)key_dtype));
}

static Outcome push_tensor(Flat *flat, ArrayObject *array) {
    PyObject *shape = PyObject_GetAttrString(array->data, "shape");
    PyObject *dtype = shape == NULL ? NULL : PyObject_GetAttrString(array->data, "dtype");
    Outcome outcome = UNKNOWN;
    if (dtype != NULL && PyTuple_Check(shape)) {
        Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
        bool pushed = push(flat, TENSOR | (int64_t)array->weak_type << 8 | (int64_t)ndim << 16) &&
                      push(flat, (int64_t)(intptr_t)dtype) && push(flat, (int64_t)(intptr_t)array->dtype);
        for (Py_ssize_t k = 0; pushed && k < ndim; k++)
            pushed = push(flat, PyLong_AsLongLong(PyTuple_GET_ITEM(shape, k)));
        outcome = pushed ? FLAT : UNKNOWN;
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    if (PyErr_Occurred())
        PyErr_Clear();
    return PyErr_Occurred() ? UNKNOWN : outcome;
}

static Outcome push_device_array(Flat *flat, const ArrayObject *array) {
    const DeviceArray *data = (const DeviceArray *)array->data;
    Py_ssize_t ndim = Py_SIZE(data);
    bool pushed = push(flat, TENSOR | (int64_t)array->weak_type << 8 | (int64_t)ndim << 16) &&
                  push(flat, (int64_t)(intptr_t)data->dtype) && push(flat, (int64_t)(intptr_t)array->dtype);
    for (Py_ssize_t k = 0; pushed && k < ndim; k++)
        pushed = push(flat, data->dims[k]);
    return pushed ? FLAT : UNKNOWN;
}

static Outcome push_array(Flat *flat, ArrayObject *array) {
    if (array->deleted)
        return UNKNOWN;
    Operand *leaf = next_leaf(flat);
    if (leaf == NULL)
        return UNKNOWN;
    leaf->object = Py_NewRef((PyObject *)array);
    if (is_device_array(array->data))
        return push_device_array(flat, array);
    if (!PyArray_CheckExact(array->data))
        return PyArray_Check(array->data) ? UNKNOWN : push_tensor(flat, array);
    PyArrayObject *data = (PyArrayObject *)array->data;
    if (!known_dtype(data))
        return UNKNOWN;
    return push_type(flat, number_of(PyArray_TYPE(data)), array->weak_type, PyArray_NDIM(data), PyArray_DIMS(data));
}

#define NARROWED(wide, narrow)                                                                                         \
    for (npy_intp k = 0; k < count; k++)                                                                               \
    ((narrow *)to)[k] = (narrow)((const wide *)from)[k]

/* Numbers of 64 bits as those of 32: rounded, and integers without their upper half, as NumPy's casts do. */
static void narrowed(int number, const void *from, void *to, npy_intp count) {
    switch (number_of(number)) {
    case NPY_DOUBLE:
        NARROWED(double, float);
        break;
    case NPY_LONG:
        NARROWED(int64_t, int32_t);
        break;
    case NPY_ULONG:
        NARROWED(uint64_t, uint32_t);
        break;
    default: /* NPY_CDOUBLE */
        count *= 2;
        NARROWED(double, float);
    }
}

/* An array of NumPy's as kernels take it: in order, and without x64 in 32 bits instead of 64. NULL where memory is out. */
static PyArrayObject *as_taken(PyArrayObject *array) {
    bool ordered = PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    int number = PyArray_TYPE(array);
    PyArray_Descr *dtype = x64_enabled() ? NULL : narrow[number];
    array = (PyArrayObject *)(ordered ? Py_NewRef((PyObject *)array) : PyArray_NewCopy(array, NPY_CORDER));
    if (array == NULL || dtype == NULL)
        return array;
    PyArrayObject *found = (PyArrayObject *)new_ndarray(PyArray_NDIM(array), PyArray_DIMS(array), dtype, NULL);
    if (found != NULL)
        narrowed(number, PyArray_DATA(array), PyArray_DATA(found), PyArray_SIZE(array));
    Py_DECREF(array);
    return found;
}

static Outcome push_ndarray(Flat *flat, PyArrayObject *array) {
    int number = PyArray_TYPE(array);
    if (number >= TYPES || !taken[number] || !PyArray_ISNOTSWAPPED(array))
        return UNKNOWN;
    PyArrayObject *object = as_taken(array);
    Operand *leaf = object == NULL ? NULL : next_leaf(flat);
    if (leaf == NULL) {
        Py_XDECREF(object);
        PyErr_Clear(); /* Python asks for the same memory, and says better what it is for */
        return UNKNOWN;
    }
    leaf->object = (PyObject *)object;
    leaf->foreign = true;
    return push_type(flat, number_of(PyArray_TYPE(object)), false, PyArray_NDIM(object), PyArray_DIMS(object));
}

/* A number of NumPy's: like an array of rank 0, and by value. */
static Outcome push_scalar(Flat *flat, PyObject *object) {
    PyArray_Descr *dtype = PyArray_DescrFromScalar(object);
    int number = dtype == NULL ? TYPES : dtype->type_num;
    bool known = number < TYPES && taken[number] && (PyObject *)Py_TYPE(object) == (PyObject *)dtype->typeobj;
    Py_XDECREF(dtype);
    PyErr_Clear();
    Operand *leaf = known ? next_leaf(flat) : NULL;
    if (leaf == NULL)
        return UNKNOWN;
    _Alignas(16) char value[sizeof leaf->number];
    PyArray_ScalarAsCtype(object, value);
    PyArray_Descr *fewer = x64_enabled() ? NULL : narrow[number];
    if (fewer == NULL)
        memcpy(leaf->number, value, sizeof value);
    else
        narrowed(number, value, leaf->number, 1);
    return push_type(flat, number_of(fewer == NULL ? number : fewer->type_num), false, 0, NULL);
}

#define NUMBER(leaf, type, value)                                                                                      \
    do {                                                                                                               \
        type number = (type)(value);                                                                                   \
        memcpy((leaf)->number, &number, sizeof number);                                                                \
    } while (0)

static Outcome push_int(Flat *flat, Operand *leaf, PyObject *object, bool wide) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow || (!wide && (value > INT32_MAX || value < INT32_MIN)))
        return UNKNOWN;
    if (wide)
        NUMBER(leaf, int64_t, value);
    else
        NUMBER(leaf, int32_t, value);
    return push_type(flat, wide ? number_of(NPY_INT64) : NPY_INT32, true, 0, NULL);
}

static Outcome push_float(Flat *flat, Operand *leaf, double value, bool wide) {
    if (wide)
        NUMBER(leaf, double, value);
    else
        NUMBER(leaf, float, value);
    return push_type(flat, wide ? NPY_DOUBLE : NPY_FLOAT, true, 0, NULL);
}

static Outcome push_complex(Flat *flat, Operand *leaf, PyObject *object, bool wide) {
    double parts[2] = {PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)};
    float narrow[2] = {(float)parts[0], (float)parts[1]};
    if (wide)
        memcpy(leaf->number, parts, sizeof parts);
    else
        memcpy(leaf->number, narrow, sizeof narrow);
    return push_type(flat, wide ? NPY_CDOUBLE : NPY_CFLOAT, true, 0, NULL);
}

/* A Python number is an array of rank 0 and the default dtype; weak, bools excepted. */
static Outcome push_number(Flat *flat, PyObject *object) {
    bool wide = x64_enabled();
    PyTypeObject *type = Py_TYPE(object);
    if (type != &PyFloat_Type && type != &PyLong_Type && type != &PyBool_Type && type != &PyComplex_Type)
        return PyArray_IsScalar(object, Generic) ? push_scalar(flat, object) : UNKNOWN;
    Operand *leaf = next_leaf(flat);
    if (leaf == NULL)
        return UNKNOWN;
    if (type == &PyFloat_Type)
        return push_float(flat, leaf, PyFloat_AS_DOUBLE(object), wide);
    if (type == &PyLong_Type)
        return push_int(flat, leaf, object, wide);
    if (type == &PyComplex_Type)
        return push_complex(flat, leaf, object, wide);
    NUMBER(leaf, npy_bool, object == Py_True);
    return push_type(flat, NPY_BOOL, false, 0, NULL);
}

/* -- containers */

static Outcome push_tree(Flat *flat, PyObject *tree, int depth);

static Outcome push_dict(Flat *flat, PyObject *dict, int depth) {
    if (!push(flat, DICT | (int64_t)PyDict_GET_SIZE(dict) << 8))
        return UNKNOWN;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
        if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) /* whose hash runs no Python */
            return UNKNOWN;
        if (!push_object(flat, key, PyObject_Hash(key)))
            return UNKNOWN;
        Outcome outcome = push_tree(flat, value, depth);
        if (outcome != FLAT)
            return outcome;
    }
    return FLAT;
}

static Outcome push_sequence(Flat *flat, PyObject *sequence, int kind, int depth) {
    if (!push(flat, kind | (int64_t)PySequence_Fast_GET_SIZE(sequence) << 8))
        return UNKNOWN;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(sequence); k++) {
        Outcome outcome = push_tree(flat, PySequence_Fast_GET_ITEM(sequence, k), depth);
        if (outcome != FLAT)
            return outcome;
    }
    return FLAT;
}

static Outcome push_tree(Flat *flat, PyObject *tree, int depth) {
    PyTypeObject *type = Py_TYPE(tree);
    if (type == array_type)
        return push_array(flat, (ArrayObject *)tree);
    if (type == &PyArray_Type)
        return push_ndarray(flat, (PyArrayObject *)tree);
    if (tree == Py_None)
        return push(flat, NONE) ? FLAT : UNKNOWN;
    if (depth > DEEPEST)
        return UNKNOWN;
    if (type == &PyDict_Type)
        return push_dict(flat, tree, depth + 1);
    if (type == &PyTuple_Type)
        return push_sequence(flat, tree, TUPLE, depth + 1);
    return type == &PyList_Type ? push_sequence(flat, tree, LIST, depth + 1) : push_number(flat, tree);
}

/* -- arguments */

bool is_static(const Arguments *arguments, Py_ssize_t position) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(arguments->numbers); k++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(arguments->numbers, k));
        if (position == (number < 0 ? number + arguments->count : number))
            return true;
    }
    return false;
}

bool is_static_name(const Arguments *arguments, PyObject *name) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(arguments->static_names); k++) {
        PyObject *known = PyTuple_GET_ITEM(arguments->static_names, k);
        if (known == name || PyUnicode_Compare(known, name) == 0)
            return true;
    }
    return false;
}

/* What == does not tell apart: the types within a tuple, and the sign of zero. A nan, equal to nothing, is left to Python. */
static bool push_exactly(Flat *flat, PyObject *value) {
    if (!push(flat, (int64_t)(intptr_t)Py_TYPE(value)))
        return false;
    if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AS_DOUBLE(value);
        return number == number && push(flat, number == 0 && signbit(number));
    }
    if (PyTuple_CheckExact(value))
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(value); k++)
            if (!push_exactly(flat, PyTuple_GET_ITEM(value, k)))
                return false;
    return !PyComplex_CheckExact(value);
}

static Outcome push_static(Flat *flat, PyObject *value) {
    Py_hash_t hash = PyObject_Hash(value);
    if (hash == -1 && PyErr_Occurred()) {
        PyErr_Clear(); /* Python says it better */
        return UNKNOWN;
    }
    return push(flat, STATIC) && push_exactly(flat, value) && push_object(flat, value, hash) ? FLAT : UNKNOWN;
}

static Outcome push_keywords(Flat *flat, const Arguments *arguments) {
    Py_ssize_t count = arguments->names == NULL ? 0 : PyTuple_GET_SIZE(arguments->names);
    if (!push(flat, KEYWORDS | (int64_t)count << 8))
        return UNKNOWN;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *name = PyTuple_GET_ITEM(arguments->names, k), *value = arguments->args[arguments->count + k];
        if (!push_object(flat, name, PyObject_Hash(name)))
            return UNKNOWN;
        Outcome outcome = is_static_name(arguments, name) ? push_static(flat, value) : push_tree(flat, value, 0);
        if (outcome != FLAT)
            return outcome;
    }
    return FLAT;
}

Outcome flatten(Flat *flat, const Arguments *arguments) {
    flat->tokens = flat->some_tokens;
    flat->leaves = flat->some_leaves;
    flat->objects = flat->some_objects;
    flat->token_count = flat->leaf_count = flat->object_count = 0;
    flat->token_room = TOKENS_INLINE;
    flat->leaf_room = LEAVES_INLINE;
    flat->object_room = OBJECTS_INLINE;
    flat->hash = 0;
    if (!push(flat, x64_enabled() | backend_number() << 1) || !push(flat, POSITIONAL | (int64_t)arguments->count << 8))
        return UNKNOWN;
    bool statics = PyTuple_GET_SIZE(arguments->numbers) > 0;
    for (Py_ssize_t k = 0; k < arguments->count; k++) {
        PyObject *value = arguments->args[k];
        Outcome outcome = statics && is_static(arguments, k) ? push_static(flat, value) : push_tree(flat, value, 0);
        if (outcome != FLAT)
            return outcome;
    }
    return push_keywords(flat, arguments);
}

/* -- canonical order */

typedef struct {
    int *order;
    Py_ssize_t count, room;
} Order;

static int number_tree(Order *order, PyObject *tree, PyObject *numbered) {
    if (tree == Py_None)
        return 0;
    if (PyTuple_CheckExact(tree) || PyList_CheckExact(tree)) {
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(tree); k++)
            if (number_tree(order, PySequence_Fast_GET_ITEM(tree, k), PySequence_Fast_GET_ITEM(numbered, k)) < 0)
                return -1;
        return 0;
    }
    if (PyDict_CheckExact(tree)) {
        PyObject *key, *value;
        Py_ssize_t position = 0;
        while (PyDict_Next(tree, &position, &key, &value)) {
            PyObject *part = PyDict_GetItemWithError(numbered, key);
            if (part == NULL || number_tree(order, value, part) < 0)
                return -1;
        }
        return 0;
    }
    if (order->count == order->room || !PyLong_CheckExact(numbered))
        return -1;
    order->order[order->count++] = (int)PyLong_AsLong(numbered);
    return 0;
}

int number_leaves(const Arguments *arguments, PyObject *numbered, int *places, Py_ssize_t count) {
    Order order = {places, 0, count};
    PyObject *positional = PyTuple_GET_ITEM(numbered, 0), *named = PyTuple_GET_ITEM(numbered, 1);
    Py_ssize_t next = 0, keywords = arguments->names == NULL ? 0 : PyTuple_GET_SIZE(arguments->names);
    int status = 0;
    for (Py_ssize_t k = 0; status == 0 && k < arguments->count; k++)
        if (!is_static(arguments, k))
            status = number_tree(&order, arguments->args[k], PyTuple_GET_ITEM(positional, next++));
    for (Py_ssize_t k = 0; status == 0 && k < keywords; k++) {
        PyObject *name = PyTuple_GET_ITEM(arguments->names, k);
        PyObject *part = is_static_name(arguments, name) ? NULL : PyDict_GetItemWithError(named, name);
        if (part != NULL)
            status = number_tree(&order, arguments->args[arguments->count + k], part);
    }
    if (status == 0 && order.count == count)
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "the arguments' tree and its numbers differ");
    return -1;
}

/* -- what Python tells about dtypes */

static void mark_dtype(int number, PyArray_Descr *canonical) {
    taken[number] = numeric[number] = 1;
    if (number_of(number) != number_of(canonical->type_num))
        Py_XSETREF(narrow[number], (PyArray_Descr *)Py_NewRef((PyObject *)canonical));
}

static PyObject *set_dtypes(PyObject *module, PyObject *args) {
    PyObject *pairs, *key;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &pairs, &PyArrayDescr_Type, &key))
        return NULL;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(pairs); k++) {
        PyArray_Descr *dtype, *canonical;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, k), "O!O!", &PyArrayDescr_Type, &dtype, &PyArrayDescr_Type, &canonical))
            return NULL;
        int number = dtype->type_num;
        if (number >= TYPES)
            continue;
        mark_dtype(number, canonical);
        if (number == NPY_LONG && sizeof(long) == sizeof(long long))
            mark_dtype(NPY_LONGLONG, canonical);
        if (number == NPY_ULONG && sizeof(long) == sizeof(long long))
            mark_dtype(NPY_ULONGLONG, canonical);
    }
    Py_XSETREF(key_dtype, Py_NewRef(key));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_dtypes", set_dtypes, METH_VARARGS,
     "set_dtypes(pairs, of_keys): dtypes that arrays of NumPy may have, each with what it is without x64."},
    {NULL},
};

int add_leaf_types(PyObject *module) { return PyModule_AddFunctions(module, functions); }
