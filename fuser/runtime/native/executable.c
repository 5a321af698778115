#include "core.h"

int add_executable(PyObject *module) { return 0; }
