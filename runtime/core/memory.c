/* CPU memory: the pool of fuser/runtime/pool.py in C, which says what is kept, reused and counted.

   A block begins with a Header, then 64-byte aligned memory. Idle blocks hang in two lists: those of their size, newest
   first, and all of them by age. The mutex is never held while Python or the system is called, so that blocks may come
   back from anywhere: a garbage collection, a thread without the GIL, a forked child. */
#include "core.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL ((size_t)64 << 10)        /* bytes below which blocks come from malloc and are not counted */
#define SMALL_IDLE ((size_t)8 << 20)    /* bytes of such blocks that may lie idle */
#define ALIGNED ((size_t)2 << 10)          /* bytes of an array from which it begins at a multiple of 64, as vectors like it */
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)4096)
#define ASK_WHEN_FRESH ((size_t)256 << 20) /* from here on a fresh block is first compared with what the system has left */
#define SHOWN_DIMS 8

/* The owner of an array's memory: the base of the array and, so, of all its views. */
typedef struct {
    PyObject_HEAD
    void *data;
    PyObject *label; /* may be NULL */
    PyArray_Descr *dtype;
    int ndim; /* of the array that it was made for; -1 if there are more than can be shown */
    npy_intp dims[SHOWN_DIMS];
} Block;

typedef struct Header {
    struct Header *older, *newer; /* of all that are idle, or of all that live */
    struct Header *below;         /* idle, of the same size; singly linked where it suffices, see unhang */
    struct Header *above;
    size_t size; /* usable bytes */
    void *mapping;
    size_t mapped; /* bytes of the mapping; 0 for a block from malloc */
    Block *block;    /* NULL if no array owns it */
    PyObject *label; /* of a large block that none owns: whose it is; may be NULL */
} Header;

#define ROOM 128 /* bytes of a header, with the alignment of what follows */
_Static_assert(sizeof(Header) <= ROOM, "a header must leave the memory behind it aligned");

static struct {
    pthread_mutex_t mutex;
    Header *tops[2][64 * 16]; /* of small and of large blocks, by class */
    Header idle, live;        /* the ends of two rings of large blocks */
    size_t idle_bytes, small_idle, in_use, peak, bound, physical;
    int64_t limit;
    uint64_t allocations, reuses;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .bound = (size_t)1 << 62, .physical = SIZE_MAX};
static _Thread_local int64_t own_limit = -1; /* of this thread; -1 = as the process */

static void lock(void) { pthread_mutex_lock(&pool.mutex); }
static void unlock(void) { pthread_mutex_unlock(&pool.mutex); }

static Header *header_of(void *data) { return (Header *)((char *)data - ROOM); }
static void *data_of(Header *header) { return (char *)header + ROOM; }

static int bit_length(size_t value) { return value == 0 ? 0 : 64 - __builtin_clzl(value); }

/* Quarter steps of a power of two, eighths from 2 MiB on. */
static size_t block_size(size_t size) {
    size_t least = size < SMALL ? 64 : size <= HUGE_PAGE ? PAGE : HUGE_PAGE;
    if (size <= 64)
        return 64;
    size_t step = (size_t)1 << (bit_length(size - 1) - (size <= HUGE_PAGE ? 3 : 4));
    step = step > least ? step : least;
    return (size + step - 1) / step * step;
}

static Header **top_of(const Header *header) {
    int bits = bit_length(header->size - 1);
    return &pool.tops[header->mapped > 0][bits * 16 + ((header->size - 1) >> (bits - 4) & 15)];
}

/* -- lists; all of these under the mutex */

static void join_ring(Header *ring, Header *header) {
    header->older = ring->older;
    header->newer = ring;
    ring->older->newer = header;
    ring->older = header;
}

static void leave_ring(Header *header) {
    header->older->newer = header->newer;
    header->newer->older = header->older;
}

static void hang(Header *header) {
    Header **top = top_of(header);
    header->above = NULL;
    header->below = *top;
    if (*top != NULL)
        (*top)->above = header;
    *top = header;
    if (header->mapped > 0) {
        join_ring(&pool.idle, header);
        pool.idle_bytes += header->size;
    } else {
        pool.small_idle += header->size;
    }
}

static void unhang(Header *header) {
    if (header->below != NULL)
        header->below->above = header->above;
    if (header->above != NULL)
        header->above->below = header->below;
    else
        *top_of(header) = header->below;
    if (header->mapped > 0) {
        leave_ring(header);
        pool.idle_bytes -= header->size;
    } else {
        pool.small_idle -= header->size;
    }
}

/* Take idle blocks out, oldest first, until at most `target` bytes are idle; a chain to be released without the mutex. */
static Header *surplus(size_t target) {
    Header *chain = NULL;
    while (pool.idle_bytes > target) {
        Header *oldest = pool.idle.newer;
        unhang(oldest);
        oldest->below = chain;
        chain = oldest;
    }
    return chain;
}

/* -- the system */

static size_t release(Header *chain) {
    size_t released = 0;
    while (chain != NULL) {
        Header *next = chain->below;
        released += chain->size;
        if (chain->mapped > 0)
            munmap(chain->mapping, chain->mapped);
        else
            free(chain);
        chain = next;
    }
    return released;
}

/* Bytes that the system can still hand out without swapping; the physical memory where it does not say. */
static size_t available_memory(void) {
    size_t available = SIZE_MAX, swap = 0, kilobytes;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemAvailable: %zu", &kilobytes) == 1)
            available = kilobytes << 10;
        else if (sscanf(line, "SwapFree: %zu", &kilobytes) == 1)
            swap = kilobytes << 10;
    }
    if (file != NULL)
        fclose(file);
    available = available == SIZE_MAX ? available : available + swap;
    return available < pool.physical ? available : pool.physical;
}

static Header *fresh_small(size_t size) {
    Header *header = aligned_alloc(64, ROOM + size);
    if (header != NULL)
        *header = (Header){.size = size};
    return header;
}

/* Private memory, so that a forked child does not write into its parent's arrays. */
static Header *fresh_large(size_t size) {
    size_t before = size >= HUGE_PAGE ? HUGE_PAGE : PAGE; /* room for the header and for alignment, mostly untouched */
    if (size > PTRDIFF_MAX - before)
        return NULL;
    char *mapping = mmap(NULL, size + before, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    char *data = (char *)(((uintptr_t)mapping + PAGE + before - 1) / before * before);
    if (size < HUGE_PAGE)
        data = mapping + PAGE;
#ifdef MADV_HUGEPAGE
    else
        madvise(data, size, MADV_HUGEPAGE);
#endif
    Header *header = header_of(data);
    *header = (Header){.size = size, .mapping = mapping, .mapped = size + before};
    return header;
}

static size_t trim_all(void) {
    Header *small = NULL;
    lock();
    Header *chain = surplus(0);
    for (size_t class = 0; class < sizeof pool.tops[0] / sizeof *pool.tops[0]; class++)
        while (pool.tops[0][class] != NULL) {
            Header *header = pool.tops[0][class];
            unhang(header);
            header->below = small;
            small = header;
        }
    unlock();
    release(small);
    return release(chain);
}

/* -- taking and giving */

static int64_t limit_now(void) { return own_limit >= 0 ? own_limit : pool.limit; }

/* Whether the limit refuses so many bytes more. Under the mutex. */
static bool over_limit(size_t size) {
    int64_t limit = limit_now();
    return limit > 0 && pool.in_use + size > (size_t)limit;
}

static Header *take_small(size_t size) {
    Header wanted = {.size = block_size(size)};
    lock();
    Header *header = *top_of(&wanted);
    if (header != NULL)
        unhang(header);
    unlock();
    return header != NULL ? header : fresh_small(wanted.size);
}

static Header *take_large(size_t size, Block *block) {
    Header wanted = {.size = block_size(size), .mapped = 1}, *chain = NULL;
    size = wanted.size;
    lock();
    if (over_limit(size)) {
        unlock();
        return NULL;
    }
    Header *header = *top_of(&wanted);
    pool.in_use += size; /* at once, so that no other thread gets what the limit leaves */
    if (header != NULL) {
        unhang(header);
        pool.reuses++;
    } else {
        int64_t limit = limit_now();
        if (limit > 0 && pool.in_use + pool.idle_bytes > (size_t)limit)
            chain = surplus(0);
        unlock();
        release(chain);
        if (size >= ASK_WHEN_FRESH && size > available_memory())
            trim_all();
        if (size < ASK_WHEN_FRESH || size <= available_memory())
            header = fresh_large(size);
        lock();
        if (header == NULL) {
            pool.in_use -= size;
            unlock();
            return NULL;
        }
    }
    header->block = block;
    header->label = NULL;
    join_ring(&pool.live, header);
    pool.allocations++;
    if (pool.in_use > pool.peak)
        pool.peak = pool.in_use;
    unlock();
    return header;
}

static void *take(size_t size, Block *block) {
    if (size > INT64_MAX / 2)
        return NULL;
    Header *header = size < SMALL ? take_small(size) : take_large(size, block);
    return header == NULL ? NULL : data_of(header);
}

void *pool_take(size_t size) { return take(size, NULL); }

void pool_give(void *data) {
    if (data == NULL)
        return;
    Header *header = header_of(data), *chain = NULL;
    lock();
    if (header->mapped > 0) {
        leave_ring(header);
        header->block = NULL;
        pool.in_use -= header->size;
        hang(header);
        if (pool.idle_bytes > pool.bound)
            chain = surplus(pool.bound);
    } else if (pool.small_idle + header->size <= SMALL_IDLE) {
        hang(header);
    } else {
        chain = header;
        chain->below = NULL;
    }
    unlock();
    if (chain != NULL)
        release(chain);
}

/* As take, and again without garbage and idle blocks if need be. With the GIL. */
static void *take_or_collect(size_t size, Block *block) {
    void *data = take(size, block);
    if (data == NULL && size <= INT64_MAX / 2) {
        PyGC_Collect();
        trim_all();
        data = take(size, block);
    }
    return data;
}

void *take_memory(size_t size, PyObject *label) {
    void *data = take_or_collect(size, NULL);
    if (data == NULL) {
        refuse_memory(size, label);
        return NULL;
    }
    if (header_of(data)->mapped > 0) {
        lock();
        header_of(data)->label = Py_XNewRef(label);
        unlock();
    }
    return data;
}

void give_memory(void *data) {
    PyObject *label = header_of(data)->mapped > 0 ? header_of(data)->label : NULL;
    pool_give(data); /* from now on nobody reads the label */
    Py_XDECREF(label);
}

/* -- errors */

static void refuse(PyObject *size, PyObject *shape, PyObject *dtype, PyObject *label) {
    PyObject *memory = PyImport_ImportModule("fuser.runtime.memory");
    PyObject *error = memory == NULL || size == NULL || shape == NULL
                          ? NULL
                          : PyObject_CallMethod(memory, "refusal", "OOOO", size, shape, dtype, label ? label : Py_None);
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(memory);
    Py_XDECREF(error);
    Py_XDECREF(size);
    Py_XDECREF(shape);
}

void refuse_memory(size_t size, PyObject *label) {
    refuse(PyLong_FromSize_t(size), Py_NewRef(Py_None), Py_None, label);
}

void refuse_step(PyObject *name, PyObject *label) {
    PyObject *type, *error, *traceback, *memory = NULL, *better = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    if ((memory = PyImport_ImportModule("fuser.runtime.memory")) != NULL)
        better = PyObject_CallMethod(memory, "refusal_in_step", "OOO", error, name, label);
    if (better != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(better), better);
        Py_DECREF(better);
    }
    Py_XDECREF(memory);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

/* -- arrays */

static void block_dealloc(Block *self) {
    pool_give(self->data);
    Py_XDECREF(self->label);
    Py_XDECREF(self->dtype);
    PyObject_Free(self);
}

static PyTypeObject block_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Block",
    .tp_doc = "Memory of the pool, on loan: the base of every array made from it. Its death, the last view's, returns it.",
    .tp_basicsize = sizeof(Block),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)block_dealloc,
};

bool owns_memory(PyObject *base) { return base != NULL && Py_TYPE(base) == &block_type; }

/* Bytes of an array, or -1 where no integer holds them. */
static npy_intp bytes_of(int ndim, const npy_intp *dims, npy_intp itemsize) {
    npy_intp bytes = itemsize;
    bool overflow = false;
    for (int k = 0; k < ndim; k++) {
        if (dims[k] == 0)
            return 0;
        overflow |= __builtin_mul_overflow(bytes, dims[k], &bytes);
    }
    return overflow ? -1 : bytes;
}

static void refuse_array(int ndim, const npy_intp *dims, PyArray_Descr *dtype, PyObject *label) {
    PyObject *size = PyLong_FromLong((long)PyDataType_ELSIZE(dtype));
    for (int k = 0; k < ndim && size != NULL; k++) {
        PyObject *extent = PyLong_FromSsize_t(dims[k]);
        Py_SETREF(size, extent == NULL ? NULL : PyNumber_Multiply(size, extent));
        Py_XDECREF(extent);
    }
    refuse(size, PyArray_IntTupleFromIntp(ndim, dims), (PyObject *)dtype, label);
}

static PyObject *new_pooled(int ndim, const npy_intp *dims, PyArray_Descr *dtype, size_t size, PyObject *label) {
    Block *block = PyObject_New(Block, &block_type);
    if (block == NULL)
        return NULL;
    block->label = Py_XNewRef(label);
    block->dtype = (PyArray_Descr *)Py_NewRef((PyObject *)dtype);
    block->ndim = ndim <= SHOWN_DIMS ? ndim : -1;
    if (ndim <= SHOWN_DIMS)
        memcpy(block->dims, dims, ndim * sizeof *dims);
    block->data = take_or_collect(size, block);
    if (block->data == NULL) {
        refuse_array(ndim, dims, dtype, label);
        Py_DECREF(block);
        return NULL;
    }
    Py_INCREF(dtype);
    PyObject *array =
        PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, NULL, block->data, NPY_ARRAY_CARRAY, NULL);
    if (array == NULL)
        Py_DECREF(block);
    else if (PyArray_SetBaseObject((PyArrayObject *)array, (PyObject *)block) < 0)
        Py_CLEAR(array);
    return array;
}

PyObject *new_ndarray(int ndim, const npy_intp *dims, PyArray_Descr *dtype, PyObject *label) {
    npy_intp size = bytes_of(ndim, dims, PyDataType_ELSIZE(dtype));
    if (size < 0) {
        refuse_array(ndim, dims, dtype, label);
        return NULL;
    }
    if ((size_t)size >= ALIGNED)
        return new_pooled(ndim, dims, dtype, size, label);
    Py_INCREF(dtype);
    return PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, NULL, NULL, 0, NULL);
}

/* -- signals */

int poll_signals(void) {
    PyGILState_STATE state = PyGILState_Ensure();
    int raised = PyErr_Occurred() != NULL || PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return raised;
}

/* -- for Python */

static PyObject *empty(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    npy_intp dims[NPY_MAXDIMS];
    if (count < 2 || count > 3 || !PyTuple_Check(args[0]) || !PyArray_DescrCheck(args[1])) {
        PyErr_SetString(PyExc_TypeError, "empty takes a tuple of extents, a dtype and perhaps a label");
        return NULL;
    }
    Py_ssize_t ndim = PyTuple_GET_SIZE(args[0]);
    if (ndim > NPY_MAXDIMS)
        return PyErr_Format(PyExc_ValueError, "an array has at most %d dimensions, got %zd", NPY_MAXDIMS, ndim);
    for (Py_ssize_t k = 0; k < ndim; k++) {
        dims[k] = PyNumber_AsSsize_t(PyTuple_GET_ITEM(args[0], k), PyExc_OverflowError);
        if (dims[k] == -1 && PyErr_Occurred())
            return NULL;
        if (dims[k] < 0) {
            PyErr_SetString(PyExc_ValueError, "negative dimensions are not allowed");
            return NULL;
        }
    }
    return new_ndarray((int)ndim, dims, (PyArray_Descr *)args[1], count > 2 ? args[2] : NULL);
}

static PyObject *memory_stats(PyObject *module, PyObject *unused) {
    lock();
    size_t in_use = pool.in_use, peak = pool.peak, idle = pool.idle_bytes;
    unsigned long long allocations = pool.allocations, reuses = pool.reuses;
    long long limit = limit_now();
    unlock();
    return Py_BuildValue("{sn sn sn sL sK sK}", "bytes_in_use", (Py_ssize_t)in_use, "peak_bytes_in_use",
                         (Py_ssize_t)peak, "pool_bytes", (Py_ssize_t)idle, "limit_bytes", limit, "allocations",
                         allocations, "reuses", reuses);
}

static PyObject *trim(PyObject *module, PyObject *unused) { return PyLong_FromSize_t(trim_all()); }

static PyObject *reset_peak(PyObject *module, PyObject *unused) {
    lock();
    pool.peak = pool.in_use;
    unlock();
    Py_RETURN_NONE;
}

static PyObject *python_block_size(PyObject *module, PyObject *size) {
    size_t bytes = PyLong_AsSize_t(size);
    return bytes == (size_t)-1 && PyErr_Occurred() ? NULL : PyLong_FromSize_t(block_size(bytes));
}

/* set_memory_limit(bytes, of_this_thread); 0 is no limit, and in a thread None means that of the process. */
static PyObject *set_memory_limit(PyObject *module, PyObject *args) {
    PyObject *value;
    int of_thread;
    if (!PyArg_ParseTuple(args, "Op", &value, &of_thread))
        return NULL;
    int64_t limit = value == Py_None ? -1 : PyLong_AsLongLong(value);
    if (limit == -1 && PyErr_Occurred())
        return NULL;
    if (of_thread) {
        own_limit = limit;
    } else {
        lock();
        pool.limit = limit;
        unlock();
    }
    Py_RETURN_NONE;
}

static PyObject *set_memory_bounds(PyObject *module, PyObject *args) {
    Py_ssize_t physical, idle;
    if (!PyArg_ParseTuple(args, "nn", &physical, &idle))
        return NULL;
    lock();
    pool.physical = physical;
    pool.bound = idle;
    unlock();
    Py_RETURN_NONE;
}

/* What is known of a block, under the mutex; the references are taken there because the owner may be about to die. */
typedef struct {
    size_t size;
    PyObject *label, *dtype; /* either may be NULL */
    int ndim;                /* -1: unknown */
    npy_intp dims[SHOWN_DIMS];
} Known;

static void note(Known *known, const Header *header) {
    Block *block = header->block;
    *known = (Known){.size = header->size, .ndim = -1};
    known->label = Py_XNewRef(block != NULL ? block->label : header->label);
    if (block != NULL) {
        known->dtype = Py_NewRef((PyObject *)block->dtype);
        known->ndim = block->ndim;
        memcpy(known->dims, block->dims, sizeof known->dims);
    }
}

static PyObject *described(Known *known) {
    PyObject *shape = known->ndim < 0 ? Py_NewRef(Py_None) : PyArray_IntTupleFromIntp(known->ndim, known->dims);
    PyObject *entry = shape == NULL ? NULL
                                    : Py_BuildValue("(nOOO)", (Py_ssize_t)known->size, shape,
                                                    known->dtype ? known->dtype : Py_None,
                                                    known->label ? known->label : Py_None);
    Py_XDECREF(shape);
    return entry;
}

/* The large blocks on loan, oldest first, as (bytes, shape or None, dtype or None, label or None). */
static PyObject *live(PyObject *module, PyObject *unused) {
    size_t room = 64, count = 0; /* blocks that come meanwhile may find no room */
    lock();
    for (Header *header = pool.live.newer; header != &pool.live; header = header->newer)
        room++;
    unlock();
    Known *known = PyMem_Malloc(room * sizeof *known);
    if (known == NULL)
        return PyErr_NoMemory();
    lock();
    for (Header *header = pool.live.newer; header != &pool.live && count < room; header = header->newer)
        note(&known[count++], header);
    unlock();
    PyObject *result = PyList_New(count);
    for (size_t k = 0; k < count; k++) {
        PyObject *entry = result == NULL ? NULL : described(&known[k]);
        if (entry == NULL)
            Py_CLEAR(result);
        else
            PyList_SET_ITEM(result, k, entry);
        Py_XDECREF(known[k].dtype);
        Py_XDECREF(known[k].label);
    }
    PyMem_Free(known);
    return result;
}

static PyMethodDef functions[] = {
    {"empty", (PyCFunction)(void (*)(void))empty, METH_FASTCALL, "See fuser.runtime.memory, as of all that follow."},
    {"memory_stats", memory_stats, METH_NOARGS, NULL},
    {"trim", trim, METH_NOARGS, NULL},
    {"reset_peak", reset_peak, METH_NOARGS, NULL},
    {"block_size", python_block_size, METH_O, NULL},
    {"live", live, METH_NOARGS, NULL},
    {"set_memory_limit", set_memory_limit, METH_VARARGS, NULL},
    {"set_memory_bounds", set_memory_bounds, METH_VARARGS, NULL},
    {NULL},
};

int add_memory(PyObject *module) {
    static bool ready;
    if (!ready) {
        pool.idle.older = pool.idle.newer = &pool.idle;
        pool.live.older = pool.live.newer = &pool.live;
        pthread_atfork(lock, unlock, unlock); /* or a child would wait for a thread that it does not have */
        ready = true;
    }
    if (PyType_Ready(&block_type) < 0 || PyModule_AddObjectRef(module, "Block", (PyObject *)&block_type) < 0)
        return -1;
    if (PyModule_AddObject(module, "poll_address", PyLong_FromVoidPtr((void *)poll_signals)) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
