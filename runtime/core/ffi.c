/* Calls of foreign functions (fuser/ffi.h) as kernels: what Python has described in size arguments becomes a call.
 *
 *     sizes[0]  the handler             sizes[1]  its attributes     sizes[2]  how many
 *     sizes[3]  arguments               sizes[4]  results            sizes[5]  name for errors, a C string
 *     then of each buffer: dtype, rank, for an argument the result that it shares memory with (-1: none), extents
 */
#include "core.h"
#include <fuser/ffi.h>

enum { MESSAGE = 1024 };

/* The first error of a call stays. */
static void raise_error(const char *name, const char *message) {
    PyGILState_STATE held = PyGILState_Ensure();
    PyObject *module = PyErr_Occurred() ? NULL : PyImport_ImportModule("fuser.errors");
    if (module != NULL) {
        PyObject *kind = PyObject_GetAttrString(module, "JaxRuntimeError");
        if (kind != NULL)
            PyErr_Format(kind, "INTERNAL: the foreign function %s failed: %s", name, message);
        Py_XDECREF(kind);
        Py_DECREF(module);
    }
    PyGILState_Release(held);
}

static void run_foreign(void **buffers, const int64_t *sizes) {
    fuser_ffi_handler handler = (fuser_ffi_handler)(intptr_t)sizes[0];
    int arguments = (int)sizes[3], count = arguments + (int)sizes[4];
    fuser_ffi_buffer described[count + 1];
    char message[MESSAGE] = "";
    const int64_t *next = sizes + 6;
    for (int k = 0; k < count; k++) {
        int64_t shared = next[2];
        described[k] = (fuser_ffi_buffer){(int32_t)next[0], (int32_t)next[1], next + 3, buffers[k]};
        next += 3 + next[1];
        if (shared >= 0) {
            int64_t bytes = *next++;
            memcpy(buffers[arguments + shared], buffers[k], (size_t)bytes);
            described[k].data = buffers[arguments + shared];
        }
    }
    fuser_ffi_call call = {
        FUSER_FFI_VERSION, arguments, (int32_t)sizes[4], (int32_t)sizes[2], described, described + arguments,
        (const fuser_ffi_attribute *)(intptr_t)sizes[1], message, MESSAGE,
    };
    if (handler(&call) != 0)
        raise_error((const char *)(intptr_t)sizes[5], message[0] ? message : "it gives no reason");
}

int add_foreign(PyObject *module) {
    PyObject *address = PyLong_FromVoidPtr((void *)run_foreign);
    int status = address == NULL ? -1 : PyModule_AddObjectRef(module, "run_foreign", address);
    Py_XDECREF(address);
    return status;
}
