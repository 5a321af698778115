/* fuser/ffi.h: functions of your own, called between the kernels of a program.
 *
 *     static int scale(fuser_ffi_call *call) {
 *         const float *x = call->arguments[0].data;
 *         float *y = call->results[0].data;
 *         double by = fuser_ffi_double(call, "by", 1.0);
 *         int64_t n = fuser_ffi_elements(&call->arguments[0]);
 *         if (n == 0)
 *             return fuser_ffi_fail(call, "an empty array");
 *         for (int64_t i = 0; i < n; i++)
 *             y[i] = (float)by * x[i];
 *         return 0;
 *     }
 *
 * A handler is given arrays without gaps, the last dimension innermost, and writes its results. It may run on any thread, on
 * several at once, and without Python's lock. What it is given lives as long as the call. Structures only ever grow at their
 * end; `version` says how far those of a call reach. C11 and C++14.
 */
#ifndef FUSER_FFI_H
#define FUSER_FFI_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FUSER_FFI_VERSION 1

enum {
    FUSER_BOOL = 1,
    FUSER_INT8, FUSER_INT16, FUSER_INT32, FUSER_INT64,
    FUSER_UINT8, FUSER_UINT16, FUSER_UINT32, FUSER_UINT64,
    FUSER_FLOAT16, FUSER_BFLOAT16, FUSER_FLOAT32, FUSER_FLOAT64,
    FUSER_COMPLEX64, FUSER_COMPLEX128,
    FUSER_TEXT /* of attributes alone: `count` bytes and a zero */
};

typedef struct {
    int32_t dtype;
    int32_t rank;
    const int64_t *dims; /* `rank` extents in elements, outermost first */
    void *data;
} fuser_ffi_buffer;

typedef struct {
    const char *name;
    int32_t dtype;
    int32_t is_array; /* 0: one element */
    int64_t count;    /* elements */
    const void *data;
} fuser_ffi_attribute;

typedef struct {
    int32_t version;
    int32_t argument_count;
    int32_t result_count;
    int32_t attribute_count;
    const fuser_ffi_buffer *arguments;
    const fuser_ffi_buffer *results;
    const fuser_ffi_attribute *attributes; /* by name, in ascending order */
    char *message;                         /* of an error: room for `message_size` bytes with the zero */
    int64_t message_size;
} fuser_ffi_call;

/* 0, or anything else where it failed: the call of the program raises then, with the message. */
typedef int (*fuser_ffi_handler)(fuser_ffi_call *call);

static inline int64_t fuser_ffi_elements(const fuser_ffi_buffer *buffer) {
    int64_t count = 1;
    for (int32_t d = 0; d < buffer->rank; d++)
        count *= buffer->dims[d];
    return count;
}

/* The attribute of a name; NULL where there is none. */
static inline const fuser_ffi_attribute *fuser_ffi_find(const fuser_ffi_call *call, const char *name) {
    for (int32_t k = 0; k < call->attribute_count; k++)
        if (strcmp(call->attributes[k].name, name) == 0)
            return &call->attributes[k];
    return NULL;
}

/* One number; `otherwise` where there is no attribute of that name and kind. Integers of Python are INT64, floats FLOAT64. */
static inline int64_t fuser_ffi_int(const fuser_ffi_call *call, const char *name, int64_t otherwise) {
    const fuser_ffi_attribute *found = fuser_ffi_find(call, name);
    if (found == NULL || found->is_array)
        return otherwise;
    switch (found->dtype) {
    case FUSER_BOOL: case FUSER_UINT8: return *(const uint8_t *)found->data;
    case FUSER_INT32: return *(const int32_t *)found->data;
    case FUSER_INT64: return *(const int64_t *)found->data;
    default: return otherwise;
    }
}

static inline double fuser_ffi_double(const fuser_ffi_call *call, const char *name, double otherwise) {
    const fuser_ffi_attribute *found = fuser_ffi_find(call, name);
    if (found == NULL || found->is_array)
        return otherwise;
    switch (found->dtype) {
    case FUSER_FLOAT32: return *(const float *)found->data;
    case FUSER_FLOAT64: return *(const double *)found->data;
    default: return (double)fuser_ffi_int(call, name, (int64_t)otherwise);
    }
}

static inline const char *fuser_ffi_text(const fuser_ffi_call *call, const char *name, const char *otherwise) {
    const fuser_ffi_attribute *found = fuser_ffi_find(call, name);
    return found != NULL && found->dtype == FUSER_TEXT ? (const char *)found->data : otherwise;
}

/* Write the message of an error, as printf does, and return what a handler then returns. */
static inline int fuser_ffi_fail(fuser_ffi_call *call, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(call->message, (size_t)call->message_size, format, values);
    va_end(values);
    return 1;
}

#ifdef __cplusplus
}
#endif
#endif
