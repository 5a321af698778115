/* Programs for the device: operations over a table of addresses, launched one by one or replayed as one CUDA graph. */
#pragma once
#include "device_array.h"

/* A place in memory: `offset` bytes after the address in the table at `entry`. */
typedef struct {
    int entry;
    int64_t offset;
} Place;

/* blas.c: the product of two arrays by cuBLASLt, from a capsule that says how; an error of the library is 700000 and more. */
typedef struct Product Product;
Product *product_of(PyObject *capsule);
Status multiply(Product *product, Address a, Address b, Address out, Address workspace, Handle stream);
int add_blas(PyObject *module);

extern PyTypeObject device_program_type;
