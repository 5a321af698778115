/* Arrays in a GPU's memory, whose blocks come from a pool in the order of a stream. */
#pragma once
#include "driver.h"

typedef struct {
    PyObject_VAR_HEAD
    Address address;
    PyArray_Descr *dtype;
    PyObject *owner; /* whose the memory is: another DeviceArray, or what handed it over; NULL: this one's, of the pool */
    size_t block;    /* bytes of the pool's block, 0 of a foreign one */
    Handle stream;   /* in whose order the memory is used; of one that owns it */
    Device *device;  /* on which it lies */
    npy_intp dims[];
} DeviceArray;

extern PyTypeObject device_array_type;
extern PyObject *device_empty_function; /* what `allocate` is in executables on the device */

static inline bool is_device_array(PyObject *object) { return Py_TYPE(object) == &device_array_type; }

/* Memory of the thread's device, from the pool, that work on `stream` may use from now on; 0 with OutOfMemoryError set. `*block` are its bytes. */
Address take_device_memory(size_t bytes, Handle stream, size_t *block, PyObject *label);
void give_device_memory(Address address, size_t block, Handle stream, Device *device);
/* An array of undefined contents; steals no reference. */
PyObject *new_device_array(int ndim, const npy_intp *dims, PyArray_Descr *dtype, Handle stream, PyObject *label);
/* Another array over the memory of one, of as many elements. */
PyObject *reshaped_device_array(DeviceArray *array, int ndim, const npy_intp *dims);
/* An array over memory that another library keeps as long as `owner` lives, used in the order of `stream`. */
PyObject *foreign_device_array(Address address, int ndim, const npy_intp *dims, PyArray_Descr *dtype, PyObject *owner, Handle stream);
/* The array of a number, filled without a copy from the host. */
PyObject *device_number(const void *number, PyArray_Descr *dtype, Handle stream);
/* Let work on `stream`, of the thread's device, use the array's memory: what another stream did with it comes first. -1 with a
   ValueError for an array on another device. */
int order_device_array(DeviceArray *array, Handle stream);
/* Whether nobody but this reference can see the memory. */
bool alone_on_device(DeviceArray *array);
npy_intp device_array_bytes(const DeviceArray *array);
