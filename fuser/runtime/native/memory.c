#include "core.h"

int add_memory(PyObject *module) { return 0; }
