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

/* nccl.c: the devices of a group, of which a communicator is one; and bytes that they send each other. */
typedef struct Communicator Communicator;
typedef struct {
    enum { GATHER, SWAP, PERMUTE, BROADCAST } kind;
    Place in, out;
    size_t bytes;     /* that one device sends to one other: SWAP's part for each */
    int source, peer; /* PERMUTE: from which and to which, -1 for none; BROADCAST: from which */
} Transfer;
Communicator *communicator_of(PyObject *capsule);
/* Enqueue several as one group of NCCL's, in the order of the stream; an error of the library is 800000 and more. */
Status run_transfers(Communicator *communicator, const Transfer *transfers, int count, const uint64_t *table, Handle stream);
int add_nccl(PyObject *module);

extern PyTypeObject device_program_type;
