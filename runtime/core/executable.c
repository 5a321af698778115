/* Executable: a flat list of steps over numbered slots, and the walk through them.

   All that changes lives in the Call, so that any number of threads may be in one executable. Construction, which reads
   what fuser.runtime.executable prepared, is in construct.c. */
#include "executable.h"

#define SLOTS_ON_STACK 64
#define ARENA_ON_STACK 1024

static void release_arena(PyObject *capsule) { give_memory(PyCapsule_GetPointer(capsule, NULL)); }

/* An array over the slot's memory in the arena, which it keeps. */
static PyObject *array_in_arena(Call *call, const SlotType *type, char *data) {
    if (call->arena_owner == NULL && (call->arena_owner = PyCapsule_New(call->arena, NULL, release_arena)) == NULL)
        return NULL;
    Py_INCREF(type->dtype);
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, type->dtype, type->ndim, type->dims, NULL, data,
                                           NPY_ARRAY_CARRAY, NULL);
    if (array != NULL && PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(call->arena_owner)) < 0)
        Py_CLEAR(array);
    return array;
}

static bool in_arena(const Call *call, const char *data) {
    return call->arena != NULL && data >= call->arena && data < call->arena + call->executable->arena;
}

static void put(Slot *slot, PyObject *object) {
    slot->object = object;
    slot->data = PyArray_Check(object)      ? PyArray_DATA((PyArrayObject *)object)
                 : is_device_array(object) ? (char *)(uintptr_t)((DeviceArray *)object)->address
                                           : NULL;
}

PyObject *slot_object(Call *call, int number) {
    Slot *slot = &call->slots[number];
    if (slot->object != NULL)
        return slot->object;
    const SlotType *type = &call->executable->types[number];
    if (type->ndim < 0) {
        PyErr_Format(PyExc_SystemError, "slot %d is read before anything is there", number);
        return NULL;
    }
    if (in_arena(call, slot->data))
        return slot->object = array_in_arena(call, type, slot->data);
    if (call->executable->device)
        return slot->data == NULL ? NULL : (slot->object = device_number(slot->data, type->dtype, call->stream));
    PyObject *array = new_ndarray(type->ndim, type->dims, type->dtype, NULL); /* of a scalar */
    if (array != NULL) {
        memcpy(PyArray_DATA((PyArrayObject *)array), slot->data, type->bytes);
        slot->data = PyArray_DATA((PyArrayObject *)array);
    }
    return slot->object = array;
}

int put_input(Slot *slot, PyObject *array) {
    int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    if (PyArray_Check(array) && !PyArray_CHKFLAGS((PyArrayObject *)array, wanted)) {
        Py_SETREF(array, PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER));
        if (array == NULL)
            return -1;
        slot->foreign = slot->writable = false;
    }
    put(slot, array);
    return 0;
}

bool same_type(PyObject *object, const SlotType *type) {
    if (is_device_array(object)) {
        DeviceArray *array = (DeviceArray *)object;
        return (int)Py_SIZE(array) == type->ndim && PyArray_CompareLists(array->dims, type->dims, type->ndim) &&
               (array->dtype == type->dtype || PyArray_EquivTypes(array->dtype, type->dtype));
    }
    if (!PyArray_Check(object) || type->ndim < 0)
        return false;
    PyArrayObject *array = (PyArrayObject *)object;
    return PyArray_NDIM(array) == type->ndim && PyArray_CompareLists(PyArray_DIMS(array), type->dims, type->ndim) &&
           (PyArray_DESCR(array) == type->dtype || PyArray_EquivTypes(PyArray_DESCR(array), type->dtype));
}

static PyObject *allocated(const Call *call, const SlotType *type, PyObject *label) {
    const Executable *executable = call->executable;
    if (executable->device)
        return new_device_array(type->ndim, type->dims, type->dtype, call->stream, label);
    if (executable->allocate == NULL)
        return new_ndarray(type->ndim, type->dims, type->dtype, label);
    PyObject *shape = PyArray_IntTupleFromIntp(type->ndim, type->dims);
    PyObject *array = shape == NULL ? NULL
                                    : PyObject_CallFunctionObjArgs(executable->allocate, shape, type->dtype, label, NULL);
    Py_XDECREF(shape);
    return array;
}

/* Whether a result may lie in this slot's memory: a donated input's, or a kernel's that no library step's view shares. */
static bool may_take(const Slot *slot, const SlotType *type) {
    if (!slot->writable || slot->object == NULL || (slot->made && !slot->given && Py_REFCNT(slot->object) > 1))
        return false;
    if (is_device_array(slot->object)) { /* in whatever shape */
        DeviceArray *array = (DeviceArray *)slot->object;
        return device_array_bytes(array) == PyArray_MultiplyList(type->dims, type->ndim) * PyDataType_ELSIZE(type->dtype) &&
               (array->dtype == type->dtype || PyArray_EquivTypes(array->dtype, type->dtype));
    }
    return !PyArray_Check(slot->object) || same_type(slot->object, type);
}

/* A slot's memory as a result of its type. */
static PyObject *taken_over(const Slot *slot, const SlotType *type) {
    if (!is_device_array(slot->object) || same_type(slot->object, type))
        return Py_NewRef(slot->object);
    return reshaped_device_array((DeviceArray *)slot->object, type->ndim, type->dims);
}

int allocate_outputs(Call *call, const Step *step) {
    for (const Output *output = step->outputs; output < step->outputs + step->output_count; output++) {
        const SlotType *type = &call->executable->types[output->slot];
        Slot *slot = &call->slots[output->slot];
        if (output->offset >= 0) {
            slot->data = call->arena + output->offset;
            continue;
        }
        Slot *over = output->reuse < 0 ? NULL : &call->slots[output->reuse];
        bool taken = over != NULL && may_take(over, type);
        PyObject *array = taken ? taken_over(over, type) : allocated(call, type, output->label);
        if (array == NULL)
            return -1;
        put(slot, array);
        slot->writable = slot->made = true;
        slot->given = taken && (over->given || !over->made);
    }
    return 0;
}

/* The result of a library step as what may stay in a slot: places in the arena get other contents before the call ends. */
static PyObject *kept(const Call *call, PyObject *result) {
    if (call->arena != NULL && PyArray_Check(result) && in_arena(call, PyArray_DATA((PyArrayObject *)result)))
        return PyArray_NewCopy((PyArrayObject *)result, NPY_CORDER);
    return Py_NewRef(result);
}

int fill_outputs(Call *call, const Step *step, PyObject *results) {
    bool several = PyTuple_Check(results) || PyList_Check(results);
    Py_ssize_t count = several ? PySequence_Fast_GET_SIZE(results) : 1;
    if (count != step->output_count) {
        PyErr_Format(PyExc_ValueError, "step %U returned %zd arrays and its plan says %d", step->name, count,
                     step->output_count);
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *array = kept(call, several ? PySequence_Fast_GET_ITEM(results, k) : results);
        if (array == NULL)
            return -1;
        put(&call->slots[step->outputs[k].slot], array);
    }
    return 0;
}

/* -- the walk */

static int start_arena(Call *call, char *on_stack) {
    size_t size = call->executable->arena;
    call->arena = size == 0 ? NULL : on_stack != NULL ? on_stack : take_memory(size, call->executable->label);
    return size > 0 && call->arena == NULL ? -1 : 0;
}

static void end_arena(Call *call, const char *on_stack) {
    if (call->arena_owner != NULL)
        Py_DECREF(call->arena_owner);
    else if (call->arena != NULL && call->arena != on_stack)
        give_memory(call->arena);
}

/* Of what is no ndarray (a tensor, of which a library step has made one) nothing is known. */
static bool overlap(PyArrayObject *array, const Slot *input) {
    if (!PyArray_Check(input->object))
        return true;
    const char *start = PyArray_DATA(array);
    return start < input->data + PyArray_NBYTES((PyArrayObject *)input->object) &&
           input->data < start + PyArray_NBYTES(array);
}

/* A result as the caller may keep it: in memory that nobody else changes. */
static PyObject *result_of(Call *call, int number, bool fresh) {
    PyObject *array = slot_object(call, number);
    if (fresh || array == NULL || !PyArray_Check(array))
        return Py_XNewRef(array);
    for (int k = 0; k < call->executable->input_count; k++) {
        const Slot *input = &call->slots[call->executable->inputs[k]];
        if (input->foreign && input->object != NULL && overlap((PyArrayObject *)array, input))
            return PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    }
    return Py_NewRef(array);
}

int gather_results(Call *call, PyObject **outputs) {
    for (int k = 0; k < call->executable->output_count; k++) {
        outputs[k] = result_of(call, call->executable->outputs[k], call->executable->fresh[k]);
        if (outputs[k] == NULL) {
            while (k-- > 0)
                Py_CLEAR(outputs[k]);
            return -1;
        }
    }
    return 0;
}

void drop_dead(Call *call, const Step *step) {
    for (int k = 0; k < step->drop_count; k++)
        Py_CLEAR(call->slots[step->drops[k]].object);
}

int walk(Call *call) {
    const Executable *executable = call->executable;
    for (const Step *step = executable->steps; step < executable->steps + executable->step_count; step++) {
        if (step->run(call, step) < 0)
            return -1;
        drop_dead(call, step);
    }
    return 0;
}

int walk_to_meeting(Call *call, int *next) {
    for (; *next < call->executable->step_count; ++*next) {
        const Step *step = &call->executable->steps[*next];
        if (step->meets)
            return 1;
        if (step->run(call, step) < 0)
            return -1;
        drop_dead(call, step);
    }
    return 0;
}

int begin_call(Call *call, const Executable *executable, Slot *slots, Slot *inputs, char *arena) {
    *call = (Call){executable, slots, NULL, NULL, NULL, {NULL}};
    memset(slots, 0, executable->slot_count * sizeof(Slot));
    for (int k = 0; k < executable->input_count; k++)
        slots[executable->inputs[k]] = inputs[k];
    for (int k = 0; k < executable->const_count; k++)
        put(&slots[executable->const_slots[k]], Py_NewRef(executable->consts[k]));
    if (executable->device)
        call->stream = enter_device(&call->context) < 0 ? NULL : current_stream();
    return executable->device && call->stream == NULL ? -1 : start_arena(call, arena);
}

void end_call(Call *call, const char *arena) {
    for (int k = 0; k < call->executable->slot_count; k++)
        Py_XDECREF(call->slots[k].object);
    end_arena(call, arena);
    if (call->executable->device)
        leave_device(&call->context);
}

int run_executable(const Executable *executable, Slot *inputs, PyObject **outputs) {
    Slot on_stack[SLOTS_ON_STACK];
    _Alignas(64) char small_arena[ARENA_ON_STACK];
    char *stacked = executable->arena <= ARENA_ON_STACK && !executable->lends ? small_arena : NULL;
    int count = executable->slot_count;
    Slot *slots = count <= SLOTS_ON_STACK ? on_stack : PyMem_Malloc(count * sizeof(Slot));
    if (slots == NULL) {
        for (int k = 0; k < executable->input_count; k++)
            Py_XDECREF(inputs[k].object);
        PyErr_NoMemory();
        return -1;
    }
    Call call;
    int status = begin_call(&call, executable, slots, inputs, stacked);
    if (status == 0)
        status = walk(&call);
    if (status == 0)
        status = gather_results(&call, outputs);
    end_call(&call, stacked);
    if (slots != on_stack)
        PyMem_Free(slots);
    return status;
}

/* -- steps */

static int operand_error(const Step *step, int slot) {
    PyErr_Format(PyExc_TypeError, "step %U takes an ndarray in slot %d", step->name, slot);
    return -1;
}

static int run_kernel(Call *call, const Step *step) {
    void *buffers[step->argument_count + step->output_count + 1];
    for (int k = 0; k < step->argument_count; k++) {
        buffers[k] = call->slots[step->arguments[k]].data;
        if (buffers[k] == NULL && !PyArray_Check(slot_object(call, step->arguments[k])))
            return operand_error(step, step->arguments[k]);
    }
    if (allocate_outputs(call, step) < 0)
        return -1;
    for (int k = 0; k < step->output_count; k++)
        buffers[step->argument_count + k] = call->slots[step->outputs[k].slot].data;
    if (step->keeps_gil) {
        step->kernel(buffers, step->sizes);
        return PyErr_Occurred() == NULL ? 0 : -1; /* of a foreign function */
    }
    Py_BEGIN_ALLOW_THREADS
    step->kernel(buffers, step->sizes);
    Py_END_ALLOW_THREADS
    return PyErr_Occurred() == NULL ? 0 : -1; /* of a signal's handler, run where the kernel polled */
}

/* A Python function that takes one list: the operands, then the outputs, which it writes. */
static int run_arrays(Call *call, const Step *step) {
    if (allocate_outputs(call, step) < 0)
        return -1;
    int count = step->argument_count + step->output_count;
    PyObject *arrays = PyList_New(count);
    for (int k = 0; arrays != NULL && k < count; k++) {
        int slot = k < step->argument_count ? step->arguments[k] : step->outputs[k - step->argument_count].slot;
        PyObject *array = slot_object(call, slot);
        if (array == NULL)
            Py_CLEAR(arrays);
        else
            PyList_SET_ITEM(arrays, k, Py_NewRef(array));
    }
    PyObject *result = arrays == NULL ? NULL : PyObject_CallOneArg(step->function, arrays);
    Py_XDECREF(arrays);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* A Python function of the operands that returns the outputs. */
static int run_library(Call *call, const Step *step) {
    PyObject *arguments[step->argument_count + 1];
    for (int k = 0; k < step->argument_count; k++) {
        arguments[k] = slot_object(call, step->arguments[k]);
        if (arguments[k] == NULL)
            return -1;
    }
    PyObject *results = PyObject_Vectorcall(step->function, arguments, step->argument_count, NULL);
    if (results == NULL && PyErr_ExceptionMatches(PyExc_MemoryError))
        refuse_step(step->name, step->output_count > 0 ? step->outputs[0].label : Py_None);
    int status = results == NULL ? -1 : fill_outputs(call, step, results);
    Py_XDECREF(results);
    return status;
}

const StepKind step_kinds[] = {
    {"kernel", run_kernel},
    {"arrays", run_arrays},
    {"library", run_library},
    {"meeting", run_library},
    {"device", run_device},
    {NULL},
};
