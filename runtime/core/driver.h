/* The CUDA driver's library, opened at run time, and what every user of it needs: an error, a context, a stream. */
#pragma once
#include "core.h"
#include <pthread.h>

typedef int Status; /* CUresult */
typedef void *Handle;
typedef uint64_t Address; /* CUdeviceptr */

typedef struct { /* CUgraphNodeParams of a conditional node */
    int type, reserved[3];
    union {
        long long room[29];
        struct {
            unsigned long long handle;
            int type;
            unsigned size;
            Handle *bodies;
            Handle context;
        } conditional;
    };
    long long reserved_too;
} NodeParams;

typedef struct { /* CUgraphExecUpdateResultInfo */
    int result;
    Handle node, from;
} UpdateInfo;

typedef struct { int location, device, access; } PoolAccess; /* CUmemAccessDesc */

enum { CONDITIONAL_NODE = 13, IF_NODE = 0, WHILE_NODE = 1 };

struct Driver {
    void *library;
    bool conditional; /* whether graphs have IF and WHILE nodes: CUDA 12.4 */
    Status (*init)(unsigned);
    Status (*version)(int *);
    Status (*device_get)(int *, int);
    Status (*device_count)(int *);
    Status (*device_attribute)(int *, int, int);
    Status (*device_name)(char *, int, int);
    Status (*context_retain)(Handle *, int);
    Status (*context_get)(Handle *);
    Status (*context_set)(Handle);
    Status (*error_string)(Status, const char **);
    Status (*allocate)(Address *, size_t, Handle);
    Status (*release)(Address, Handle);
    Status (*host_allocate)(void **, size_t, unsigned);
    Status (*pointer_attribute)(void *, int, Address);
    Status (*to_device)(Address, const void *, size_t, Handle);
    Status (*to_host)(void *, Address, size_t, Handle);
    Status (*copy)(Address, Address, size_t, Handle);
    Status (*copy_peer)(Address, Handle, Address, Handle, size_t, Handle);
    Status (*can_access_peer)(int *, int, int);
    Status (*enable_peer)(Handle, unsigned);
    Status (*default_pool)(Handle *, int);
    Status (*pool_access)(Handle, const PoolAccess *, size_t);
    Status (*set8)(Address, unsigned char, size_t, Handle);
    Status (*set32)(Address, unsigned, size_t, Handle);
    Status (*stream_create)(Handle *, unsigned);
    Status (*stream_synchronize)(Handle);
    Status (*stream_query)(Handle);
    Status (*stream_wait)(Handle, Handle, unsigned);
    Status (*event_create)(Handle *, unsigned);
    Status (*event_record)(Handle, Handle);
    Status (*event_query)(Handle);
    Status (*event_synchronize)(Handle);
    Status (*event_destroy)(Handle);
    Status (*module_load)(Handle *, const void *);
    Status (*module_function)(Handle *, Handle, const char *);
    Status (*module_unload)(Handle);
    Status (*function_set)(Handle, int, int);
    Status (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
    Status (*map_encode)(void *, int, unsigned, Address, const uint64_t *, const uint64_t *, const unsigned *, const unsigned *, int, int, int, int);
    Status (*capturing)(Handle, int *);
    Status (*capture_begin)(Handle, int);
    Status (*capture_end)(Handle, Handle *);
    Status (*capture_info)(Handle, int *, unsigned long long *, Handle *, const Handle **, size_t *);
    Status (*capture_depend)(Handle, Handle *, size_t, unsigned);
    Status (*capture_into)(Handle, Handle, const Handle *, const void *, size_t, int);
    Status (*graph_node)(Handle *, Handle, const Handle *, size_t, NodeParams *);
    Status (*graph_condition)(unsigned long long *, Handle, Handle, unsigned, unsigned);
    Status (*graph_instantiate)(Handle *, Handle, unsigned long long);
    Status (*graph_update)(Handle, Handle, UpdateInfo *);
    Status (*graph_launch)(Handle, Handle);
    Status (*graph_destroy)(Handle);
    Status (*exec_destroy)(Handle);
};

enum { OF_BLAS = 700000, OF_NCCL = 800000, OF_FFT = 900000, OF_SOLVER = 1000000 }; /* what is added to a library's status */

extern struct Driver driver;

enum { MOST_DEVICES = 64, CAPTURE_STREAMS = 8 };

/* One GPU of this process, from when it is first used. */
typedef struct {
    int number;
    Handle context; /* NULL: not started */
    Handle own_stream, capture_streams[CAPTURE_STREAMS], trial_stream;
    Handle side_streams[2]; /* for what runs beside a program's main stream: launched, and captured */
    Handle connecting; /* a stream without work: what waits there for other devices waits for no program of this one */
    Handle order_event;
    Handle condition;          /* the kernel that sets a graph's condition */
    Handle addresses;          /* the kernel that writes the addresses of a stack of matrices */
    Handle blas;               /* cuBLASLt's handle */
    Handle solver, triangular; /* cuSOLVER's and cuBLAS's */
    pthread_mutex_t capturing; /* one graph at a time: a captured collective may wait for another device's, so no lock is shared */
} Device;

/* The device of the calling thread: the one that `cuda_use` chose, else the first that was opened. */
Device *here(void);

/* -1 with a RuntimeError that says what the driver refused, in its words; 0 where it did not. */
int check(Status result, const char *what);
const char *nccl_words(int status); /* nccl.c */
/* Wait until a stream is idle, with the GIL: through a host that asks again and again where collectives may never end. -1 with an
   exception set. */
int wait_for_stream(Handle stream);
/* What a function that calls the driver declares first: the context that was current in its thread, another library's perhaps, is
   current again when it returns. */
typedef struct { Handle before; } ContextGuard;
void leave_device(ContextGuard *guard);
#define CONTEXT_GUARD(name) __attribute__((cleanup(leave_device))) ContextGuard name = {NULL}
/* Make a device's context current in this thread, until the guard leaves. */
int enter_context(ContextGuard *guard, const Device *device);
/* The same of the thread's device. */
int enter_device(ContextGuard *guard);
/* The thread works on that device from now on; gives what it worked on before, NULL for the one that was opened first. */
Device *choose_device(Device *device);
/* The device of that number, started where it is not; NULL with an exception set. */
Device *device_of(int number);
/* The stream that a device's work goes to now: torch's current one where torch uses the device too, else our own. NULL with an
   exception set fails; the legacy stream is (Handle)1, as the driver names it. */
Handle stream_of(const Device *device);
/* The same of the thread's device. */
Handle current_stream(void);
/* Let a device read another one's memory without the host, where their links allow it; asked once of each pair. */
void reach_peer(const Device *device, const Device *other);
/* A stream of the thread's device that only records graphs. */
Handle capture_stream(int number);
/* The stream of the thread's device for what runs beside the main one, which is being captured or not. */
Handle side_stream(bool captured);
/* Another one, in which operations are tried. */
Handle trial_stream(void);
