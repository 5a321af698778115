/* The operations of a program for the device, as C runs them: no Python, and nothing that waits. */
#pragma once
#include "device_program.h"
#include "library_call.h"

typedef struct Op Op;

typedef struct {
    int count;
    Op *ops;
} Body;

typedef enum { ADDRESS, VALUE, NUMBER, MAP } ParamKind;

enum { MOST_DIMENSIONS = 5 };

typedef struct { /* what cuTensorMapEncodeTiled is told beside the address; the innermost dimension first, strides in bytes */
    int dtype, rank, swizzle;
    uint64_t extents[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
    unsigned box[MOST_DIMENSIONS];
} TensorMap;

typedef struct {
    ParamKind kind;
    Place place;    /* ADDRESS, MAP: where; VALUE: the entry that holds a number's bits */
    uint64_t value; /* NUMBER */
    TensorMap *map; /* MAP */
} Param;

typedef struct { Handle function; unsigned grid, threads, shared; int count; Param *params; } LaunchOp;
typedef struct { Product *product; Place a, b, out, workspace; } MultiplyOp;
typedef struct { LibraryCall *call; Place places[MOST_ARRAYS + 1]; } CallOp;
typedef struct { Place to, from; size_t bytes; } CopyOp;
typedef struct { Communicator *communicator; int count; Transfer *transfers; } ExchangeOp;
typedef struct { int entry; Place place; } PointOp;
typedef struct { int in, out, spare; } Rotation;
typedef struct { int entry; int64_t bytes; } Stride;
typedef struct { long long trips; Body body; int rotation_count, stride_count; Rotation *rotations; Stride *strides; } RepeatOp;
typedef struct { Place predicate; Body body; } WhileOp;
typedef struct { Place index; int count; Body *branches; } SwitchOp;
typedef struct { int event; Body body; } BesideOp; /* on the side stream, from here on; its event says when it is through */
typedef struct { int event; } JoinOp;              /* what follows waits for that event */

struct Op {
    enum { LAUNCH, MULTIPLY, CALL, COPY, EXCHANGE, POINT, REPEAT, WHILE, SWITCH, BESIDE, JOIN } kind;
    union {
        LaunchOp launch;
        MultiplyOp multiply;
        CallOp call;
        CopyOp copy;
        ExchangeOp exchange;
        PointOp point;
        RepeatOp repeat;
        WhileOp loop;
        SwitchOp choice;
        BesideOp beside;
        JoinOp join;
    };
};

/* What a run of operations has beside them: the table, whose later entries change, the stream for what runs beside the main
   one, and events: the first is recorded where that begins. */
typedef struct {
    uint64_t *table;
    Handle side;
    Handle *events;
} Run;

/* From tuples: -1 with an exception set. `entries` are those of the table. */
int read_body(Body *body, PyObject *tuple, int entries);
void free_body(Body *body);
/* How many nodes a graph of it has, and whether it has control flow that only a graph can do. */
long long node_count(const Body *body);
bool needs_graph(const Body *body);
/* Whether something in it cannot be captured, so that each call enqueues the operations one by one. */
bool refuses_graph(const Body *body);
/* How many events a run of it needs: none where nothing runs beside the main stream. */
int event_count(const Body *body);
/* Enqueue on a stream, which is being captured where the body needs a graph. */
Status run_body(const Body *body, Handle stream, Run *run, int depth);
/* The kernel that sets a graph's condition, loaded once; -1 with an exception set. */
int load_condition(void);
