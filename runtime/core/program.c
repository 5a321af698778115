/* Program: from operands (arrays, ndarrays, numbers) to the tree of results.

   It takes memory out of operands, donated ones included, runs the executable, wraps what comes out and builds the tree:
   tuples, lists, dicts and None here, any other by a function of Python. */
#include "program.h"

/* -- operands */

static PyObject *zero_dimensional(const SlotType *type, const char *number) {
    PyObject *array = new_ndarray(type->ndim, type->dims, type->dtype, NULL);
    if (array != NULL)
        memcpy(PyArray_DATA((PyArrayObject *)array), number, type->bytes);
    return array;
}

static int place_number(const Program *program, const Operand *operand, int position, Slot *slot) {
    const SlotType *type = &program->executable->types[program->executable->inputs[position]];
    if (program->host || program->executable->device) {
        slot->data = (char *)operand->number;
        return 0;
    }
    PyObject *array = zero_dimensional(type, operand->number);
    PyObject *placed = array == NULL ? NULL : PyObject_CallOneArg(program->place, array);
    Py_XDECREF(array);
    return placed == NULL ? -1 : put_input(slot, placed);
}

/* Where a donated operand is not the call's alone: says so, the first time. */
static int told(const Program *program, int position, const Slot *slot) {
    if (slot->writable || !program->watched[position])
        return 0;
    program->watched[position] = false;
    PyObject *result = PyObject_CallFunction(program->tell, "i", position);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Whether an operand on the host is a number that kernels may take as such, and is there as long as the call. */
static bool zero_dimensional_of(const Operand *operand, PyObject *data) {
    return PyArray_Check(data) && PyArray_NDIM((PyArrayObject *)data) == 0 && PyArray_ITEMSIZE((PyArrayObject *)data) <= 16 &&
           (data == operand->object || (is_array(operand->object) && ((ArrayObject *)operand->object)->data == data));
}

static int place_operand(const Program *program, const Operand *operand, int position, Slot *slot) {
    PyObject *data, *object = operand->object;
    if (object == NULL)
        return place_number(program, operand, position, slot);
    slot->foreign = operand->foreign;
    if (is_array(object)) {
        bool given = program->donated[position] && !operand->foreign;
        data = given ? donated_data((ArrayObject *)object, &slot->writable) : present_data((ArrayObject *)object);
        if (given && data != NULL && told(program, position, slot) < 0)
            Py_CLEAR(data);
    } else if (PyArray_Check(object)) {
        data = Py_NewRef(object);
    } else {
        data = PyObject_GetAttrString(object, "_data");
    }
    if (data != NULL && program->executable->device && zero_dimensional_of(operand, data)) { /* the operand keeps it */
        slot->data = PyArray_DATA((PyArrayObject *)data);
        Py_DECREF(data);
        return 0;
    }
    if (data != NULL && !(program->host && PyArray_Check(data)) && !(program->executable->device && is_device_array(data)))
        Py_SETREF(data, PyObject_CallOneArg(program->place, data));
    return data == NULL ? -1 : put_input(slot, data);
}

/* -- results */

static PyObject *reshaped(const Program *program, int number, PyObject *data) {
    const Result *result = &program->results[number];
    if (PyArray_Check(data)) {
        PyArray_Dims shape = {result->dims, result->ndim};
        return PyArray_Newshape((PyArrayObject *)data, &shape, NPY_CORDER);
    }
    if (is_device_array(data))
        return reshaped_device_array((DeviceArray *)data, result->ndim, result->dims);
    return PyObject_CallMethod(data, "reshape", "(O)", PyTuple_GET_ITEM(program->shapes, number));
}

/* The Array over one output's memory, whose reference is taken over. */
static PyObject *wrap(const Program *program, int number, PyObject *data) {
    const Result *result = &program->results[number];
    if (result->reshapes)
        Py_SETREF(data, reshaped(program, number, data));
    return data == NULL ? NULL : new_array(data, PyArray_Check(data) || is_device_array(data) ? NULL : result->dtype, result->weak_type);
}

static PyObject *build_tuple(PyObject *template, PyObject **leaves) {
    PyObject *tree = PyTuple_New(PyTuple_GET_SIZE(template));
    for (Py_ssize_t k = 0; tree != NULL && k < PyTuple_GET_SIZE(template); k++) {
        PyObject *child = build_tree(PyTuple_GET_ITEM(template, k), leaves);
        if (child == NULL)
            Py_CLEAR(tree);
        else
            PyTuple_SET_ITEM(tree, k, child);
    }
    return tree;
}

static PyObject *build_list(PyObject *template, PyObject **leaves) {
    PyObject *tree = PyList_New(PyList_GET_SIZE(template));
    for (Py_ssize_t k = 0; tree != NULL && k < PyList_GET_SIZE(template); k++) {
        PyObject *child = build_tree(PyList_GET_ITEM(template, k), leaves);
        if (child == NULL)
            Py_CLEAR(tree);
        else
            PyList_SET_ITEM(tree, k, child);
    }
    return tree;
}

static PyObject *build_dict(PyObject *template, PyObject **leaves) {
    PyObject *tree = PyDict_Copy(template), *key, *value;
    Py_ssize_t position = 0;
    while (tree != NULL && PyDict_Next(template, &position, &key, &value)) {
        PyObject *child = build_tree(value, leaves);
        if (child == NULL || PyDict_SetItem(tree, key, child) < 0)
            Py_CLEAR(tree);
        Py_XDECREF(child);
    }
    return tree;
}

PyObject *build_tree(PyObject *template, PyObject **leaves) {
    if (PyLong_CheckExact(template))
        return Py_NewRef(leaves[PyLong_AsLong(template)]);
    if (PyTuple_CheckExact(template))
        return build_tuple(template, leaves);
    if (PyList_CheckExact(template))
        return build_list(template, leaves);
    return PyDict_CheckExact(template) ? build_dict(template, leaves) : Py_NewRef(template);
}

static PyObject *tree_of(const Program *program, PyObject **leaves) {
    if (program->template != NULL)
        return build_tree(program->template, leaves);
    int count = program->executable->output_count;
    PyObject *list = PyList_New(count);
    for (int k = 0; list != NULL && k < count; k++)
        PyList_SET_ITEM(list, k, Py_NewRef(leaves[k]));
    PyObject *tree = list == NULL ? NULL : PyObject_CallOneArg(program->unflatten, list);
    Py_XDECREF(list);
    return tree;
}

static PyObject *results_of(const Program *program, PyObject **outputs) {
    int count = program->executable->output_count;
    bool complete = true;
    for (int k = 0; k < count; k++) {
        outputs[k] = wrap(program, k, outputs[k]);
        complete &= outputs[k] != NULL;
    }
    PyObject *tree = complete ? tree_of(program, outputs) : NULL;
    for (int k = 0; k < count; k++)
        Py_XDECREF(outputs[k]);
    return tree;
}

#define ON_STACK 32

static PyObject *run_with(const Program *program, const Operand *const *operands, Slot *inputs, PyObject **outputs) {
    int count = program->executable->input_count;
    for (int k = 0; k < count; k++) {
        inputs[k] = (Slot){0};
        if (place_operand(program, operands[k], k, &inputs[k]) < 0) {
            for (int j = 0; j < k; j++)
                Py_XDECREF(inputs[j].object);
            return NULL;
        }
    }
    return run_executable(program->executable, inputs, outputs) < 0 ? NULL : results_of(program, outputs);
}

PyObject *run_program(const Program *program, const Operand *const *operands, Py_ssize_t count) {
    const Executable *executable = program->executable;
    if (count != executable->input_count)
        return PyErr_Format(PyExc_TypeError, "this executable takes %d arrays, got %zd", executable->input_count, count);
    int places = Py_MAX(executable->input_count, executable->output_count);
    Slot some_inputs[ON_STACK];
    PyObject *some_outputs[ON_STACK];
    if (places <= ON_STACK)
        return run_with(program, operands, some_inputs, some_outputs);
    Slot *inputs = PyMem_Malloc(places * (sizeof(Slot) + sizeof(PyObject *)));
    if (inputs == NULL)
        return PyErr_NoMemory();
    PyObject *tree = run_with(program, operands, inputs, (PyObject **)(inputs + places));
    PyMem_Free(inputs);
    return tree;
}

/* -- the Python type */

bool buildable_tree(PyObject *template) {
    if (PyTuple_CheckExact(template) || PyList_CheckExact(template)) {
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(template); k++)
            if (!buildable_tree(PySequence_Fast_GET_ITEM(template, k)))
                return false;
        return true;
    }
    if (!PyDict_CheckExact(template))
        return PyLong_CheckExact(template) || template == Py_None;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(template, &position, &key, &value))
        if (!buildable_tree(value))
            return false;
    return true;
}

static int read_result(Program *self, PyObject *item, Result *result) {
    int weak_type, reshapes;
    PyObject *shape, *dtype;
    if (!PyArg_ParseTuple(item, "ppO!O", &weak_type, &reshapes, &PyTuple_Type, &shape, &dtype))
        return -1;
    result->weak_type = weak_type;
    result->reshapes = reshapes;
    result->ndim = (int)PyTuple_GET_SIZE(shape);
    result->dims = PyMem_Malloc((result->ndim + 1) * sizeof(npy_intp));
    if (result->dims == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int k = 0; k < result->ndim; k++)
        result->dims[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    result->dtype = dtype == Py_None ? NULL : Py_NewRef(dtype);
    PyTuple_SET_ITEM(self->shapes, result - self->results, Py_NewRef(shape));
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* Which operands a tuple of positions names; NULL without memory. */
static bool *positions(const Program *self, PyObject *tuple) {
    bool *named = PyMem_Calloc(self->executable->input_count + 1, sizeof(bool));
    for (Py_ssize_t k = 0; named != NULL && k < PyTuple_GET_SIZE(tuple); k++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, k));
        if (position >= 0 && position < self->executable->input_count)
            named[position] = true;
    }
    return named;
}

static int read_program(Program *self, PyObject *donated, PyObject *watched, PyObject *results) {
    int count = self->executable->output_count;
    self->donated = positions(self, donated);
    self->watched = positions(self, watched);
    self->results = PyMem_Calloc(count + 1, sizeof(Result));
    self->shapes = PyTuple_New(count);
    if (self->donated == NULL || self->watched == NULL || self->results == NULL || self->shapes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (PyTuple_GET_SIZE(results) != count) {
        PyErr_SetString(PyExc_ValueError, "the results are not the executable's");
        return -1;
    }
    for (int k = 0; k < count; k++)
        if (read_result(self, PyTuple_GET_ITEM(results, k), &self->results[k]) < 0)
            return -1;
    return 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Executable *executable;
    PyObject *donated, *results, *template, *unflatten, *place, *watched, *tell;
    int host;
    if (!PyArg_ParseTuple(args, "O!O!O!OOOpO!O", &executable_type, &executable, &PyTuple_Type, &donated, &PyTuple_Type,
                          &results, &template, &unflatten, &place, &host, &PyTuple_Type, &watched, &tell))
        return NULL;
    Program *self = (Program *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->executable = (Executable *)Py_NewRef((PyObject *)executable);
    self->template = buildable_tree(template) ? Py_NewRef(template) : NULL;
    self->unflatten = Py_NewRef(unflatten);
    self->place = Py_NewRef(place);
    self->tell = Py_NewRef(tell);
    self->host = host;
    if (read_program(self, donated, watched, results) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int program_traverse(Program *self, visitproc visit, void *arg) {
    Py_VISIT(self->executable);
    Py_VISIT(self->template);
    Py_VISIT(self->unflatten);
    Py_VISIT(self->place);
    Py_VISIT(self->tell);
    return 0;
}

static void program_dealloc(Program *self) {
    PyObject_GC_UnTrack(self);
    int count = self->results == NULL ? 0 : self->executable->output_count;
    for (int k = 0; k < count; k++) {
        PyMem_Free(self->results[k].dims);
        Py_XDECREF(self->results[k].dtype);
    }
    PyMem_Free(self->results);
    PyMem_Free(self->donated);
    PyMem_Free(self->watched);
    Py_XDECREF(self->shapes);
    Py_XDECREF(self->template);
    Py_XDECREF(self->unflatten);
    Py_XDECREF(self->place);
    Py_XDECREF(self->tell);
    Py_XDECREF(self->executable);
    Py_TYPE(self)->tp_free(self);
}

/* program(values, foreign=()): `values` is a list of Arrays; those at `foreign` are over memory that others may write. */
static PyObject *program_call(Program *self, PyObject *args, PyObject *kwargs) {
    PyObject *values, *foreign = NULL;
    if (!PyArg_ParseTuple(args, "O!|O!", &PyList_Type, &values, &PyTuple_Type, &foreign))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(values);
    Operand *operands = PyMem_Calloc(count + 1, sizeof(Operand) + sizeof(Operand *));
    if (operands == NULL)
        return PyErr_NoMemory();
    const Operand **order = (const Operand **)(operands + count);
    for (Py_ssize_t k = 0; k < count; k++) {
        operands[k].object = Py_NewRef(PyList_GET_ITEM(values, k));
        order[k] = &operands[k];
    }
    for (Py_ssize_t k = 0; foreign != NULL && k < PyTuple_GET_SIZE(foreign); k++)
        operands[PyLong_AsSsize_t(PyTuple_GET_ITEM(foreign, k))].foreign = true;
    PyObject *tree = run_program(self, order, count);
    for (Py_ssize_t k = 0; k < count; k++)
        Py_DECREF(operands[k].object);
    PyMem_Free(operands);
    return tree;
}

PyTypeObject program_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Program",
    .tp_doc = "From operands to the tree of results.",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_call = (ternaryfunc)program_call,
};

int add_program(PyObject *module) { return add_type(module, &program_type); }
