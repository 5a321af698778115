/* Opening the CUDA driver's library: its functions by name, the device's context, and the stream that work goes to. */
#include "driver.h"
#include <dlfcn.h>

struct Driver driver;

static const struct { const char *name; void **place; bool conditional; } symbols[] = {
    {"cuInit", (void **)&driver.init, false},
    {"cuDriverGetVersion", (void **)&driver.version, false},
    {"cuDeviceGet", (void **)&driver.device_get, false},
    {"cuDeviceGetCount", (void **)&driver.device_count, false},
    {"cuDeviceGetAttribute", (void **)&driver.device_attribute, false},
    {"cuDeviceGetName", (void **)&driver.device_name, false},
    {"cuDevicePrimaryCtxRetain", (void **)&driver.context_retain, false},
    {"cuCtxGetCurrent", (void **)&driver.context_get, false},
    {"cuCtxSetCurrent", (void **)&driver.context_set, false},
    {"cuGetErrorString", (void **)&driver.error_string, false},
    {"cuMemAllocAsync", (void **)&driver.allocate, false},
    {"cuMemFreeAsync", (void **)&driver.release, false},
    {"cuMemHostAlloc", (void **)&driver.host_allocate, false},
    {"cuPointerGetAttribute", (void **)&driver.pointer_attribute, false},
    {"cuMemcpyHtoDAsync_v2", (void **)&driver.to_device, false},
    {"cuMemcpyDtoHAsync_v2", (void **)&driver.to_host, false},
    {"cuMemcpyDtoDAsync_v2", (void **)&driver.copy, false},
    {"cuMemcpyPeerAsync", (void **)&driver.copy_peer, false},
    {"cuDeviceCanAccessPeer", (void **)&driver.can_access_peer, false},
    {"cuCtxEnablePeerAccess", (void **)&driver.enable_peer, false},
    {"cuDeviceGetDefaultMemPool", (void **)&driver.default_pool, false},
    {"cuMemPoolSetAccess", (void **)&driver.pool_access, false},
    {"cuMemsetD8Async", (void **)&driver.set8, false},
    {"cuMemsetD32Async", (void **)&driver.set32, false},
    {"cuStreamCreate", (void **)&driver.stream_create, false},
    {"cuStreamSynchronize", (void **)&driver.stream_synchronize, false},
    {"cuStreamQuery", (void **)&driver.stream_query, false},
    {"cuStreamWaitEvent", (void **)&driver.stream_wait, false},
    {"cuEventCreate", (void **)&driver.event_create, false},
    {"cuEventRecord", (void **)&driver.event_record, false},
    {"cuEventQuery", (void **)&driver.event_query, false},
    {"cuEventSynchronize", (void **)&driver.event_synchronize, false},
    {"cuEventDestroy_v2", (void **)&driver.event_destroy, false},
    {"cuModuleLoadData", (void **)&driver.module_load, false},
    {"cuModuleGetFunction", (void **)&driver.module_function, false},
    {"cuModuleUnload", (void **)&driver.module_unload, false},
    {"cuFuncSetAttribute", (void **)&driver.function_set, false},
    {"cuLaunchKernel", (void **)&driver.launch, false},
    {"cuTensorMapEncodeTiled", (void **)&driver.map_encode, false},
    {"cuStreamIsCapturing", (void **)&driver.capturing, false},
    {"cuStreamBeginCapture_v2", (void **)&driver.capture_begin, false},
    {"cuStreamEndCapture", (void **)&driver.capture_end, false},
    {"cuGraphInstantiateWithFlags", (void **)&driver.graph_instantiate, false},
    {"cuGraphExecUpdate_v2", (void **)&driver.graph_update, false},
    {"cuGraphLaunch", (void **)&driver.graph_launch, false},
    {"cuGraphDestroy", (void **)&driver.graph_destroy, false},
    {"cuGraphExecDestroy", (void **)&driver.exec_destroy, false},
    {"cuStreamGetCaptureInfo_v2", (void **)&driver.capture_info, true},
    {"cuStreamUpdateCaptureDependencies", (void **)&driver.capture_depend, true},
    {"cuStreamBeginCaptureToGraph", (void **)&driver.capture_into, true},
    {"cuGraphAddNode", (void **)&driver.graph_node, true},
    {"cuGraphConditionalHandleCreate", (void **)&driver.graph_condition, true},
};

enum { CONDITIONAL_FROM = 12040, NON_BLOCKING = 1 };

static PyObject *foreign_stream; /* torch's: from a device's number to its current stream */
static Device devices[MOST_DEVICES];
static uint64_t reached[MOST_DEVICES]; /* of each device the bits of those whose memory it has asked to read */
static Device *first = devices;        /* that was opened */
static _Thread_local Device *chosen;   /* by cuda_use */

Device *here(void) { return chosen != NULL ? chosen : first; }

Device *choose_device(Device *device) {
    Device *before = chosen;
    chosen = device;
    return before;
}

/* The error of a library's status. */
static void refuse_library(Status result) {
    if (result >= OF_SOLVER)
        PyErr_Format(PyExc_RuntimeError, "cuSOLVER or cuBLAS refused a call (status %d)", result - OF_SOLVER);
    else if (result >= OF_FFT)
        PyErr_Format(PyExc_RuntimeError, "cuFFT refused a transform (status %d)", result - OF_FFT);
    else if (result >= OF_NCCL)
        PyErr_Format(PyExc_RuntimeError, "NCCL refused a collective: %s (status %d)", nccl_words(result - OF_NCCL), result - OF_NCCL);
    else
        PyErr_Format(PyExc_RuntimeError, "cuBLASLt refused a product (status %d)", result - OF_BLAS);
}

int check(Status result, const char *what) {
    if (result == 0)
        return 0;
    const char *words = NULL;
    if (result >= OF_BLAS)
        return refuse_library(result), -1;
    driver.error_string(result, &words);
    PyErr_Format(PyExc_RuntimeError, "the CUDA driver refused %s: %s (error %d)", what, words ? words : "unknown", result);
    return -1;
}

int enter_context(ContextGuard *guard, const Device *device) {
    Handle current = NULL;
    if (driver.library == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the CUDA driver is not open; cuda_open comes first");
        return -1;
    }
    if (check(driver.context_get(&current), "the current context") < 0)
        return -1;
    if (current == device->context)
        return 0;
    if (check(driver.context_set(device->context), "a context") < 0)
        return -1;
    if (guard->before == NULL)
        guard->before = current;
    return 0;
}

int enter_device(ContextGuard *guard) { return enter_context(guard, here()); }

void leave_device(ContextGuard *guard) {
    if (guard->before != NULL)
        driver.context_set(guard->before);
    guard->before = NULL;
}

Handle stream_of(const Device *device) {
    if (foreign_stream == NULL)
        return device->own_stream;
    PyObject *number = PyLong_FromLong(device->number);
    PyObject *stream = number == NULL ? NULL : PyObject_CallOneArg(foreign_stream, number);
    Py_XDECREF(number);
    if (stream == NULL)
        return NULL;
    Handle found = PyLong_AsVoidPtr(stream);
    Py_DECREF(stream);
    return found == NULL && PyErr_Occurred() == NULL ? (Handle)1 : found;
}

Handle current_stream(void) { return stream_of(here()); }

static Handle recording_stream(Handle *stream) {
    if (*stream == NULL)
        driver.stream_create(stream, NON_BLOCKING);
    return *stream;
}

Handle capture_stream(int number) {
    return number >= CAPTURE_STREAMS ? NULL : recording_stream(&here()->capture_streams[number]);
}

Handle side_stream(bool captured) { return recording_stream(&here()->side_streams[captured]); }

Handle trial_stream(void) { return recording_stream(&here()->trial_stream); }

static int find_symbols(void *library, const char *path) {
    driver.conditional = true;
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++) {
        *symbols[k].place = dlsym(library, symbols[k].name);
        if (*symbols[k].place != NULL)
            continue;
        driver.conditional = false;
        if (symbols[k].conditional)
            continue;
        PyErr_Format(PyExc_OSError, "%s has no %s, which came with CUDA 12", path, symbols[k].name);
        return -1;
    }
    return 0;
}

Device *device_of(int number) {
    CONTEXT_GUARD(guard);
    int ordinal;
    if (number < 0 || number >= MOST_DEVICES)
        return PyErr_Format(PyExc_ValueError, "a process uses the GPUs 0 to %d, got %d", MOST_DEVICES - 1, number), NULL;
    Device *device = &devices[number];
    if (device->context != NULL)
        return device;
    Handle context;
    device->number = number;
    if (check(driver.device_get(&ordinal, number), "the device") < 0 || check(driver.context_retain(&context, ordinal), "a context") < 0)
        return NULL;
    device->context = context;
    pthread_mutex_init(&device->capturing, NULL);
    if (enter_context(&guard, device) == 0 && check(driver.stream_create(&device->own_stream, NON_BLOCKING), "a stream") == 0)
        return device;
    device->context = NULL;
    return NULL;
}

void reach_peer(const Device *device, const Device *other) {
    enum { A_DEVICE = 1, READ_AND_WRITE = 3 };
    CONTEXT_GUARD(guard);
    int can = 0;
    Handle pool;
    if (reached[device->number] >> other->number & 1)
        return;
    reached[device->number] |= (uint64_t)1 << other->number;
    if (driver.can_access_peer(&can, device->number, other->number) || !can)
        return; /* then the driver copies through the host by itself */
    if (enter_context(&guard, device) < 0) {
        PyErr_Clear();
        return;
    }
    driver.enable_peer(other->context, 0); /* what other libraries allocate there; they may have asked before */
    PoolAccess access = {A_DEVICE, device->number, READ_AND_WRITE};
    if (!driver.default_pool(&pool, other->number)) /* what we do */
        driver.pool_access(pool, &access, 1);
}

static int start_device(int number) {
    int version;
    memset(devices, 0, sizeof devices);
    memset(reached, 0, sizeof reached);
    if (check(driver.init(0), "to start") < 0 || check(driver.version(&version), "its version") < 0)
        return -1;
    Device *found = device_of(number);
    if (found == NULL)
        return -1;
    first = found;
    chosen = NULL;
    driver.conditional &= version >= CONDITIONAL_FROM;
    return 0;
}

/* cuda_use(number): the calling thread works on that device from now on; None: on the one that was opened first. Gives the
   number of the one before. */
static PyObject *cuda_use(PyObject *module, PyObject *number) {
    int before = here()->number;
    if (driver.library == NULL)
        return PyErr_Format(PyExc_RuntimeError, "the CUDA driver is not open; cuda_open comes first");
    if (number == Py_None) {
        chosen = NULL;
        return PyLong_FromLong(before);
    }
    int wanted = (int)PyLong_AsLong(number);
    Device *found = PyErr_Occurred() ? NULL : device_of(wanted);
    if (found == NULL)
        return NULL;
    chosen = found;
    return PyLong_FromLong(before);
}

/* cuda_count(): how many devices the driver has. */
static PyObject *cuda_count(PyObject *module, PyObject *ignored) {
    int count = 0;
    if (driver.library != NULL && check(driver.device_count(&count), "the number of devices") < 0)
        return NULL;
    return PyLong_FromLong(Py_MIN(count, MOST_DEVICES));
}

/* cuda_open(path, device, stream): open the driver's library for a device; `stream(device)` is torch's current stream, or
   None for one of our own. OSError says what the library lacks. */
static PyObject *cuda_open(PyObject *module, PyObject *args) {
    const char *path;
    int device;
    PyObject *stream;
    if (!PyArg_ParseTuple(args, "siO", &path, &device, &stream))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    driver.library = NULL;
    if (find_symbols(library, path) < 0)
        return NULL;
    driver.library = library;
    Py_XSETREF(foreign_stream, stream == Py_None ? NULL : Py_NewRef(stream));
    if (start_device(device) < 0) {
        driver.library = NULL;
        return NULL;
    }
    Py_RETURN_NONE;
}

/* cuda_attribute(number): an integer that the driver knows of the device (CUdevice_attribute). */
static PyObject *cuda_attribute(PyObject *module, PyObject *number) {
    CONTEXT_GUARD(guard);
    int value, which = (int)PyLong_AsLong(number);
    if (PyErr_Occurred() || enter_device(&guard) < 0 || check(driver.device_attribute(&value, which, here()->number), "an attribute") < 0)
        return NULL;
    return PyLong_FromLong(value);
}

/* cuda_name(): the device's name, None where no driver is open. */
static PyObject *cuda_name(PyObject *module, PyObject *ignored) {
    char name[256] = "";
    if (driver.library == NULL)
        Py_RETURN_NONE;
    return check(driver.device_name(name, sizeof name - 1, here()->number), "its name") < 0 ? NULL : PyUnicode_FromString(name);
}

static PyObject *cuda_device(PyObject *module, PyObject *ignored) { return PyLong_FromLong(here()->number); }

static PyObject *cuda_conditional(PyObject *module, PyObject *ignored) { return PyBool_FromLong(driver.conditional); }

/* cuda_synchronize(): wait until the current stream is idle. */
static PyObject *cuda_synchronize(PyObject *module, PyObject *ignored) {
    CONTEXT_GUARD(guard);
    Handle stream = enter_device(&guard) < 0 ? NULL : current_stream();
    Status result;
    if (stream == NULL || wait_for_stream(stream) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    result = driver.stream_synchronize(stream);
    Py_END_ALLOW_THREADS
    return check(result, "to wait") < 0 ? NULL : Py_NewRef(Py_None);
}

static void unload(PyObject *capsule) {
    CONTEXT_GUARD(guard);
    if (enter_context(&guard, PyCapsule_GetContext(capsule)) < 0)
        PyErr_WriteUnraisable(capsule);
    else
        driver.module_unload(PyCapsule_GetPointer(capsule, NULL));
}

/* cuda_module(image): the code for a device, kept by the capsule. */
static PyObject *cuda_module(PyObject *module, PyObject *image) {
    CONTEXT_GUARD(guard);
    Handle loaded;
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(image, &bytes, &size) < 0 || enter_device(&guard) < 0 ||
        check(driver.module_load(&loaded, bytes), "generated code") < 0)
        return NULL;
    PyObject *capsule = PyCapsule_New(loaded, NULL, unload);
    if (capsule != NULL)
        PyCapsule_SetContext(capsule, here());
    return capsule;
}

enum { PLAIN_SHARED_BYTES = 48 << 10, MAX_DYNAMIC_SHARED = 8 };

/* cuda_function(module, name, shared): the address of a kernel that may use so many bytes of shared memory. */
static PyObject *cuda_function(PyObject *module, PyObject *args) {
    CONTEXT_GUARD(guard);
    PyObject *capsule;
    const char *name;
    int shared;
    Handle function;
    if (!PyArg_ParseTuple(args, "O!si", &PyCapsule_Type, &capsule, &name, &shared) || enter_device(&guard) < 0 ||
        check(driver.module_function(&function, PyCapsule_GetPointer(capsule, NULL), name), name) < 0)
        return NULL;
    if (shared > PLAIN_SHARED_BYTES && check(driver.function_set(function, MAX_DYNAMIC_SHARED, shared), "its shared memory") < 0)
        return NULL;
    return PyLong_FromVoidPtr(function);
}

static PyMethodDef functions[] = {
    {"cuda_open", cuda_open, METH_VARARGS, "cuda_open(path, device, stream): open the driver's library."},
    {"cuda_attribute", cuda_attribute, METH_O, "An integer that the driver knows of the device."},
    {"cuda_name", cuda_name, METH_NOARGS, "The name of the device that is open, or None."},
    {"cuda_use", cuda_use, METH_O, "The calling thread works on that device; gives the number of the one before."},
    {"cuda_count", cuda_count, METH_NOARGS, "How many devices the driver has."},
    {"cuda_device", cuda_device, METH_NOARGS, "The number of the device that the thread works on."},
    {"cuda_conditional", cuda_conditional, METH_NOARGS, "Whether graphs have IF and WHILE nodes."},
    {"cuda_synchronize", cuda_synchronize, METH_NOARGS, "Wait until the current stream is idle."},
    {"cuda_module", cuda_module, METH_O, "Code for the device, from its image."},
    {"cuda_function", cuda_function, METH_VARARGS, "cuda_function(module, name, shared): a kernel's address."},
    {NULL},
};

int add_driver(PyObject *module) { return PyModule_AddFunctions(module, functions); }
