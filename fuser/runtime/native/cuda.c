#include "core.h"

int add_cuda(PyObject *module) { return 0; }
