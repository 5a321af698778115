#include "core.h"

int add_dispatch(PyObject *module) { return 0; }
