/* DeviceProgram: a step of an executable whose operations run on the device from one call of C.

   Its table holds, in this order, the addresses of the arguments (of a number its bits), of the outputs and of the
   scratch block; later entries are the operations' own. Numbers are parameters of kernels, so that for each set of
   arguments that are numbers there is a variant, which Python prepares when it is first wanted. A table that comes back
   is replayed as one CUDA graph; a new one takes over the graph that was not used for longest, by an update in place. */
#include "device_program.h"
#include "device_ops.h"
#include "executable.h"

enum { GRAPHS = 16, SEEN = 64, IDLE = 4 * GRAPHS, ON_STACK = 96, OUT_OF_MEMORY = 2, WITHOUT_TIMING = 2 };

typedef struct {
    Handle exec;
    uint64_t *table;
    long long used; /* the number of the call that replayed it last */
} Replay;

typedef struct Variant {
    uint64_t numbers; /* a bit for each argument that is one */
    Body body;
    long long nodes;
    bool graph_only, graphless;
    int event_count; /* where operations run beside the main stream */
    Handle *events;  /* created when they first run */
    PyObject *keep;
    Replay replays[GRAPHS];
    uint64_t seen[SEEN]; /* hashes of tables that came last and have no graph */
    int next_seen;
    struct Variant *next;
} Variant;

typedef struct {
    PyObject_HEAD
    PyObject *prepare;
    int arguments, outputs, entries, graph_from;
    long long graph_to;
    Py_ssize_t scratch;
    uint64_t by_value; /* arguments that kernels may take as numbers */
    Variant *variants;
    pthread_mutex_t lock;
    long long calls, launched, replayed, built, updated;
} DeviceProgram;

/* ---- graphs */

static uint64_t hashed(const uint64_t *table, int count) {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (int k = 0; k < count; k++) {
        hash = (hash ^ table[k]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

/* The events of a variant, created where they are not. */
static Status with_events(Variant *variant) {
    Status result = 0;
    if (variant->event_count == 0 || variant->events != NULL)
        return 0;
    if ((variant->events = calloc(variant->event_count, sizeof(Handle))) == NULL)
        return OUT_OF_MEMORY;
    for (int k = 0; !result && k < variant->event_count; k++)
        result = driver.event_create(&variant->events[k], WITHOUT_TIMING);
    return result;
}

static void drop_events(Variant *variant) {
    for (int k = 0; variant->events != NULL && k < variant->event_count; k++)
        if (variant->events[k] != NULL)
            driver.event_destroy(variant->events[k]);
    free(variant->events);
}

static Status captured(const Variant *variant, uint64_t *table, Handle *graph) {
    pthread_mutex_t *one_at_a_time = &here()->capturing;
    *graph = NULL;
    pthread_mutex_lock(one_at_a_time);
    Handle stream = capture_stream(0);
    Run run = {table, variant->event_count ? side_stream(true) : NULL, variant->events};
    Status result = driver.capture_begin(stream, 2); /* relaxed: other work of this thread may go on */
    if (!result) {
        result = run_body(&variant->body, stream, &run, 0);
        Status end = driver.capture_end(stream, graph);
        result = result ? result : end;
    }
    pthread_mutex_unlock(one_at_a_time);
    return result;
}

/* Put a graph of this table where `replay` is: by an update of the one that is there, or anew where that cannot be. */
static Status build(DeviceProgram *self, const Variant *variant, Replay *replay, uint64_t *table) {
    Handle graph;
    UpdateInfo info;
    Status result = captured(variant, table, &graph);
    if (!result && replay->exec != NULL) {
        if (driver.graph_update(replay->exec, graph, &info) == 0) {
            self->updated++;
        } else {
            driver.exec_destroy(replay->exec); /* one in flight ends first */
            replay->exec = NULL;
        }
    }
    if (!result && replay->exec == NULL) {
        result = driver.graph_instantiate(&replay->exec, graph, 0);
        self->built += !result;
    }
    if (graph != NULL)
        driver.graph_destroy(graph);
    return result;
}

static bool comes_back(Variant *variant, uint64_t hash) {
    for (int k = 0; k < SEEN; k++)
        if (variant->seen[k] == hash)
            return true;
    variant->seen[variant->next_seen++ % SEEN] = hash;
    return false;
}

/* The graph of this table, NULL where launches are cheaper: it has not come before, or all others are in use. */
static Status replay_of(DeviceProgram *self, Variant *variant, uint64_t *table, Handle *exec) {
    int bound = self->arguments + self->outputs + 1;
    Replay *oldest = &variant->replays[0];
    *exec = NULL;
    for (Replay *replay = variant->replays; replay < variant->replays + GRAPHS; replay++) {
        if (replay->exec != NULL && !memcmp(replay->table, table, bound * sizeof *table)) {
            replay->used = self->calls;
            *exec = replay->exec;
            return 0;
        }
        if (replay->used < oldest->used)
            oldest = replay;
    }
    if (!variant->graph_only && (!comes_back(variant, hashed(table, bound)) ||
                                 (oldest->exec != NULL && self->calls - oldest->used < IDLE)))
        return 0;
    if (oldest->table == NULL && (oldest->table = malloc(bound * sizeof *table)) == NULL)
        return OUT_OF_MEMORY;
    memcpy(oldest->table, table, bound * sizeof *table);
    Status result = build(self, variant, oldest, table);
    if (result)
        oldest->table[0] = ~table[0];
    oldest->used = self->calls;
    *exec = oldest->exec;
    return result;
}

static Status run(DeviceProgram *self, Variant *variant, Handle stream, uint64_t *table) {
    bool graphs = variant->graph_only || (!variant->graphless && variant->nodes >= self->graph_from && variant->nodes <= self->graph_to);
    int capturing = 0;
    self->calls++;
    Status result = with_events(variant);
    if (!result && (graphs || variant->event_count))
        result = driver.capturing(stream, &capturing);
    Handle exec = NULL;
    if (!result && graphs && !capturing)
        result = replay_of(self, variant, table, &exec);
    if (result)
        return result;
    if (exec != NULL) {
        self->replayed++;
        return driver.graph_launch(exec, stream);
    }
    Run run = {table, variant->event_count ? side_stream(capturing) : NULL, variant->events};
    self->launched += variant->nodes;
    result = run_body(&variant->body, stream, &run, 0);
    if (result && variant->event_count && !driver.event_record(variant->events[0], run.side))
        driver.stream_wait(stream, variant->events[0], 0); /* what began uses memory that the caller now gives back */
    return result;
}

/* ---- the step of an executable */

static Variant *variant_of(DeviceProgram *self, uint64_t numbers) {
    for (int attempt = 0; attempt < 2; attempt++) {
        for (Variant *variant = self->variants; variant != NULL; variant = variant->next)
            if (variant->numbers == numbers)
                return variant;
        PyObject *made = attempt ? NULL : PyObject_CallFunction(self->prepare, "K", (unsigned long long)numbers);
        Py_XDECREF(made);
        if (made == NULL && PyErr_Occurred())
            return NULL;
    }
    PyErr_SetString(PyExc_SystemError, "a program for the device was not prepared");
    return NULL;
}

/* The entry of one argument; a number that no kernel takes as such becomes an array. */
static int bind_argument(Call *call, const DeviceProgram *self, int number, int slot, uint64_t *entry, uint64_t *numbers) {
    Slot *found = &call->slots[slot];
    if (found->object == NULL && found->data != NULL && self->by_value >> number & 1) {
        *entry = 0;
        memcpy(entry, found->data, Py_MIN(call->executable->types[slot].bytes, 8));
        *numbers |= (uint64_t)1 << number;
        return 0;
    }
    PyObject *array = slot_object(call, slot);
    if (array == NULL)
        return -1;
    if (!is_device_array(array)) {
        PyErr_Format(PyExc_TypeError, "a program for the device takes arrays there, got %s", Py_TYPE(array)->tp_name);
        return -1;
    }
    *entry = ((DeviceArray *)array)->address;
    return order_device_array((DeviceArray *)array, call->stream);
}

static int run_on_device(Call *call, const Step *step, DeviceProgram *self, uint64_t *table) {
    CONTEXT_GUARD(guard);
    uint64_t numbers = 0;
    size_t block = 0;
    Address scratch = 0;
    for (int k = 0; k < self->arguments; k++)
        if (bind_argument(call, self, k, step->arguments[k], &table[k], &numbers) < 0)
            return -1;
    Variant *variant = variant_of(self, numbers);
    if (variant == NULL || enter_device(&guard) < 0 || allocate_outputs(call, step) < 0)
        return -1;
    for (int k = 0; k < self->outputs; k++)
        table[self->arguments + k] = (uint64_t)(uintptr_t)call->slots[step->outputs[k].slot].data;
    if (self->scratch && (scratch = take_device_memory(self->scratch, call->stream, &block, step->name)) == 0)
        return -1;
    table[self->arguments + self->outputs] = scratch;
    Status result;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    result = run(self, variant, call->stream, table);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
    if (scratch)
        give_device_memory(scratch, block, call->stream, here());
    return check(result, "a launch");
}

int run_device(Call *call, const Step *step) {
    DeviceProgram *self = (DeviceProgram *)step->function;
    uint64_t some[ON_STACK], *table = some;
    if (Py_TYPE(self) != &device_program_type || self->arguments != step->argument_count || self->outputs != step->output_count) {
        PyErr_Format(PyExc_TypeError, "step %U is no program of as many arrays", step->name);
        return -1;
    }
    if (self->entries > ON_STACK && (table = PyMem_Malloc(self->entries * sizeof *table)) == NULL)
        return PyErr_NoMemory(), -1;
    int status = run_on_device(call, step, self, table);
    if (table != some)
        PyMem_Free(table);
    return status;
}

/* program(arrays): on the arguments, then the outputs, as a profile runs it. */
static PyObject *program_call(DeviceProgram *self, PyObject *args, PyObject *kwargs) {
    CONTEXT_GUARD(guard);
    PyObject *arrays;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &arrays))
        return NULL;
    int count = self->arguments + self->outputs;
    Handle stream = enter_device(&guard) < 0 ? NULL : current_stream();
    Variant *variant = stream == NULL ? NULL : variant_of(self, 0);
    uint64_t *table = variant == NULL ? NULL : PyMem_Calloc(self->entries, sizeof *table);
    if (table == NULL)
        return NULL;
    int status = PyList_GET_SIZE(arrays) == count ? 0 : -1;
    for (int k = 0; status == 0 && k < count; k++) {
        DeviceArray *array = (DeviceArray *)PyList_GET_ITEM(arrays, k);
        status = is_device_array((PyObject *)array) ? order_device_array(array, stream) : -1;
        table[k] = status == 0 ? array->address : 0;
    }
    size_t block = 0;
    if (status == 0 && self->scratch && (table[count] = take_device_memory(self->scratch, stream, &block, NULL)) == 0)
        status = -1;
    if (status < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "a program for the device takes a list of its %d arrays", count);
    if (status == 0)
        status = check(run(self, variant, stream, table), "a launch");
    if (block)
        give_device_memory(table[count], block, stream, here());
    PyMem_Free(table);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the Python type */

static void free_variant(Variant *variant) {
    for (int k = 0; k < GRAPHS; k++) {
        if (variant->replays[k].exec != NULL)
            driver.exec_destroy(variant->replays[k].exec);
        free(variant->replays[k].table);
    }
    drop_events(variant);
    free_body(&variant->body);
    Py_XDECREF(variant->keep); /* after the graphs: it holds the kernels' modules */
    PyMem_Free(variant);
}

/* add_variant(numbers, operations, keep): how it runs where the arguments whose bits `numbers` has are numbers. */
static PyObject *add_variant(DeviceProgram *self, PyObject *args) {
    unsigned long long numbers;
    PyObject *operations, *keep;
    if (!PyArg_ParseTuple(args, "KO!O", &numbers, &PyTuple_Type, &operations, &keep))
        return NULL;
    Variant *variant = PyMem_Calloc(1, sizeof *variant);
    if (variant == NULL)
        return PyErr_NoMemory();
    variant->keep = Py_NewRef(keep);
    variant->numbers = numbers;
    if (read_body(&variant->body, operations, self->entries) < 0) {
        free_variant(variant);
        return NULL;
    }
    variant->nodes = node_count(&variant->body);
    variant->graph_only = needs_graph(&variant->body);
    variant->graphless = refuses_graph(&variant->body);
    variant->event_count = event_count(&variant->body);
    if (variant->graph_only && variant->graphless) {
        PyErr_SetString(PyExc_RuntimeError, "a library call that no graph can hold stands in a loop that the device ends");
        free_variant(variant);
        return NULL;
    }
    if (variant->graph_only && (!driver.conditional || load_condition() < 0)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "loops and branches on the device need a driver of CUDA 12.4");
        free_variant(variant);
        return NULL;
    }
    variant->next = self->variants;
    self->variants = variant;
    Py_RETURN_NONE;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"arguments", "outputs", "entries", "scratch", "by_value", "prepare", "graph_from", "graph_to", NULL};
    int arguments, outputs, entries, graph_from;
    long long graph_to;
    Py_ssize_t scratch;
    unsigned long long by_value;
    PyObject *prepare;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiinKOiL", names, &arguments, &outputs, &entries, &scratch, &by_value,
                                     &prepare, &graph_from, &graph_to))
        return NULL;
    if (entries < arguments + outputs + 1)
        return PyErr_Format(PyExc_ValueError, "%d entries are too few", entries);
    DeviceProgram *self = (DeviceProgram *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->arguments = arguments;
    self->outputs = outputs;
    self->entries = entries;
    self->scratch = scratch;
    self->by_value = by_value;
    self->prepare = Py_NewRef(prepare);
    self->graph_from = graph_from;
    self->graph_to = graph_to;
    pthread_mutex_init(&self->lock, NULL);
    return (PyObject *)self;
}

static int program_traverse(DeviceProgram *self, visitproc visit, void *arg) {
    Py_VISIT(self->prepare);
    for (Variant *variant = self->variants; variant != NULL; variant = variant->next)
        Py_VISIT(variant->keep);
    return 0;
}

static int program_clear(DeviceProgram *self) {
    Py_CLEAR(self->prepare);
    return 0;
}

static void program_dealloc(DeviceProgram *self) {
    PyObject_GC_UnTrack(self);
    program_clear(self);
    while (self->variants != NULL) {
        Variant *variant = self->variants;
        self->variants = variant->next;
        free_variant(variant);
    }
    pthread_mutex_destroy(&self->lock);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *get_counts(DeviceProgram *self, void *closure) {
    return Py_BuildValue("{sLsLsLsLsL}", "calls", self->calls, "launched", self->launched, "replayed", self->replayed,
                         "built", self->built, "updated", self->updated);
}

static PyGetSetDef properties[] = {
    {"counts", (getter)get_counts, NULL, "Calls, operations launched one by one, graphs replayed, built and updated."},
    {NULL},
};

static PyMethodDef methods[] = {
    {"add_variant", (PyCFunction)add_variant, METH_VARARGS, "add_variant(numbers, operations, keep)"},
    {NULL},
};

PyTypeObject device_program_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.DeviceProgram",
    .tp_doc = "Operations on the device as one step of an executable.",
    .tp_basicsize = sizeof(DeviceProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_call = (ternaryfunc)program_call,
    .tp_methods = methods,
    .tp_getset = properties,
};

int add_device_program(PyObject *module) { return add_type(module, &device_program_type); }
