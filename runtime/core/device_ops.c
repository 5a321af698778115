/* Running a program's operations: launches, products, library calls, copies, and loops and branches over them.

   A counted loop is walked here, its operands' addresses moved on from one iteration to the next, so that a captured
   graph holds all iterations. A loop with a predicate, and a branch, are conditional nodes of the graph that is being
   captured: the device decides, and the host never reads the predicate. What devices send each other may run on a second
   stream between two events, beside what is computed meanwhile; captured, it is a branch of the graph. */
#include "device_ops.h"

enum { LARGEST = 4096, MOST_MAPS = 8, MOST_EVENTS = 1 << 16, CAPTURING = 1, RELAXED = 2, REPLACE_DEPENDENCIES = 1, TOO_DEEP = 801 /* not supported */ };

/* set_condition(handle, address, branch, last): the handle is 1 where the byte at `address` is not 0, or, with a `last`
   branch of at least 0, where the int32 there, clamped to 0 … last, is `branch`. */
static const char condition_text[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
    ".visible .entry set_condition(.param .u64 handle, .param .u64 address, .param .s32 branch, .param .s32 last)\n"
    "{\n.reg .pred %is, %by_index;\n.reg .b32 %value, %branch, %last;\n.reg .b64 %handle, %address;\n"
    "ld.param.u64 %handle, [handle];\nld.param.u64 %address, [address];\n"
    "ld.param.s32 %branch, [branch];\nld.param.s32 %last, [last];\n"
    "cvta.to.global.u64 %address, %address;\nsetp.ge.s32 %by_index, %last, 0;\n@%by_index bra index;\n"
    "ld.global.u8 %value, [%address];\nsetp.ne.s32 %is, %value, 0;\nbra set;\n"
    "index:\nld.global.s32 %value, [%address];\nmax.s32 %value, %value, 0;\nmin.s32 %value, %value, %last;\n"
    "setp.eq.s32 %is, %value, %branch;\n"
    "set:\nselp.u32 %value, 1, 0, %is;\n"
    "{\n.param .b64 first;\n.param .b32 second;\nst.param.b64 [first], %handle;\nst.param.b32 [second], %value;\n"
    "call.uni cudaGraphSetConditional, (first, second);\n}\nret;\n}\n";
int load_condition(void) {
    CONTEXT_GUARD(guard);
    Handle module;
    if (here()->condition != NULL)
        return 0;
    if (enter_device(&guard) < 0 || check(driver.module_load(&module, condition_text), "the code of conditions") < 0 ||
        check(driver.module_function(&here()->condition, module, "set_condition"), "the code of conditions") < 0)
        return -1;
    return 0;
}

static Address at(const uint64_t *table, Place place) { return table[place.entry] + (uint64_t)place.offset; }

typedef struct { _Alignas(64) uint64_t words[16]; } EncodedMap; /* CUtensorMap */

/* The map of an array that begins at `address`, as kernels take it. */
static Status encode_map(EncodedMap *encoded, const TensorMap *map, Address address) {
    static const unsigned steps[MOST_DIMENSIONS] = {1, 1, 1, 1, 1};
    enum { NOT_INTERLEAVED = 0, PROMOTED_TO_128_BYTES = 2, ZEROS_OUTSIDE = 0 };
    return driver.map_encode(encoded, map->dtype, map->rank, address, map->extents, map->strides, map->box, steps, NOT_INTERLEAVED,
                             map->swizzle, PROMOTED_TO_128_BYTES, ZEROS_OUTSIDE);
}

static Status run_launch(const LaunchOp *op, Handle stream, const uint64_t *table) {
    uint64_t values[LARGEST];
    void *pointers[LARGEST];
    EncodedMap maps[MOST_MAPS];
    int map_count = 0;
    for (int k = 0; k < op->count; k++) {
        const Param *param = &op->params[k];
        if (param->kind == MAP) {
            Status result = encode_map(&maps[map_count], param->map, at(table, param->place));
            if (result)
                return result;
            pointers[k] = &maps[map_count++];
            continue;
        }
        values[k] = param->kind == NUMBER ? param->value : param->kind == VALUE ? table[param->place.entry] : at(table, param->place);
        pointers[k] = &values[k]; /* little-endian: the low bytes of a short one come first */
    }
    return driver.launch(op->function, op->grid, 1, 1, op->threads, 1, 1, op->shared, stream, pointers, NULL);
}

static Status run_copy(const CopyOp *op, Handle stream, const uint64_t *table) {
    Address to = at(table, op->to), from = at(table, op->from);
    return to == from || op->bytes == 0 ? 0 : driver.copy(to, from, op->bytes, stream);
}

static Status run_call(const CallOp *op, Handle stream, const uint64_t *table) {
    Address addresses[MOST_ARRAYS + 1];
    for (int k = 0; k <= op->call->arrays; k++)
        addresses[k] = at(table, op->places[k]);
    return op->call->run(op->call, addresses, stream);
}

static Status run_repeat(const RepeatOp *op, Handle stream, Run *run, int depth) {
    uint64_t *table = run->table;
    Status result = 0;
    for (long long trip = 0; !result && trip < op->trips; trip++) {
        result = run_body(&op->body, stream, run, depth);
        for (int k = 0; k < op->rotation_count; k++) {
            const Rotation *r = &op->rotations[k];
            uint64_t written = table[r->out];
            table[r->in] = written;
            table[r->out] = table[r->spare];
            table[r->spare] = written;
        }
        for (int k = 0; k < op->stride_count; k++)
            table[op->strides[k].entry] += (uint64_t)op->strides[k].bytes;
    }
    return result;
}

/* ---- the second stream */

/* Both streams go on from here; the event is recorded on the second one, behind the body. */
static Status run_beside(const BesideOp *op, Handle stream, Run *run, int depth) {
    Handle fork = run->events[0];
    Status result = driver.event_record(fork, stream);
    if (!result)
        result = driver.stream_wait(run->side, fork, 0);
    if (!result)
        result = run_body(&op->body, run->side, run, depth);
    return result ? result : driver.event_record(run->events[1 + op->event], run->side);
}

/* ---- conditional nodes */

static Status set_condition(unsigned long long handle, Address address, int branch, int last, Handle stream) {
    void *params[] = {&handle, &address, &branch, &last};
    return driver.launch(here()->condition, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static Status new_condition(Handle stream, unsigned long long *handle) {
    int status;
    unsigned long long id;
    Handle graph;
    Status result = driver.capture_info(stream, &status, &id, &graph, NULL, NULL);
    return result ? result : status != CAPTURING ? TOO_DEEP : driver.graph_condition(handle, graph, here()->context, 0, 0);
}

/* A conditional node after what the stream has captured so far; `*body` is the graph inside it. */
static Status add_conditional(Handle stream, unsigned long long handle, int type, Handle *body) {
    int status;
    unsigned long long id;
    Handle graph, node;
    const Handle *before;
    size_t count;
    Status result = driver.capture_info(stream, &status, &id, &graph, &before, &count);
    NodeParams params = {.type = CONDITIONAL_NODE};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = 1;
    params.conditional.context = here()->context;
    if (!result)
        result = driver.graph_node(&node, graph, before, count, &params);
    if (!result)
        result = driver.capture_depend(stream, &node, 1, REPLACE_DEPENDENCIES);
    if (!result)
        *body = params.conditional.bodies[0];
    return result;
}

/* The body into the graph inside a node; with `handle`, which a loop has, the predicate that it leaves sets the condition. */
static Status fill_conditional(const Body *body, Handle graph, Run *run, int depth, unsigned long long handle, Address predicate) {
    Handle inner = capture_stream(depth + 1), ended;
    if (inner == NULL)
        return TOO_DEEP;
    Status result = driver.capture_into(inner, graph, NULL, NULL, 0, RELAXED);
    if (result)
        return result;
    result = run_body(body, inner, run, depth + 1);
    if (!result && handle)
        result = set_condition(handle, predicate, 0, -1, inner);
    Status end = driver.capture_end(inner, &ended);
    return result ? result : end;
}

static Status run_while(const WhileOp *op, Handle stream, Run *run, int depth) {
    unsigned long long handle;
    Handle graph;
    Address predicate = at(run->table, op->predicate);
    Status result = new_condition(stream, &handle);
    if (!result)
        result = set_condition(handle, predicate, 0, -1, stream);
    if (!result)
        result = add_conditional(stream, handle, WHILE_NODE, &graph);
    return result ? result : fill_conditional(&op->body, graph, run, depth, handle, predicate);
}

static Status run_switch(const SwitchOp *op, Handle stream, Run *run, int depth) {
    Status result = 0;
    for (int k = 0; !result && k < op->count; k++) {
        unsigned long long handle;
        Handle graph;
        result = new_condition(stream, &handle);
        if (!result)
            result = set_condition(handle, at(run->table, op->index), k, op->count - 1, stream);
        if (!result)
            result = add_conditional(stream, handle, IF_NODE, &graph);
        if (!result)
            result = fill_conditional(&op->branches[k], graph, run, depth, 0, 0);
    }
    return result;
}

Status run_body(const Body *body, Handle stream, Run *run, int depth) {
    uint64_t *table = run->table;
    Status result = 0;
    for (const Op *op = body->ops; !result && op < body->ops + body->count; op++)
        switch (op->kind) {
        case LAUNCH: result = run_launch(&op->launch, stream, table); break;
        case MULTIPLY:
            result = multiply(op->multiply.product, at(table, op->multiply.a), at(table, op->multiply.b),
                              at(table, op->multiply.out), at(table, op->multiply.workspace), stream);
            break;
        case CALL: result = run_call(&op->call, stream, table); break;
        case COPY: result = run_copy(&op->copy, stream, table); break;
        case EXCHANGE:
            result = run_transfers(op->exchange.communicator, op->exchange.transfers, op->exchange.count, table, stream);
            break;
        case POINT: table[op->point.entry] = at(table, op->point.place); break;
        case REPEAT: result = run_repeat(&op->repeat, stream, run, depth); break;
        case WHILE: result = run_while(&op->loop, stream, run, depth); break;
        case SWITCH: result = run_switch(&op->choice, stream, run, depth); break;
        case BESIDE: result = run_beside(&op->beside, stream, run, depth); break;
        case JOIN: result = driver.stream_wait(stream, run->events[1 + op->join.event], 0); break;
        }
    return result;
}

static const Body *bodies_of(const Op *op, int *count) {
    *count = op->kind == SWITCH ? op->choice.count : op->kind == WHILE || op->kind == REPEAT || op->kind == BESIDE;
    return op->kind == SWITCH ? op->choice.branches : op->kind == WHILE ? &op->loop.body : op->kind == BESIDE ? &op->beside.body : &op->repeat.body;
}

int event_count(const Body *body) {
    int events = 0;
    for (const Op *op = body->ops; op < body->ops + body->count; op++) {
        int count;
        const Body *inside = bodies_of(op, &count);
        if (op->kind == BESIDE)
            events = Py_MAX(events, op->beside.event + 2);
        for (int k = 0; k < count; k++)
            events = Py_MAX(events, event_count(&inside[k]));
    }
    return events;
}

long long node_count(const Body *body) {
    long long nodes = 0;
    for (const Op *op = body->ops; op < body->ops + body->count; op++) {
        int count;
        const Body *inside = bodies_of(op, &count);
        long long inner = count == 0 && op->kind != POINT && op->kind != JOIN;
        for (int k = 0; k < count; k++)
            inner += node_count(&inside[k]) + 2 * (op->kind == WHILE || op->kind == SWITCH);
        nodes += op->kind == REPEAT ? inner * op->repeat.trips : inner;
    }
    return nodes;
}

bool needs_graph(const Body *body) {
    for (const Op *op = body->ops; op < body->ops + body->count; op++)
        if (op->kind == WHILE || op->kind == SWITCH || (op->kind == REPEAT && needs_graph(&op->repeat.body)))
            return true;
    return false;
}

bool refuses_graph(const Body *body) {
    for (const Op *op = body->ops; op < body->ops + body->count; op++) {
        int count;
        const Body *inside = bodies_of(op, &count);
        if (op->kind == CALL && op->call.call->uncapturable)
            return true;
        for (int k = 0; k < count; k++)
            if (refuses_graph(&inside[k]))
                return true;
    }
    return false;
}

/* ---- from tuples */

static int read_place(PyObject *item, Place *place, int entries) {
    long long offset;
    if (!PyArg_ParseTuple(item, "iL", &place->entry, &offset))
        return -1;
    place->offset = offset;
    if (place->entry >= 0 && place->entry < entries)
        return 0;
    PyErr_Format(PyExc_ValueError, "there is no entry %d among %d", place->entry, entries);
    return -1;
}

/* (dtype, swizzle, extents, strides in bytes, box), the innermost dimension first; a stride less than extents. */
static int read_map(PyObject *item, TensorMap *map) {
    PyObject *extents, *strides, *box;
    if (!PyArg_ParseTuple(item, "iiO!O!O!", &map->dtype, &map->swizzle, &PyTuple_Type, &extents, &PyTuple_Type, &strides, &PyTuple_Type, &box))
        return -1;
    map->rank = (int)PyTuple_GET_SIZE(extents);
    if (map->rank < 1 || map->rank > MOST_DIMENSIONS || PyTuple_GET_SIZE(box) != map->rank || PyTuple_GET_SIZE(strides) != map->rank - 1) {
        PyErr_Format(PyExc_ValueError, "a tensor map has 1 to %d dimensions, as many sides of its box and a stride less", MOST_DIMENSIONS);
        return -1;
    }
    for (int k = 0; k < map->rank; k++) {
        map->extents[k] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(extents, k));
        map->strides[k] = k < map->rank - 1 ? PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(strides, k)) : 0;
        map->box[k] = (unsigned)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(box, k));
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int read_param(PyObject *item, Param *param, int entries) {
    const char *kind;
    int entry;
    long long value;
    PyObject *map = NULL;
    if (!PyArg_ParseTuple(item, "siL|O", &kind, &entry, &value, &map))
        return -1;
    param->place = (Place){entry, value};
    param->value = (uint64_t)value;
    param->kind = !strcmp(kind, "address") ? ADDRESS : !strcmp(kind, "value") ? VALUE : !strcmp(kind, "map") ? MAP : NUMBER;
    if (param->kind == NUMBER && strcmp(kind, "i32") && strcmp(kind, "i64")) {
        PyErr_Format(PyExc_ValueError, "a parameter is an address, a value, a map, i32 or i64, not %s", kind);
        return -1;
    }
    if (param->kind == MAP) {
        if (map == NULL)
            return PyErr_Format(PyExc_ValueError, "a parameter that is a map says what it maps"), -1;
        param->map = PyMem_Calloc(1, sizeof(TensorMap));
        if (param->map == NULL)
            return PyErr_NoMemory(), -1;
        if (read_map(map, param->map) < 0)
            return -1;
    }
    if (param->kind != NUMBER && (entry < 0 || entry >= entries)) {
        PyErr_Format(PyExc_ValueError, "there is no entry %d among %d", entry, entries);
        return -1;
    }
    return 0;
}

static int read_launch(LaunchOp *op, PyObject *tuple, int entries) {
    unsigned long long function;
    const char *kind;
    PyObject *params;
    if (!PyArg_ParseTuple(tuple, "sKIIIO!", &kind, &function, &op->grid, &op->threads, &op->shared, &PyTuple_Type, &params))
        return -1;
    op->function = (Handle)(uintptr_t)function;
    op->count = (int)PyTuple_GET_SIZE(params);
    op->params = PyMem_Calloc(op->count + 1, sizeof(Param));
    if (op->params == NULL)
        return PyErr_NoMemory(), -1;
    if (op->count > LARGEST) {
        PyErr_Format(PyExc_ValueError, "a launch has %d parameters; at most %d are supported", op->count, LARGEST);
        return -1;
    }
    int maps = 0;
    for (int k = 0; k < op->count; k++) {
        if (read_param(PyTuple_GET_ITEM(params, k), &op->params[k], entries) < 0)
            return -1;
        if (op->params[k].kind == MAP && ++maps > MOST_MAPS) {
            PyErr_Format(PyExc_ValueError, "a launch has at most %d tensor maps", MOST_MAPS);
            return -1;
        }
    }
    return 0;
}

static int read_repeat(RepeatOp *op, PyObject *tuple, int entries) {
    const char *kind;
    PyObject *body, *rotations, *strides;
    if (!PyArg_ParseTuple(tuple, "sLO!O!O!", &kind, &op->trips, &PyTuple_Type, &body, &PyTuple_Type, &rotations, &PyTuple_Type, &strides))
        return -1;
    op->rotation_count = (int)PyTuple_GET_SIZE(rotations);
    op->stride_count = (int)PyTuple_GET_SIZE(strides);
    op->rotations = PyMem_Calloc(op->rotation_count + 1, sizeof(Rotation));
    op->strides = PyMem_Calloc(op->stride_count + 1, sizeof(Stride));
    if (op->rotations == NULL || op->strides == NULL)
        return PyErr_NoMemory(), -1;
    for (int k = 0; k < op->rotation_count; k++) {
        Rotation *r = &op->rotations[k];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rotations, k), "iii", &r->in, &r->out, &r->spare))
            return -1;
    }
    for (int k = 0; k < op->stride_count; k++) {
        long long bytes;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(strides, k), "iL", &op->strides[k].entry, &bytes))
            return -1;
        op->strides[k].bytes = bytes;
    }
    return read_body(&op->body, body, entries);
}

static int read_switch(SwitchOp *op, PyObject *tuple, int entries) {
    const char *kind;
    PyObject *index, *branches;
    if (!PyArg_ParseTuple(tuple, "sO!O!", &kind, &PyTuple_Type, &index, &PyTuple_Type, &branches) || read_place(index, &op->index, entries) < 0)
        return -1;
    op->branches = PyMem_Calloc(PyTuple_GET_SIZE(branches) + 1, sizeof(Body));
    if (op->branches == NULL)
        return PyErr_NoMemory(), -1;
    for (; op->count < PyTuple_GET_SIZE(branches); op->count++)
        if (read_body(&op->branches[op->count], PyTuple_GET_ITEM(branches, op->count), entries) < 0)
            return op->count++, -1;
    return 0;
}

static int read_call(CallOp *op, PyObject *tuple, int entries) {
    const char *kind;
    PyObject *capsule, *places;
    if (!PyArg_ParseTuple(tuple, "sOO!", &kind, &capsule, &PyTuple_Type, &places) || (op->call = library_call_of(capsule)) == NULL)
        return -1;
    if (PyTuple_GET_SIZE(places) != op->call->arrays + 1) {
        PyErr_Format(PyExc_ValueError, "a library call has %d arrays and a workspace", op->call->arrays);
        return -1;
    }
    for (int k = 0; k <= op->call->arrays; k++)
        if (read_place(PyTuple_GET_ITEM(places, k), &op->places[k], entries) < 0)
            return -1;
    return 0;
}

/* ((kind, in, out, bytes, source, peer), ...) */
static int read_exchange(ExchangeOp *op, PyObject *tuple, int entries) {
    static const char *const kinds[] = {"gather", "swap", "permute", "broadcast"};
    const char *kind;
    PyObject *capsule, *transfers, *in, *out;
    if (!PyArg_ParseTuple(tuple, "sOO!", &kind, &capsule, &PyTuple_Type, &transfers) || (op->communicator = communicator_of(capsule)) == NULL)
        return -1;
    op->count = (int)PyTuple_GET_SIZE(transfers);
    op->transfers = PyMem_Calloc(op->count + 1, sizeof(Transfer));
    if (op->transfers == NULL)
        return PyErr_NoMemory(), -1;
    for (int k = 0; k < op->count; k++) {
        Transfer *transfer = &op->transfers[k];
        Py_ssize_t bytes;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(transfers, k), "sOOnii", &kind, &in, &out, &bytes, &transfer->source, &transfer->peer) ||
            read_place(in, &transfer->in, entries) < 0 || read_place(out, &transfer->out, entries) < 0)
            return -1;
        transfer->bytes = bytes;
        int number = 0;
        while (number < 4 && strcmp(kind, kinds[number]))
            number++;
        if (number == 4)
            return PyErr_Format(PyExc_ValueError, "a transfer is a gather, swap, permute or broadcast, not %s", kind), -1;
        transfer->kind = number;
    }
    return 0;
}

static int read_event(int number) {
    if (number >= 0 && number < MOST_EVENTS)
        return 0;
    PyErr_Format(PyExc_ValueError, "an event has a number from 0 to %d, got %d", MOST_EVENTS - 1, number);
    return -1;
}

static int read_op(Op *op, PyObject *tuple, int entries) {
    const char *kind = PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple, 0)) : NULL;
    PyObject *a, *b, *c, *d;
    Py_ssize_t bytes;
    if (kind == NULL)
        return PyErr_Format(PyExc_TypeError, "an operation is a tuple that begins with its kind"), -1;
    if (!strcmp(kind, "launch"))
        return op->kind = LAUNCH, read_launch(&op->launch, tuple, entries);
    if (!strcmp(kind, "repeat"))
        return op->kind = REPEAT, read_repeat(&op->repeat, tuple, entries);
    if (!strcmp(kind, "call"))
        return op->kind = CALL, read_call(&op->call, tuple, entries);
    if (!strcmp(kind, "exchange"))
        return op->kind = EXCHANGE, read_exchange(&op->exchange, tuple, entries);
    if (!strcmp(kind, "switch"))
        return op->kind = SWITCH, read_switch(&op->choice, tuple, entries);
    if (!strcmp(kind, "point")) {
        op->kind = POINT;
        return PyArg_ParseTuple(tuple, "siO", &kind, &op->point.entry, &a) ? read_place(a, &op->point.place, entries) : -1;
    }
    if (!strcmp(kind, "beside")) {
        op->kind = BESIDE;
        if (!PyArg_ParseTuple(tuple, "siO!", &kind, &op->beside.event, &PyTuple_Type, &a) || read_event(op->beside.event) < 0)
            return -1;
        return read_body(&op->beside.body, a, entries);
    }
    if (!strcmp(kind, "join")) {
        op->kind = JOIN;
        return PyArg_ParseTuple(tuple, "si", &kind, &op->join.event) ? read_event(op->join.event) : -1;
    }
    if (!strcmp(kind, "while")) {
        op->kind = WHILE;
        if (!PyArg_ParseTuple(tuple, "sOO!", &kind, &a, &PyTuple_Type, &b) || read_place(a, &op->loop.predicate, entries) < 0)
            return -1;
        return read_body(&op->loop.body, b, entries);
    }
    if (!strcmp(kind, "copy")) {
        op->kind = COPY;
        if (!PyArg_ParseTuple(tuple, "sOOn", &kind, &a, &b, &bytes) || read_place(a, &op->copy.to, entries) < 0)
            return -1;
        op->copy.bytes = bytes;
        return read_place(b, &op->copy.from, entries);
    }
    if (!strcmp(kind, "multiply")) {
        PyObject *product;
        op->kind = MULTIPLY;
        if (!PyArg_ParseTuple(tuple, "sOOOOO", &kind, &product, &a, &b, &c, &d) || (op->multiply.product = product_of(product)) == NULL ||
            read_place(a, &op->multiply.a, entries) < 0 || read_place(b, &op->multiply.b, entries) < 0 ||
            read_place(d, &op->multiply.workspace, entries) < 0)
            return -1;
        return read_place(c, &op->multiply.out, entries);
    }
    return PyErr_Format(PyExc_ValueError, "no kind of operation %s", kind), -1;
}

int read_body(Body *body, PyObject *tuple, int entries) {
    Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : -1;
    if (count < 0)
        return PyErr_Format(PyExc_TypeError, "operations come in a tuple"), -1;
    body->ops = PyMem_Calloc(count + 1, sizeof(Op));
    if (body->ops == NULL)
        return PyErr_NoMemory(), -1;
    for (; body->count < count; body->count++)
        if (read_op(&body->ops[body->count], PyTuple_GET_ITEM(tuple, body->count), entries) < 0)
            return body->count++, -1;
    return 0;
}

void free_body(Body *body) {
    for (Op *op = body->ops; op != NULL && op < body->ops + body->count; op++) {
        int count;
        Body *inside = (Body *)bodies_of(op, &count);
        for (int k = 0; k < count; k++)
            free_body(&inside[k]);
        if (op->kind == LAUNCH) {
            for (int k = 0; op->launch.params != NULL && k < op->launch.count; k++)
                PyMem_Free(op->launch.params[k].map);
            PyMem_Free(op->launch.params);
        }
        if (op->kind == REPEAT) {
            PyMem_Free(op->repeat.rotations);
            PyMem_Free(op->repeat.strides);
        }
        if (op->kind == EXCHANGE)
            PyMem_Free(op->exchange.transfers);
        if (op->kind == SWITCH)
            PyMem_Free(op->choice.branches);
    }
    PyMem_Free(body->ops);
    body->ops = NULL;
    body->count = 0;
}
