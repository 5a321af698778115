/* Fast paths: calls of accelerated functions that need no Python. */
#pragma once
#include "program.h"

typedef struct FastPath FastPath;
extern PyTypeObject fast_path_type;

/* 1: the call is answered, by `*result` or by the exception that is set. 0: Python must look at it. */
int take_fast_path(FastPath *path, PyObject *const *args, Py_ssize_t count, PyObject **result);
