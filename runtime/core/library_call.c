/* What the routines of CUDA's libraries have in common: how they are opened, kept, and tried in a capture. */
#include "library_call.h"
#include <dlfcn.h>

static const char kind[] = "fuser.library_call";

static void destroy(PyObject *capsule) {
    LibraryCall *call = PyCapsule_GetPointer(capsule, kind);
    call->destroy(call);
    PyMem_Free(call);
}

PyObject *new_library_call(LibraryCall *call) { return PyCapsule_New(call, kind, destroy); }

LibraryCall *library_call_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, kind); }

void *open_library(const char *path, const Symbol *symbols, int count) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    for (int k = 0; k < count; k++)
        if ((*symbols[k].place = dlsym(library, symbols[k].name)) == NULL)
            return PyErr_Format(PyExc_OSError, "%s has no %s", path, symbols[k].name);
    return library;
}

/* ---- addresses of a stack */

static const char addresses_text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry set_addresses(.param .u64 table, .param .u64 start, .param .s64 stride, .param .s32 count)\n"
    "{\n.reg .pred %beyond;\n.reg .b32 %number, %block, %threads, %count;\n.reg .b64 %table, %start, %stride, %offset;\n"
    "ld.param.u64 %table, [table];\nld.param.u64 %start, [start];\nld.param.s64 %stride, [stride];\nld.param.s32 %count, [count];\n"
    "mov.u32 %number, %tid.x;\nmov.u32 %block, %ctaid.x;\nmov.u32 %threads, %ntid.x;\n"
    "mad.lo.s32 %number, %block, %threads, %number;\nsetp.ge.s32 %beyond, %number, %count;\n@%beyond ret;\n"
    "cvt.s64.s32 %offset, %number;\nmad.lo.s64 %start, %offset, %stride, %start;\n"
    "cvta.to.global.u64 %table, %table;\nmad.wide.s32 %table, %number, 8, %table;\nst.global.u64 [%table], %start;\nret;\n}\n";

int load_addresses(void) {
    Handle module;
    if (here()->addresses != NULL)
        return 0;
    bool failed = check(driver.module_load(&module, addresses_text), "the code of addresses") < 0 ||
                  check(driver.module_function(&here()->addresses, module, "set_addresses"), "the code of addresses") < 0;
    return failed ? -1 : 0;
}

Status set_addresses(Address table, Address first, int64_t stride, int count, Handle stream) {
    enum { THREADS = 128 };
    void *params[] = {&table, &first, &stride, &count};
    return driver.launch(here()->addresses, (count + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL);
}

/* ---- trials */

static Status tried(LibraryCall *call, const Address *at) {
    Handle stream = trial_stream(), graph = NULL;
    Status result = stream == NULL ? 1 : driver.capture_begin(stream, 2); /* relaxed */
    if (result)
        return result;
    result = call->run(call, at, stream);
    Status end = driver.capture_end(stream, &graph);
    if (graph != NULL)
        driver.graph_destroy(graph);
    return result ? result : end;
}

/* After a capture that failed: the library's CUDA runtime keeps the error until somebody asks for it, and cuSOLVER takes it for that of its
   next call. Calls on zeros, until one succeeds, take it away. */
static void take_error(LibraryCall *call, const Address *at, const size_t *bytes, Handle stream) {
    enum { MOST_CALLS = 4 };
    for (int n = 0; n < MOST_CALLS; n++) {
        for (int k = 0; k <= call->arrays; k++)
            if (bytes[k] && driver.set8(at[k], 0, bytes[k], stream))
                return;
        if (call->run(call, at, stream) == 0)
            return;
    }
}

/* library_captures(call, sizes): whether a graph can hold the call, whose arrays have so many bytes; without sizes it is known that none
   can. */
static PyObject *library_captures(PyObject *module, PyObject *args) {
    CONTEXT_GUARD(guard);
    PyObject *capsule, *sizes;
    LibraryCall *call;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &sizes) || (call = library_call_of(capsule)) == NULL)
        return NULL;
    if (sizes == Py_None) {
        call->uncapturable = true;
        Py_RETURN_FALSE;
    }
    if (!PyTuple_Check(sizes))
        return PyErr_Format(PyExc_TypeError, "sizes are a tuple or None, got %R", sizes);
    if (PyTuple_GET_SIZE(sizes) != call->arrays)
        return PyErr_Format(PyExc_ValueError, "the call has %d arrays", call->arrays);
    Address at[MOST_ARRAYS + 1] = {0};
    size_t blocks[MOST_ARRAYS + 1] = {0}, all[MOST_ARRAYS + 1] = {0};
    Handle stream = enter_device(&guard) < 0 ? NULL : current_stream();
    for (int k = 0; stream != NULL && !PyErr_Occurred() && k <= call->arrays; k++) {
        size_t bytes = k == call->arrays ? call->workspace : PyLong_AsSize_t(PyTuple_GET_ITEM(sizes, k));
        all[k] = bytes;
        if (bytes && !PyErr_Occurred())
            at[k] = take_device_memory(bytes, stream, &blocks[k], NULL);
    }
    call->uncapturable = !PyErr_Occurred() && tried(call, at) != 0;
    if (call->uncapturable)
        take_error(call, at, all, stream);
    for (int k = 0; k <= call->arrays; k++)
        if (blocks[k])
            give_device_memory(at[k], blocks[k], stream, here());
    return PyErr_Occurred() ? NULL : PyBool_FromLong(!call->uncapturable);
}

static PyObject *library_workspace(PyObject *module, PyObject *capsule) {
    LibraryCall *call = library_call_of(capsule);
    return call == NULL ? NULL : PyLong_FromSize_t(call->workspace);
}

static PyMethodDef functions[] = {
    {"library_captures", library_captures, METH_VARARGS, "library_captures(call, sizes): whether a graph can hold the call."},
    {"library_workspace", library_workspace, METH_O, "The bytes that a call works in."},
    {NULL},
};

int add_library_call(PyObject *module) { return PyModule_AddFunctions(module, functions); }
