/* The module fuser._native. */
#define FUSER_IMPORTS_NUMPY
#include "core.h"
#include "../kernels/team/team.h"

int add_type(PyObject *module, PyTypeObject *type) {
    const char *name = strrchr(type->tp_name, '.') + 1;
    return PyType_Ready(type) < 0 ? -1 : PyModule_AddObjectRef(module, name, (PyObject *)type);
}

static int execute(PyObject *module) {
    import_array1(-1);
    if (add_memory(module) < 0 || add_array(module) < 0 || add_state(module) < 0 || add_executable(module) < 0 ||
        add_suspended(module) < 0 || add_program(module) < 0 || add_fast_path(module) < 0 || add_dispatch(module) < 0 || add_driver(module) < 0 || add_device_array(module) < 0 ||
        add_device_program(module) < 0 || add_blas(module) < 0 || add_nccl(module) < 0 || add_library_call(module) < 0 ||
        add_fourier(module) < 0 || add_solver(module) < 0 || add_guards(module) < 0 ||
        add_arithmetic(module) < 0 || add_replay(module) < 0 || add_foreign(module) < 0 ||
        add_host(module) < 0 || add_tensor(module) < 0)
        return -1;
    return PyModule_AddObject(module, "team_address", PyLong_FromVoidPtr((void *)&process_team));
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fuser._native", "The native core of fuser's runtime.", 0, NULL, slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
