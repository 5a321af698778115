/* Launches on an NVIDIA GPU through the driver's library, which is opened at run time.

   A Segment is a run of kernel launches that nothing comes between. Called with the list of its tensors, it fills in
   their addresses and launches; a set of addresses that comes back is replayed as one CUDA graph. Torch keeps giving
   the same memory to the same program, so that in a loop nearly every call is a replay. The first call, and tensors
   that the kernels were not compiled for, go to the segment's fallback, which then prepares it. */
#include "core.h"
#include <dlfcn.h>
#include <structmember.h>
#include <pthread.h>
#include <string.h>

typedef int Result; /* CUresult */
typedef void *Handle;

typedef struct { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    Handle function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
    Handle kernel, context;
} NodeParams;

static struct {
    void *library;
    Result (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
    Result (*capturing)(Handle, int *);
    Result (*graph_create)(Handle *, unsigned);
    Result (*graph_add)(Handle *, Handle, const Handle *, size_t, const NodeParams *);
    Result (*graph_instantiate)(Handle *, Handle, unsigned long long);
    Result (*graph_launch)(Handle, Handle);
    Result (*graph_destroy)(Handle);
    Result (*exec_destroy)(Handle);
    Result (*error_string)(Result, const char **);
} driver;

static const struct { const char *name; void **place; } symbols[] = {
    {"cuLaunchKernel", (void **)&driver.launch},
    {"cuStreamIsCapturing", (void **)&driver.capturing},
    {"cuGraphCreate", (void **)&driver.graph_create},
    {"cuGraphAddKernelNode_v2", (void **)&driver.graph_add},
    {"cuGraphInstantiateWithFlags", (void **)&driver.graph_instantiate},
    {"cuGraphLaunch", (void **)&driver.graph_launch},
    {"cuGraphDestroy", (void **)&driver.graph_destroy},
    {"cuGraphExecDestroy", (void **)&driver.exec_destroy},
    {"cuGetErrorString", (void **)&driver.error_string},
};

/* cuda_open(path): open the driver's library; OSError says what it lacks. */
static PyObject *cuda_open(PyObject *module, PyObject *path) {
    const char *name = PyUnicode_AsUTF8(path);
    if (!name) return NULL;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return PyErr_Format(PyExc_OSError, "%s", dlerror());
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; ++k) {
        void *symbol = dlsym(library, symbols[k].name);
        if (!symbol) {
            driver.library = NULL;
            return PyErr_Format(PyExc_OSError, "%s has no %s, which came with CUDA 12", name, symbols[k].name);
        }
        *symbols[k].place = symbol;
    }
    driver.library = library;
    Py_RETURN_NONE;
}

/* ---- segments */

enum { GRAPHS = 4, SEEN = 8, LARGEST = 64 };

typedef struct {
    int tensor;    /* whose address it is, `value` bytes further; or -1 for a number of `size` bytes */
    int size;
    int64_t value;
} Param;

typedef struct {
    Handle function;
    unsigned grid, threads, shared;
    int first, count; /* of the segment's params */
} Launch;

typedef struct {
    Handle exec;
    uint64_t *addresses;
} Replay;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fallback, *stream, *current_device, *keep;
    int tensors, device, prepared, launch_count, graph_from;
    Launch *launches;
    Param *params;
    pthread_mutex_t lock;
    Replay replays[GRAPHS];
    uint64_t seen[SEEN]; /* hashes of the addresses that came last and have no graph */
    int next_replay, next_seen;
    long long replayed, launched;
} Segment;

static PyObject *data_ptr_name;

static int read_param(PyObject *item, Param *param, int tensors) {
    const char *kind;
    long long value;
    int tensor = -1;
    if (!PyArg_ParseTuple(item, "siL", &kind, &tensor, &value)) return -1;
    param->value = value;
    param->tensor = -1;
    param->size = 8;
    if (!strcmp(kind, "address")) {
        if (tensor < 0 || tensor >= tensors) {
            PyErr_Format(PyExc_ValueError, "there is no tensor %d among %d", tensor, tensors);
            return -1;
        }
        param->tensor = tensor;
    } else if (!strcmp(kind, "i32")) {
        param->size = 4;
    } else if (strcmp(kind, "i64")) {
        PyErr_Format(PyExc_ValueError, "a parameter is an address, i32 or i64, not %s", kind);
        return -1;
    }
    return 0;
}

static int read_launches(Segment *self, PyObject *launches) {
    Py_ssize_t count = PyTuple_GET_SIZE(launches), params = 0;
    self->launches = PyMem_Calloc(count + 1, sizeof(Launch));
    if (!self->launches) return PyErr_NoMemory(), -1;
    for (Py_ssize_t k = 0; k < count; ++k) {
        unsigned long long function;
        PyObject *list;
        Launch *launch = &self->launches[k];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(launches, k), "KIIIO!", &function, &launch->grid, &launch->threads,
                              &launch->shared, &PyTuple_Type, &list))
            return -1;
        launch->function = (Handle)(uintptr_t)function;
        launch->first = (int)params;
        launch->count = (int)PyTuple_GET_SIZE(list);
        if (launch->count > LARGEST) {
            PyErr_Format(PyExc_ValueError, "a launch has %d parameters; at most %d are supported", launch->count, LARGEST);
            return -1;
        }
        Param *grown = PyMem_Realloc(self->params, (params + launch->count + 1) * sizeof(Param));
        if (!grown) return PyErr_NoMemory(), -1;
        self->params = grown;
        for (int n = 0; n < launch->count; ++n)
            if (read_param(PyTuple_GET_ITEM(list, n), &self->params[params++], self->tensors) < 0) return -1;
    }
    self->launch_count = (int)count;
    return 0;
}

/* Point `pointers` at the values of one launch's parameters, which lie in `values`. */
static void fill(const Segment *self, const Launch *launch, const uint64_t *addresses, uint64_t *values, void **pointers) {
    for (int n = 0; n < launch->count; ++n) {
        const Param *param = &self->params[launch->first + n];
        values[n] = param->tensor < 0 ? (uint64_t)param->value : addresses[param->tensor] + (uint64_t)param->value;
        pointers[n] = &values[n]; /* little-endian: the low 4 bytes of an i32 come first */
    }
}

static Result launch_all(const Segment *self, Handle stream, const uint64_t *addresses) {
    uint64_t values[LARGEST];
    void *pointers[LARGEST];
    for (int k = 0; k < self->launch_count; ++k) {
        const Launch *launch = &self->launches[k];
        fill(self, launch, addresses, values, pointers);
        Result result = driver.launch(launch->function, launch->grid, 1, 1, launch->threads, 1, 1, launch->shared, stream,
                                      pointers, NULL);
        if (result) return result;
    }
    return 0;
}

static Result build(const Segment *self, const uint64_t *addresses, Handle *exec) {
    Handle graph, node = NULL;
    uint64_t values[LARGEST];
    void *pointers[LARGEST];
    Result result = driver.graph_create(&graph, 0);
    if (result) return result;
    for (int k = 0; !result && k < self->launch_count; ++k) {
        const Launch *launch = &self->launches[k];
        Handle before = node;
        fill(self, launch, addresses, values, pointers); /* the driver copies them */
        NodeParams params = {launch->function, {launch->grid, 1, 1}, {launch->threads, 1, 1}, launch->shared, pointers, NULL, NULL, NULL};
        result = driver.graph_add(&node, graph, k ? &before : NULL, k ? 1 : 0, &params);
    }
    if (!result) result = driver.graph_instantiate(exec, graph, 0);
    driver.graph_destroy(graph);
    return result;
}

static uint64_t hashed(const uint64_t *addresses, int count) {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (int k = 0; k < count; ++k) {
        hash = (hash ^ addresses[k]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

/* The graph of these addresses: one that is there, or, if they came before, a new one in the oldest one's place. */
static Result replay_of(Segment *self, const uint64_t *addresses, Handle *exec) {
    size_t size = (size_t)self->tensors * sizeof *addresses;
    *exec = NULL;
    for (int k = 0; k < GRAPHS; ++k)
        if (self->replays[k].exec && !memcmp(self->replays[k].addresses, addresses, size)) {
            *exec = self->replays[k].exec;
            return 0;
        }
    uint64_t hash = hashed(addresses, self->tensors);
    int known = 0;
    for (int k = 0; k < SEEN; ++k) known |= self->seen[k] == hash;
    if (!known) {
        self->seen[self->next_seen++ % SEEN] = hash;
        return 0;
    }
    Replay *replay = &self->replays[self->next_replay++ % GRAPHS];
    if (!replay->addresses && !(replay->addresses = malloc(size + 1))) return 0;
    Handle made = NULL;
    Result result = build(self, addresses, &made);
    if (result) return result;
    if (replay->exec) driver.exec_destroy(replay->exec); /* one in flight ends first */
    replay->exec = made;
    memcpy(replay->addresses, addresses, size);
    *exec = made;
    return 0;
}

static Result run(Segment *self, Handle stream, const uint64_t *addresses) {
    if (self->launch_count < self->graph_from) {
        self->launched += self->launch_count;
        return launch_all(self, stream, addresses);
    }
    int capturing = 0;
    Result result = driver.capturing(stream, &capturing);
    if (result) return result;
    pthread_mutex_lock(&self->lock);
    Handle exec = NULL;
    if (!capturing) result = replay_of(self, addresses, &exec);
    if (!result && exec) {
        result = driver.graph_launch(exec, stream);
        ++self->replayed;
    } else if (!result) {
        result = launch_all(self, stream, addresses);
        self->launched += self->launch_count;
    }
    pthread_mutex_unlock(&self->lock);
    return result;
}

/* What a function of torch's, called without arguments, says: a device's number or a stream's address. */
static int ask(PyObject *function, PyObject *argument, uint64_t *answer) {
    PyObject *value = argument ? PyObject_CallOneArg(function, argument) : PyObject_CallNoArgs(function);
    if (!value) return -1;
    *answer = PyLong_AsUnsignedLongLong(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int address_of(PyObject *tensor, uint64_t *address) {
    PyObject *value = PyObject_CallMethodNoArgs(tensor, data_ptr_name);
    if (!value) return -1;
    *address = PyLong_AsUnsignedLongLong(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

/* segment(tensors): launch on the current stream. Kernels were compiled for addresses that are multiples of 16. */
static PyObject *segment_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    Segment *self = (Segment *)callable;
    if (PyVectorcall_NARGS(flags) != 1 || names || !PyList_Check(args[0]) || PyList_GET_SIZE(args[0]) != self->tensors)
        return PyErr_Format(PyExc_TypeError, "a segment takes a list of its %d tensors", self->tensors);
    uint64_t addresses[self->tensors + 1], device, stream;
    if (!self->prepared) return PyObject_CallOneArg(self->fallback, args[0]);
    for (int k = 0; k < self->tensors; ++k) {
        if (address_of(PyList_GET_ITEM(args[0], k), &addresses[k]) < 0) return NULL;
        if (addresses[k] % 16) return PyObject_CallOneArg(self->fallback, args[0]);
    }
    if (ask(self->current_device, NULL, &device) < 0) return NULL;
    if ((int)device != self->device) return PyObject_CallOneArg(self->fallback, args[0]);
    PyObject *number = PyLong_FromLong(self->device);
    int failed = !number || ask(self->stream, number, &stream) < 0;
    Py_XDECREF(number);
    if (failed) return NULL;
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = run(self, (Handle)(uintptr_t)stream, addresses);
    Py_END_ALLOW_THREADS
    if (result) {
        const char *words = NULL;
        driver.error_string(result, &words);
        return PyErr_Format(PyExc_RuntimeError, "the CUDA driver refused a launch: %s (error %d)", words ? words : "unknown",
                            result);
    }
    Py_RETURN_NONE;
}

static int segment_traverse(Segment *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->fallback);
    Py_VISIT(self->stream);
    Py_VISIT(self->current_device);
    Py_VISIT(self->keep);
    return 0;
}

static int segment_clear(Segment *self) {
    Py_CLEAR(self->fallback);
    Py_CLEAR(self->stream);
    Py_CLEAR(self->current_device);
    Py_CLEAR(self->keep);
    return 0;
}

static void segment_dealloc(Segment *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int k = 0; k < GRAPHS; ++k) {
        if (self->replays[k].exec) driver.exec_destroy(self->replays[k].exec);
        free(self->replays[k].addresses);
    }
    segment_clear(self); /* after the graphs: it holds the kernels' modules */
    PyMem_Free(self->launches);
    PyMem_Free(self->params);
    pthread_mutex_destroy(&self->lock);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Segment(tensors, fallback, graph_from): a segment of this many tensors that is not prepared yet. */
static PyObject *segment_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"tensors", "fallback", "graph_from", NULL};
    PyObject *fallback;
    int tensors, graph_from;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOi", names, &tensors, &fallback, &graph_from)) return NULL;
    Segment *self = (Segment *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    pthread_mutex_init(&self->lock, NULL);
    self->vectorcall = segment_call;
    self->fallback = Py_NewRef(fallback);
    self->tensors = tensors;
    self->graph_from = graph_from;
    return (PyObject *)self;
}

/* prepare(launches, device, current_device, stream, keep): a launch is (function, grid, threads, shared bytes, params), a
   parameter ("address", tensor, offset), ("i32", 0, value) or ("i64", 0, value). `current_device()` and `stream(device)`
   are torch's; `keep` lives as long as the segment. The first preparation holds. */
static PyObject *segment_prepare(PyObject *object, PyObject *args) {
    Segment *self = (Segment *)object;
    PyObject *launches, *current_device, *stream, *keep;
    int device;
    if (!PyArg_ParseTuple(args, "O!iOOO", &PyTuple_Type, &launches, &device, &current_device, &stream, &keep)) return NULL;
    if (!driver.library) return PyErr_Format(PyExc_RuntimeError, "cuda_open comes before the first segment");
    if (self->launches) Py_RETURN_NONE; /* another thread was faster */
    if (read_launches(self, launches) < 0) return NULL;
    self->device = device;
    self->current_device = Py_NewRef(current_device);
    self->stream = Py_NewRef(stream);
    self->keep = Py_NewRef(keep);
    self->prepared = 1;
    Py_RETURN_NONE;
}

static PyObject *segment_counts(PyObject *object, void *closure) {
    Segment *self = (Segment *)object;
    return Py_BuildValue("{sLsL}", "launched", self->launched, "replayed", self->replayed);
}

static PyMemberDef segment_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Segment, vectorcall), READONLY},
    {NULL},
};

static PyMethodDef segment_methods[] = {
    {"prepare", segment_prepare, METH_VARARGS, "prepare(launches, device, current_device, stream, keep)"},
    {NULL},
};

static PyGetSetDef segment_properties[] = {
    {"counts", segment_counts, NULL, "How many kernels were launched one by one, and how many graphs replayed."},
    {NULL},
};

static PyType_Slot segment_slots[] = {
    {Py_tp_new, segment_new},
    {Py_tp_dealloc, segment_dealloc},
    {Py_tp_traverse, segment_traverse},
    {Py_tp_clear, segment_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, segment_members},
    {Py_tp_methods, segment_methods},
    {Py_tp_getset, segment_properties},
    {0, NULL},
};

static PyType_Spec segment_spec = {
    "fuser._native.Segment", sizeof(Segment), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, segment_slots,
};

static PyMethodDef functions[] = {
    {"cuda_open", cuda_open, METH_O, "cuda_open(path): open the driver's library."},
    {NULL},
};

int add_cuda(PyObject *module) {
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    PyObject *type = PyType_FromSpec(&segment_spec);
    if (!data_ptr_name || !type) return -1;
    int status = PyModule_AddObjectRef(module, "Segment", type);
    Py_DECREF(type);
    return status < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
