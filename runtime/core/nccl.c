/* Collectives between GPUs by NCCL, which is opened at run time: what devices send each other, enqueued from C like any other
   operation and captured in graphs. Nothing is reduced here: sums are kernels over what was sent, in a fixed order.

   Communicators do not block: a call that has to wait for others is asked about until it is through or its time is over. All
   connections are made when a communicator is, so that no later call waits for a device that another thread is to serve. */
#include "device_program.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { IN_PROGRESS = 7, TIMED_OUT = 8, BYTES = 0 /* ncclChar */, OLDEST = 21800, ID_BYTES = 128, UNSAID = -2147483647 - 1 };
enum { ASK_NANOSECONDS = 20000, SPINS = 2000, SLICE_SECONDS = 1 };

typedef struct { char bytes[ID_BYTES]; } UniqueId; /* ncclUniqueId */

typedef struct { /* ncclConfig_t of NCCL 2.18, which later ones take */
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, fewest_blocks, most_blocks;
    const char *network;
    int split_share;
} Config;

static struct {
    void *library;
    int (*version)(int *);
    int (*unique_id)(UniqueId *);
    int (*init)(Handle *, int, UniqueId, int, Config *);
    int (*abort)(Handle);
    int (*async_error)(Handle, int *);
    const char *(*error_string)(int);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*gather)(const void *, void *, size_t, int, Handle, Handle);
    int (*broadcast)(const void *, void *, size_t, int, int, Handle, Handle);
    int (*send)(const void *, size_t, int, int, Handle, Handle);
    int (*receive)(void *, size_t, int, int, Handle, Handle);
} nccl;

static const struct { const char *name; void **place; } symbols[] = {
    {"ncclGetVersion", (void **)&nccl.version},
    {"ncclGetUniqueId", (void **)&nccl.unique_id},
    {"ncclCommInitRankConfig", (void **)&nccl.init},
    {"ncclCommAbort", (void **)&nccl.abort},
    {"ncclCommGetAsyncError", (void **)&nccl.async_error},
    {"ncclGetErrorString", (void **)&nccl.error_string},
    {"ncclGroupStart", (void **)&nccl.group_start},
    {"ncclGroupEnd", (void **)&nccl.group_end},
    {"ncclAllGather", (void **)&nccl.gather},
    {"ncclBroadcast", (void **)&nccl.broadcast},
    {"ncclSend", (void **)&nccl.send},
    {"ncclRecv", (void **)&nccl.receive},
};

struct Communicator {
    Handle handle; /* NULL: it was aborted */
    Device *device;
    int count, place; /* of how many devices, and which of them this is */
    atomic_int users, ended; /* threads that are in NCCL's functions with it, and whether they are to come back */
};

static const char kind[] = "fuser.communicator";
static int living;              /* communicators */
static double timeout_seconds = 60;
static PyObject *waiting;       /* waiting(seconds) raises where what is waited for will not come */

const char *nccl_words(int status) {
    return status == TIMED_OUT ? "the other devices did not come in time" : nccl.error_string == NULL ? "unknown" : nccl.error_string(status);
}

Communicator *communicator_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, kind); }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void pause_shortly(void) { nanosleep(&(struct timespec){0, ASK_NANOSECONDS}, NULL); }

/* The result of what a communicator has begun, once it is known. */
static int settled(Communicator *communicator, int result, double deadline) {
    for (int asks = 0; result == IN_PROGRESS; asks++) {
        if (now() > deadline || atomic_load(&communicator->ended))
            return TIMED_OUT;
        if (asks > SPINS)
            pause_shortly();
        int asked = nccl.async_error(communicator->handle, &result);
        if (asked)
            return asked;
    }
    return result;
}

static void *memory(Address address) { return (void *)(uintptr_t)address; }

/* What a device has to do for a transfer beside what NCCL does: its own part, and zeros where nothing comes. */
static Status transfer_alone(const Communicator *own, const Transfer *transfer, Address in, Address out, Handle stream) {
    size_t part = transfer->bytes * (size_t)own->place;
    if (transfer->kind == SWAP)
        return driver.copy(out + part, in + part, transfer->bytes, stream);
    if (transfer->kind != PERMUTE)
        return 0;
    if (transfer->source < 0)
        return driver.set8(out, 0, transfer->bytes, stream);
    return transfer->source == own->place ? driver.copy(out, in, transfer->bytes, stream) : 0;
}

static int begin_transfer(const Communicator *own, const Transfer *transfer, Address in, Address out, Handle stream) {
    size_t bytes = transfer->bytes;
    int result = 0;
    switch (transfer->kind) {
    case GATHER: return nccl.gather(memory(in), memory(out), bytes, BYTES, own->handle, stream);
    case BROADCAST: return nccl.broadcast(memory(in), memory(out), bytes, BYTES, transfer->source, own->handle, stream);
    case SWAP:
        for (int step = 1; step < own->count && (!result || result == IN_PROGRESS); step++) {
            int to = (own->place + step) % own->count, from = (own->place + own->count - step) % own->count;
            result = nccl.send(memory(in + bytes * (size_t)to), bytes, BYTES, to, own->handle, stream);
            if (!result || result == IN_PROGRESS)
                result = nccl.receive(memory(out + bytes * (size_t)from), bytes, BYTES, from, own->handle, stream);
        }
        return result;
    case PERMUTE:
        if (transfer->peer >= 0 && transfer->peer != own->place)
            result = nccl.send(memory(in), bytes, BYTES, transfer->peer, own->handle, stream);
        if ((!result || result == IN_PROGRESS) && transfer->source >= 0 && transfer->source != own->place)
            result = nccl.receive(memory(out), bytes, BYTES, transfer->source, own->handle, stream);
    }
    return result;
}

static Status transfer_all(Communicator *own, const Transfer *transfers, int count, const uint64_t *table, Handle stream) {
    int result = 0;
    if (atomic_load(&own->ended))
        return OF_NCCL + TIMED_OUT;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && (result = nccl.group_start()))
            return OF_NCCL + result;
        for (const Transfer *transfer = transfers; transfer < transfers + count; transfer++) {
            Address in = table[transfer->in.entry] + (uint64_t)transfer->in.offset, out = table[transfer->out.entry] + (uint64_t)transfer->out.offset;
            if (transfer->bytes == 0)
                continue;
            if (!pass) {
                Status alone = transfer_alone(own, transfer, in, out, stream);
                if (alone)
                    return alone;
            } else if ((result = begin_transfer(own, transfer, in, out, stream)) && result != IN_PROGRESS) {
                nccl.group_end();
                return OF_NCCL + result;
            }
        }
    }
    result = settled(own, nccl.group_end(), now() + timeout_seconds);
    return result ? OF_NCCL + result : 0;
}

Status run_transfers(Communicator *own, const Transfer *transfers, int count, const uint64_t *table, Handle stream) {
    atomic_fetch_add(&own->users, 1);
    Status status = transfer_all(own, transfers, count, table, stream);
    atomic_fetch_sub(&own->users, 1);
    return status;
}

/* ---- waiting */

int wait_for_stream(Handle stream) {
    double start = now();
    while (living > 0) {
        Status status = 0;
        Py_BEGIN_ALLOW_THREADS
        double slice = now() + SLICE_SECONDS;
        for (int k = 0; (status = driver.stream_query(stream)) != 0 && status == 600 /* not ready */ && now() < slice; k++)
            if (k > SPINS)
                pause_shortly();
        Py_END_ALLOW_THREADS
        if (status != 600)
            return check(status, "to wait");
        if (PyErr_CheckSignals() < 0)
            return -1;
        PyObject *told = waiting == NULL ? Py_NewRef(Py_None) : PyObject_CallFunction(waiting, "d", now() - start);
        if (told == NULL)
            return -1;
        Py_DECREF(told);
    }
    return 0;
}

/* ---- communicators */

/* NCCL frees what it aborts, so that threads which are in its functions come back first: they ask, and never wait there. */
static void abort_communicator(Communicator *communicator) {
    atomic_store(&communicator->ended, 1);
    if (atomic_load(&communicator->users)) {
        Py_BEGIN_ALLOW_THREADS
        while (atomic_load(&communicator->users))
            pause_shortly();
        Py_END_ALLOW_THREADS
    }
    if (communicator->handle != NULL) { /* no other thread ended it meanwhile */
        nccl.abort(communicator->handle);
        communicator->handle = NULL;
        living--;
    }
}

static void free_communicator(PyObject *capsule) {
    Communicator *communicator = communicator_of(capsule);
    abort_communicator(communicator);
    PyMem_Free(communicator);
}

/* Begin a communicator for each device here, as one group. */
static int begin_all(Communicator **made, int count, const UniqueId *id, double deadline) {
    int result = nccl.group_start();
    for (int k = 0; !result && k < count; k++) {
        Config config = {sizeof config, 0xcafebeef, OLDEST, 0, UNSAID, UNSAID, UNSAID, NULL, UNSAID};
        driver.context_set(made[k]->device->context);
        result = nccl.init(&made[k]->handle, made[k]->count, *id, made[k]->place, &config);
        result = result == IN_PROGRESS ? 0 : result;
    }
    int end = nccl.group_end();
    result = result ? result : end == IN_PROGRESS ? 0 : end;
    for (int k = 0; !result && k < count; k++)
        result = settled(made[k], IN_PROGRESS, deadline);
    return result;
}

/* One byte from each device to each: then all are connected. */
static int connect_all(Communicator **made, int count, double deadline) {
    Address blocks[MOST_DEVICES] = {0};
    int result = 0;
    for (int k = 0; !result && k < count; k++) {
        Handle *stream = &made[k]->device->connecting;
        driver.context_set(made[k]->device->context);
        result = *stream == NULL && driver.stream_create(stream, 1 /* non-blocking */) ? 1 : 0;
        if (!result)
            result = driver.allocate(&blocks[k], 2 * (size_t)made[k]->count, *stream) ? 1 : 0;
    }
    if (!result)
        result = nccl.group_start();
    for (int k = 0; !result && k < count; k++) {
        const Communicator *own = made[k];
        Handle stream = own->device->connecting;
        Transfer swap = {.kind = SWAP, .bytes = 1};
        driver.context_set(own->device->context);
        result = begin_transfer(own, &swap, blocks[k], blocks[k] + (Address)own->count, stream);
        result = result == IN_PROGRESS ? 0 : result;
    }
    if (!result) {
        int end = nccl.group_end();
        for (int k = 0; k < count && (!end || end == IN_PROGRESS); k++)
            end = settled(made[k], IN_PROGRESS, deadline);
        result = end;
    }
    for (int k = 0; k < count; k++) {
        driver.context_set(made[k]->device->context);
        while (!result && driver.stream_query(made[k]->device->connecting) == 600) {
            pause_shortly();
            result = now() > deadline ? TIMED_OUT : 0;
        }
        if (blocks[k] && !result)
            driver.release(blocks[k], made[k]->device->connecting);
    }
    return result;
}

/* nccl_communicators(id, count, ((place, device), ...), timeout): the communicators of these devices of this process, which are
   at these places among `count`. Other processes call it with the same id. */
static PyObject *nccl_communicators(PyObject *module, PyObject *args) {
    CONTEXT_GUARD(guard);
    const char *bytes;
    Py_ssize_t size;
    int count;
    PyObject *own;
    double seconds;
    Communicator *made[MOST_DEVICES];
    if (!PyArg_ParseTuple(args, "y#iO!d", &bytes, &size, &count, &PyTuple_Type, &own, &seconds))
        return NULL;
    int here_count = (int)PyTuple_GET_SIZE(own);
    if (nccl.library == NULL || size != ID_BYTES || here_count > MOST_DEVICES)
        return PyErr_Format(PyExc_ValueError, "nccl_open comes first, an id has %d bytes, and a process at most %d devices", ID_BYTES, MOST_DEVICES);
    PyObject *list = enter_device(&guard) < 0 ? NULL : PyList_New(here_count);
    for (int k = 0; list != NULL && k < here_count; k++) {
        int place, number;
        Device *device = PyArg_ParseTuple(PyTuple_GET_ITEM(own, k), "ii", &place, &number) ? device_of(number) : NULL;
        made[k] = device == NULL ? NULL : PyMem_Calloc(1, sizeof(Communicator));
        PyObject *capsule = made[k] == NULL ? NULL : PyCapsule_New(made[k], kind, free_communicator);
        if (capsule == NULL) {
            Py_CLEAR(list);
            break;
        }
        made[k]->device = device;
        made[k]->count = count;
        made[k]->place = place;
        PyList_SET_ITEM(list, k, capsule);
    }
    if (list == NULL)
        return NULL;
    UniqueId id;
    memcpy(&id, bytes, sizeof id);
    timeout_seconds = seconds;
    int result;
    Py_BEGIN_ALLOW_THREADS
    double deadline = now() + seconds;
    result = begin_all(made, here_count, &id, deadline);
    if (!result && count > 1)
        result = connect_all(made, here_count, deadline);
    driver.context_set(here()->context);
    Py_END_ALLOW_THREADS
    for (int k = 0; k < here_count; k++)
        living += made[k]->handle != NULL;
    if (check(result ? OF_NCCL + result : 0, "a communicator") < 0)
        Py_CLEAR(list);
    return list;
}

/* nccl_abort(communicator): end what it has under way; it cannot be used any more. */
static PyObject *nccl_abort(PyObject *module, PyObject *capsule) {
    Communicator *communicator = communicator_of(capsule);
    if (communicator == NULL)
        return NULL;
    abort_communicator(communicator);
    Py_RETURN_NONE;
}

/* nccl_error(communicator): what went wrong in what it has under way, None for nothing. */
static PyObject *nccl_error(PyObject *module, PyObject *capsule) {
    Communicator *communicator = communicator_of(capsule);
    int result = 0;
    if (communicator == NULL)
        return NULL;
    if (communicator->handle == NULL)
        return PyUnicode_FromString("it was ended");
    nccl.async_error(communicator->handle, &result);
    return result && result != IN_PROGRESS ? PyUnicode_FromString(nccl_words(result)) : Py_NewRef(Py_None);
}

static PyObject *nccl_unique_id(PyObject *module, PyObject *ignored) {
    UniqueId id;
    if (nccl.library == NULL)
        return PyErr_Format(PyExc_RuntimeError, "NCCL is not open; nccl_open comes first");
    int result = nccl.unique_id(&id);
    return check(result ? OF_NCCL + result : 0, "an id") < 0 ? NULL : PyBytes_FromStringAndSize(id.bytes, ID_BYTES);
}

/* nccl_waiting(function): what is asked while a result is waited for, with the seconds so far. */
static PyObject *nccl_waiting(PyObject *module, PyObject *function) {
    Py_XSETREF(waiting, Py_NewRef(function));
    Py_RETURN_NONE;
}

/* nccl_open(path): open NCCL; OSError where it is not there, or too old. */
static PyObject *nccl_open(PyObject *module, PyObject *path) {
    const char *name = PyUnicode_AsUTF8(path);
    void *library = name == NULL ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    if (PyErr_Occurred())
        return NULL;
    if (library == NULL)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++)
        if ((*symbols[k].place = dlsym(library, symbols[k].name)) == NULL)
            return PyErr_Format(PyExc_OSError, "%s has no %s", name, symbols[k].name);
    if (nccl.version(&version) || version < OLDEST)
        return PyErr_Format(PyExc_OSError, "%s is NCCL %d; 2.18 or a later one is needed", name, version);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0); /* connect for all algorithms at once, not at the first use of each */
    nccl.library = library;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"nccl_open", nccl_open, METH_O, "nccl_open(path): open NCCL."},
    {"nccl_unique_id", nccl_unique_id, METH_NOARGS, "The bytes by which processes find each other."},
    {"nccl_communicators", nccl_communicators, METH_VARARGS, "nccl_communicators(id, count, ((place, device), ...), timeout)"},
    {"nccl_abort", nccl_abort, METH_O, "End what a communicator has under way."},
    {"nccl_error", nccl_error, METH_O, "What went wrong in what a communicator has under way."},
    {"nccl_waiting", nccl_waiting, METH_O, "What is asked while a result is waited for."},
    {NULL},
};

int add_nccl(PyObject *module) { return PyModule_AddFunctions(module, functions); }
