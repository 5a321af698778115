/* A stand-in for libcuda on host memory; its graphs and the libraries are in files of their own, which are compiled as one text with it.

   Work that is enqueued on a stream runs only when something waits for it, so that a result that is read too early is
   poison. Fresh memory is poison too. Every access of an enqueued operation is checked against vector clocks: what another
   stream wrote or read must come before it by an event, a graph's order, or a wait of the host. A fault is an error of the
   call that causes it, in words. Streams that join a capture by an event are branches of its graph, ordered by events alone; one
   that the first does not wait for at the end is a fault. A module's image names a C function, the twin of a generated kernel, and says which of
   the kernels' parameters are its buffers; the last of a module's kernels runs it. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 256, DEVICES = 8, PARAMS = 4096, BRANCHES = 4, JOURNAL = 1 << 14, INVALID = 1, ISOLATED = 907, UNJOINED = 904, FAILED = 719, POISON = 0xcb, OUT_OF_MEMORY = 2, FOREIGN = 201, NOT_READY = 600, UPDATE_FAILED = 910 };

/* What tests read and set. */
struct { long launches, graphs, instantiated, updated, destroyed, to_device, to_host, copies, sets, allocations, releases, waits, host_waits, products, calls, programs, routines; } counts;
int execute = 1, checking = 1, refuse_launches, graph_cannot_update, version = 12080, devices = 1, solver_captures = 1;
/* What a routine of a library computes: its name, its numbers and its arrays' addresses. */
void (*routine)(const char *, const int64_t *, const uint64_t *);
int64_t memory_limit = INT64_MAX;
char fault[512];
/* Copies between devices, and pairs of devices that may: a bit for each. */
long peer_copies;
int peers = 1; /* whether devices can read each other's memory */
int lost_wait; /* the so-manieth wait from now on is none, for tests that it is missed */
static uint64_t enabled[DEVICES], shared[DEVICES];
/* What was enqueued since a test set `journaled` to 0: on which stream, of a graph that is captured on which branch, and its kind. */
struct { int stream, branch, kind; } journal[JOURNAL];
int journaled = JOURNAL;
/* The devices' contexts, and the one that is current in a thread: none in a new one. */
static int contexts[DEVICES];
static _Thread_local void *current_context;
/* One thread changes what is enqueued, and one runs it: apart, since a twin may wait for Python's lock. */
static pthread_mutex_t changing, running;
__attribute__((constructor)) static void start(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&changing, &kind);
    pthread_mutex_init(&running, &kind);
}
static void unlock(pthread_mutex_t **held) { pthread_mutex_unlock(*held); }
#define HOLD(mutex) __attribute__((cleanup(unlock))) pthread_mutex_t *held_##mutex = (pthread_mutex_lock(&mutex), &mutex)

/* Bytes of an allocation from `start` to the next extent's: who wrote them, and who has read them since. */
typedef struct { uint64_t start, written, read[STREAMS]; int writer; } Extent;
typedef struct { uint64_t address, size; int live, device, extent_count, extent_room; Extent **extents; } Memory;
typedef struct { int buffer, by_value; } ParamOf; /* by value: so many bytes; -1: an address of any alignment. Buffer MAPPED: a tensor map of buffer number `by_value` */
enum { BETWEEN = 3 }; /* devices: what a copy is, beside 1: from the host, and 2: to it */
enum { MAPPED = -3, MAP_WORD = 0x70616d };
typedef struct { char name[160]; int count; ParamOf params[PARAMS]; } Entry;
typedef struct Module {
    struct Module *next;
    int device;
    int64_t number;
    void (*run)(void **, const int64_t *);
    int64_t *sizes, buffer_count, *bytes, *writes;
    int entry_count;
    Entry *entries;
    void **buffers;
    uint64_t *values;
} Module;
static Module *modules;
typedef struct { Module *module; Entry *entry; int of_addresses; } Function; /* without a module: the one that sets conditions, or addresses */
enum { ROUTINE_ARRAYS = 6 };
typedef struct { char name[32]; int64_t numbers[12]; uint64_t at[ROUTINE_ARRAYS], bytes[ROUTINE_ARRAYS]; int reads; } Routine; /* the first `reads` are not written */
typedef struct Graph Graph;
typedef struct { int transposed[2]; int scale; } Desc;
typedef struct { int type; uint64_t rows, columns; int64_t leading; int batch; int64_t stride; } Layout;
/* One device's part in a group of NCCL's (nccl_stand_in.c). */
typedef struct { struct Comm *comm; int count; struct Transfer *transfers; } Exchange;
typedef struct Task {
    enum { KERNEL, COPY, SET, RELEASE, AFTER, GRAPH, PRODUCT, CONDITIONAL, EXCHANGE, ROUTINE, RECORD, JOIN } kind;
    int branch; /* of a graph */
    int next, part; /* of a graph's nodes, or of an exchange's parts; of the node's parts */
    union {
        Exchange exchange;
        struct { Function *function; uint64_t *values; } kernel;
        struct { uint64_t to, from, bytes; int host, device; } copy;
        struct { uint64_t at, bytes; unsigned value; int width; } set;
        struct { int stream; uint64_t position; } after;
        struct { Graph *graph; } graph;
        struct { Desc desc; Layout a, b, c; uint64_t at[3]; } product;
        struct { int loop; uint64_t *handle; Graph *body; } conditional;
        Routine *routine;
        struct { int node; } join; /* a RECORD that the branch waits for */
    };
} Task;
typedef struct { Task *tasks; int count, room; } Queue;
struct Graph { Queue nodes; long programs; int dead, branches, last[BRANCHES], joined[BRANCHES]; }; /* of each branch its last node, and the last that the first branch waits for; nodes are counted from 1 */
typedef struct { Queue queue; uint64_t before, done, sequence, clock[STREAMS]; Graph *capturing; int known, dependency, branch, device, busy, invalid, branches[BRANCHES]; } Stream; /* `before` the queue: tasks that are done and gone; `branches`: streams whose clocks are those of its graphs' branches */
typedef struct { int stream; uint64_t position, clock[STREAMS]; Graph *graph; int branch, node; } Event; /* with a graph: recorded while it was captured */

static Stream streams[STREAMS];
static int stream_count = 1;
static uint64_t host_clock[STREAMS];
static Memory *memories;
static int memory_count, memory_room;
static int64_t allocated;

static int failed(const char *words, const char *name) {
    if (!fault[0]) snprintf(fault, sizeof fault, words, name);
    return FAILED;
}

static int own_device(void) { return (int)((int *)current_context - contexts); }

/* Whether another context than a device's is current, in which its streams mean nothing. */
static int elsewhere(void) {
    if (current_context >= (void *)contexts && current_context < (void *)(contexts + DEVICES)) return 0;
    return failed("%s", "a call without the device's context");
}

static int of(void *handle) { return (uintptr_t)handle <= 2 ? 0 : (int)((Stream *)handle - streams); }

/* ---- what may be accessed when */

static Memory *memory_at(uint64_t address) {
    for (int k = memory_count - 1; k >= 0; k--)
        if (memories[k].address <= address && address < memories[k].address + memories[k].size) return &memories[k];
    return NULL;
}

/* The number of the extent that begins at an address: of one that lay around it, the second half. */
static int split_extent(Memory *memory, uint64_t address) {
    int low = 0, high = memory->extent_count; /* the first that begins later is at `high` */
    while (low < high) {
        int middle = (low + high) / 2;
        if (memory->extents[middle]->start <= address) low = middle + 1;
        else high = middle;
    }
    if (high && (memory->extents[high - 1]->start == address || address >= memory->address + memory->size)) return high - 1;
    if (memory->extent_count == memory->extent_room) memory->extents = realloc(memory->extents, (memory->extent_room = 2 * memory->extent_room + 1) * sizeof *memory->extents);
    memmove(&memory->extents[high + 1], &memory->extents[high], (memory->extent_count++ - high) * sizeof *memory->extents);
    Extent *made = memory->extents[high] = calloc(1, sizeof *made);
    if (high) *made = *memory->extents[high - 1];
    made->start = address;
    return high;
}

/* An access to memory of a device by a stream, of another device perhaps. */
static int access_of(int stream, int device, uint64_t address, uint64_t bytes, int writes, const char *name) {
    if (!checking || bytes == 0) return 0;
    Memory *memory = memory_at(address);
    const uint64_t *clock = streams[stream].clock;
    if (memory && memory->device != device) return failed("%s uses memory of another device", name);
    if (!memory || address + bytes > memory->address + memory->size) return failed("%s uses memory that nobody allocated", name);
    if (!memory->live) return failed("%s uses memory that was given back", name);
    split_extent(memory, address + bytes);
    for (int n = split_extent(memory, address); n < memory->extent_count && memory->extents[n]->start < address + bytes; n++) {
        Extent *extent = memory->extents[n];
        if (clock[extent->writer] < extent->written) return failed("%s does not wait for the stream that wrote its memory", name);
        for (int k = 0; writes && k < STREAMS; k++)
            if (clock[k] < extent->read[k]) return failed("%s writes what another stream still reads", name);
        if (writes) extent->writer = stream, extent->written = clock[stream];
        else extent->read[stream] = clock[stream];
    }
    return 0;
}

static int access_memory(int stream, uint64_t address, uint64_t bytes, int writes, const char *name) {
    return access_of(stream, streams[stream].device, address, bytes, writes, name);
}

static uint64_t bytes_of(const Layout *layout) {
    static const int width[] = {4, 8, 2, 0, 8, 16};
    return (layout->type == 14 ? 2 : width[layout->type]) * (uint64_t)((layout->columns - 1) * layout->leading + layout->rows + (layout->batch > 1 ? (layout->batch - 1) * layout->stride : 0));
}

static int check_graph(int stream, const Graph *graph);
static int check_exchange(int stream, const Exchange *exchange);
static int run_exchange(int stream, Task *task);

static int check_task(int stream, const Task *task) {
    switch (task->kind) {
    case KERNEL: {
        const Module *module = task->kernel.function->module;
        if (task->kernel.function->of_addresses) return access_memory(stream, task->kernel.values[0], 8 * task->kernel.values[3], 1, "a table of addresses");
        if (!module) return access_memory(stream, task->kernel.values[1], 1, 0, "a condition");
        if (module->device != streams[stream].device) return failed("%s was loaded for another device", task->kernel.function->entry->name);
        const Entry *entry = task->kernel.function->entry;
        for (int k = 0; k < entry->count; k++) {
            const ParamOf *param = &entry->params[k];
            if (param->buffer < 0 || param->by_value > 0) continue;
            if (task->kernel.values[k] % 16 && !param->by_value) return failed("%s gets an address that is no multiple of 16", entry->name);
            int known = param->buffer < module->buffer_count;
            if (access_memory(stream, task->kernel.values[k], known ? module->bytes[param->buffer] : 1, known ? module->writes[param->buffer] : 1, entry->name)) return FAILED;
        }
        return 0;
    }
    case COPY: {
        int host = task->copy.host;
        if (host == BETWEEN ? access_of(stream, task->copy.device, task->copy.from, task->copy.bytes, 0, "a copy between devices") : host != 1 && access_memory(stream, task->copy.from, task->copy.bytes, 0, "a copy")) return FAILED;
        return host != 2 ? access_memory(stream, task->copy.to, task->copy.bytes, 1, "a copy") : 0;
    }
    case SET: return access_memory(stream, task->set.at, task->set.bytes, 1, "a memset");
    case GRAPH: return check_graph(stream, task->graph.graph);
    case PRODUCT:
        for (int k = 0; k < 3; k++)
            if (access_memory(stream, task->product.at[k], bytes_of(&(&task->product.a)[k]), k == 2, "a product")) return FAILED;
        return 0;
    case CONDITIONAL: return check_graph(stream, task->conditional.body);
    case ROUTINE:
        for (int k = 0; k < ROUTINE_ARRAYS; k++)
            if (task->routine->bytes[k] && access_memory(stream, task->routine->at[k], task->routine->bytes[k], k >= task->routine->reads, task->routine->name)) return FAILED;
        return 0;
    case EXCHANGE: return check_exchange(stream, &task->exchange);
    default: return 0;
    }
}

static void later(uint64_t *clock, const uint64_t *other) {
    for (int k = 0; k < STREAMS; k++)
        if (clock[k] < other[k]) clock[k] = other[k];
}

/* The stream whose clock is that of a branch of the graphs that a stream launches. */
static int stream_of_branch(int stream, int branch) {
    int *found = &streams[stream].branches[branch];
    if (branch == 0) return stream;
    if (!*found && stream_count < STREAMS) streams[*found = stream_count++].device = streams[stream].device;
    return *found;
}

static int check_graph(int stream, const Graph *graph) {
    int result = 0;
    uint64_t(*recorded)[STREAMS] = graph->branches ? calloc(graph->nodes.count + 1, sizeof *recorded) : NULL;
    for (int k = 0; k < graph->nodes.count && !result; k++) {
        const Task *node = &graph->nodes.tasks[k];
        int own = stream_of_branch(stream, node->branch);
        if (recorded) streams[own].clock[own] = ++streams[own].sequence;
        if (node->kind == RECORD) memcpy(recorded[k + 1], streams[own].clock, sizeof *recorded);
        else if (node->kind == JOIN) later(streams[own].clock, recorded[node->join.node]);
        else result = check_task(own, node);
    }
    free(recorded);
    return result;
}

/* ---- running it */

static double element(uint64_t at, int type, int64_t index) {
    return type == 0 ? ((float *)at)[index] : ((double *)at)[index];
}

static void run_product(const Task *task) {
    const Layout *a = &task->product.a, *b = &task->product.b, *c = &task->product.c;
    uint64_t inner = task->product.desc.transposed[0] ? a->rows : a->columns;
    double *sums = malloc(c->rows * sizeof *sums);
    for (int batch = 0; batch < (c->batch > 1 ? c->batch : 1); batch++)
        for (uint64_t j = 0; j < c->columns; j++) {
            memset(sums, 0, c->rows * sizeof *sums);
            for (uint64_t l = 0; l < inner; l++) {
                int64_t right = task->product.desc.transposed[1] ? (int64_t)(j + l * b->leading) : (int64_t)(l + j * b->leading);
                double factor = element(task->product.at[1], b->type, right + batch * b->stride);
                for (uint64_t i = 0; i < c->rows; i++) {
                    int64_t left = task->product.desc.transposed[0] ? (int64_t)(l + i * a->leading) : (int64_t)(i + l * a->leading);
                    sums[i] += factor * element(task->product.at[0], a->type, left + batch * a->stride);
                }
            }
            for (uint64_t i = 0; i < c->rows; i++) {
                int64_t at = (int64_t)(i + j * c->leading) + batch * c->stride;
                if (c->type == 0) ((float *)task->product.at[2])[at] = (float)sums[i];
                else ((double *)task->product.at[2])[at] = sums[i];
            }
        }
    free(sums);
}

static void run_kernel(const Task *task) {
    const Function *function = task->kernel.function;
    Module *module = function->module;
    uint64_t *values = task->kernel.values;
    if (function->of_addresses) { /* set_addresses(table, first, stride, count) */
        for (uint32_t k = 0; k < (uint32_t)values[3]; k++) ((uint64_t *)values[0])[k] = values[1] + k * values[2];
        return;
    }
    if (!module) { /* set_condition(handle, address, branch, last) */
        int32_t branch = (int32_t)values[2], last = (int32_t)values[3], index;
        if (last < 0) { *(uint64_t *)values[0] = *(uint8_t *)values[1] != 0; return; }
        memcpy(&index, (void *)values[1], 4);
        index = index < 0 ? 0 : index > last ? last : index;
        *(uint64_t *)values[0] = index == branch;
        return;
    }
    for (int k = 0; k < function->entry->count; k++) {
        const ParamOf *param = &function->entry->params[k];
        if (param->buffer < 0 || param->buffer >= module->buffer_count) continue;
        if (param->by_value > 0) memcpy(&module->values[param->buffer], &values[k], 8);
        module->buffers[param->buffer] = param->by_value > 0 ? (void *)&module->values[param->buffer] : (void *)values[k];
    }
    if (function->entry == &module->entries[module->entry_count - 1]) module->run(module->buffers, module->sizes);
}

static int drain(int stream, uint64_t position);

/* Whether it is done: an exchange waits for other devices, what comes after another stream's for that. */
static int run_task(int stream, Task *task) {
    switch (task->kind) {
    case KERNEL: run_kernel(task); break;
    case COPY: memmove((void *)task->copy.to, (void *)task->copy.from, task->copy.bytes); break;
    case SET:
        for (uint64_t k = 0; k < task->set.bytes; k += task->set.width) memcpy((char *)task->set.at + k, &task->set.value, task->set.width);
        break;
    case RELEASE: memset((void *)task->set.at, POISON, task->set.bytes); free((void *)task->set.at); break;
    case AFTER: return drain(task->after.stream, task->after.position);
    case GRAPH:
        for (; task->next < task->graph.graph->nodes.count; task->next++) {
            Task node = task->graph.graph->nodes.tasks[task->next];
            node.next = task->part;
            if (!run_task(stream, &node)) return task->part = node.next, 0;
            task->part = 0;
        }
        break;
    case PRODUCT: run_product(task); break;
    case ROUTINE: routine(task->routine->name, task->routine->numbers, task->routine->at); break;
    case EXCHANGE: return run_exchange(stream, task);
    case RECORD:
    case JOIN: break;
    case CONDITIONAL:
        while (*task->conditional.handle) {
            for (int k = 0; k < task->conditional.body->nodes.count; k++) run_task(stream, &task->conditional.body->nodes.tasks[k]);
            if (!task->conditional.loop) break;
        }
    }
    return 1;
}

/* Run what a stream has up to a position; whether all of it is done. */
static int drain(int number, uint64_t position) {
    HOLD(running);
    Stream *stream = &streams[number];
    if (stream->busy) return stream->before + stream->done >= position; /* it waits for the one that asks */
    int done = 1;
    for (stream->busy = 1; done;) {
        pthread_mutex_lock(&changing);
        int more = stream->before + stream->done < position && stream->done < (uint64_t)stream->queue.count;
        Task task = more ? stream->queue.tasks[stream->done] : (Task){0};
        if (!more && position == UINT64_MAX) stream->before += stream->done, stream->done = stream->queue.count = 0;
        pthread_mutex_unlock(&changing);
        if (!more) break;
        done = run_task(number, &task);
        HOLD(changing);
        if (!done) stream->queue.tasks[stream->done].next = task.next, stream->queue.tasks[stream->done].part = task.part;
        else if (task.kind == KERNEL) free(task.kernel.values);
        stream->done += done;
    }
    stream->busy = 0;
    return done;
}

int pause_briefly(void);
static int comms; /* of NCCL's: with some, asking makes the devices go on */

/* All devices run what they can. */
static void go_on(void) {
    for (int k = 0; k < stream_count; k++)
        if (streams[k].queue.count) drain(k, UINT64_MAX);
}

static void host_waits(int stream) {
    while (!drain(stream, UINT64_MAX)) go_on(), pause_briefly();
    HOLD(changing);
    later(host_clock, streams[stream].clock);
    counts.host_waits++;
}

static void push(Queue *queue, const Task *task) {
    if (queue->count == queue->room) queue->tasks = realloc(queue->tasks, (queue->room = 2 * queue->room + 16) * sizeof *task);
    queue->tasks[queue->count++] = *task;
}

/* A node behind what its stream has captured. */
static int capture(Stream *stream, const Task *task) {
    Graph *graph = stream->capturing;
    if (stream->dependency != graph->last[stream->branch]) return failed("a captured operation does not follow %s", "the node before it");
    push(&graph->nodes, task);
    graph->nodes.tasks[graph->nodes.count - 1].branch = stream->branch;
    stream->dependency = graph->last[stream->branch] = graph->nodes.count;
    return 0;
}

static int enqueue(void *handle, const Task *task) {
    int number = of(handle);
    if (elsewhere()) return FOREIGN;
    Stream *stream = &streams[number];
    HOLD(changing);
    if (number && stream->device != own_device()) return failed("%s", "a stream of another device than the current context's");
    if (journaled < JOURNAL) journal[journaled].stream = number, journal[journaled].branch = stream->branch, journal[journaled++].kind = task->kind;
    if (stream->capturing) return capture(stream, task);
    stream->clock[number] = ++stream->sequence;
    later(stream->clock, host_clock);
    if (checking && check_task(number, task)) return FAILED;
    if (execute) push(&stream->queue, task);
    else if (task->kind == KERNEL) free(task->kernel.values);
    return 0;
}

/* After a fault: what waits to run never does, and what was captured is forgotten. */
void abandon(void) {
    HOLD(running);
    HOLD(changing);
    for (int k = 0; k < stream_count; k++) {
        streams[k].before += streams[k].queue.count;
        streams[k].done = streams[k].queue.count = 0;
        streams[k].capturing = NULL, streams[k].branch = 0;
    }
}

/* ---- the driver */

int cuInit(unsigned flags) { counts.calls++; streams[0].known = 1; return 0; }
int cuDriverGetVersion(int *found) { *found = version; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return number < 0 || number >= devices ? 101 : 0; }
int cuDeviceGetCount(int *count) { *count = devices; return 0; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "stand-in"); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &contexts[device]; return 0; }
int cuCtxGetCurrent(void **context) { *context = current_context; return 0; }
int cuCtxSetCurrent(void *context) { current_context = context; return 0; }
int cuGetErrorString(int error, const char **words) {
    *words = (error == FAILED || error == UNJOINED) && fault[0] ? fault : error == OUT_OF_MEMORY ? "out of memory" : "unspecified launch failure";
    return 0;
}
int cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream) {
    counts.calls++, counts.allocations++;
    HOLD(changing);
    if (elsewhere()) return FOREIGN;
    if (allocated + (int64_t)bytes > memory_limit) return OUT_OF_MEMORY;
    if (streams[of(stream)].capturing) return failed("memory is allocated while %s", "a graph is captured");
    char *memory = aligned_alloc(512, (bytes + 511) / 512 * 512);
    memset(memory, POISON, bytes);
    allocated += bytes;
    if (memory_count == memory_room) memories = realloc(memories, (memory_room = 2 * memory_room + 64) * sizeof *memories);
    memories[memory_count] = (Memory){.address = (uint64_t)memory, .size = bytes, .live = 1, .device = own_device()};
    split_extent(&memories[memory_count], (uint64_t)memory);
    *address = memories[memory_count++].address;
    return 0;
}
int cuMemFreeAsync(uint64_t address, void *stream) {
    counts.calls++, counts.releases++;
    HOLD(changing);
    Memory *memory = memory_at(address);
    if (!memory || memory->address != address || !memory->live) return failed("%s gives back what it does not have", "somebody");
    int status = access_memory(of(stream), address, memory->size, 1, "a release");
    Task task = {.kind = RELEASE, .set = {address, memory->size, 0, 1}};
    allocated -= memory->size;
    for (int k = 0; k < memory->extent_count; k++) free(memory->extents[k]);
    free(memory->extents);
    *memory = memories[--memory_count];
    if (!execute) free((void *)address);
    return status ? status : enqueue(stream, &task);
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) { *memory = malloc(bytes); memset(*memory, POISON, bytes); return 0; }
int cuPointerGetAttribute(void *value, int attribute, uint64_t address) { *(unsigned *)value = 1; return 0; }
static int copy(uint64_t to, uint64_t from, size_t bytes, int host, void *stream) {
    Task task = {.kind = COPY, .copy = {to, from, bytes, host}};
    counts.calls++;
    return enqueue(stream, &task);
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) { counts.to_device++; return copy(to, (uint64_t)from, bytes, 1, stream); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) { counts.to_host++; return copy((uint64_t)to, from, bytes, 2, stream); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) { counts.copies++; return copy(to, from, bytes, 0, stream); }
static int number_of(void *context) { return (int)((int *)context - contexts); }
int cuMemcpyPeerAsync(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes, void *stream) {
    Task task = {.kind = COPY, .copy = {to, from, bytes, BETWEEN, number_of(from_context)}};
    counts.calls++, peer_copies++;
    if (to_context != current_context) return failed("%s", "a copy between devices from another context than its target's");
    return enqueue(stream, &task);
}
int cuDeviceCanAccessPeer(int *can, int device, int other) { *can = peers; return 0; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) {
    int own = own_device(), other = number_of(context);
    if (elsewhere() || !peers || own == other) return INVALID;
    if (enabled[own] >> other & 1) return 704; /* already */
    enabled[own] |= 1ull << other;
    return 0;
}
int cuDeviceGetDefaultMemPool(void **pool, int device) { *pool = &contexts[device]; return 0; }
int cuMemPoolSetAccess(void *pool, const int *access, size_t count) { shared[number_of(pool)] |= access[0] == 1 && access[2] == 3 ? 1ull << access[1] : 0; return 0; }
/* Whether memory of the second device is open to the first. */
int reaches(int device, int other) { return enabled[device] >> other & 1 && shared[other] >> device & 1; }
static int set(uint64_t at, unsigned value, size_t bytes, int width, void *stream) {
    Task task = {.kind = SET, .set = {at, bytes, value, width}};
    counts.calls++, counts.sets++;
    return enqueue(stream, &task);
}
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream) { return set(at, value, count, 1, stream); }
int cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream) { return set(at, value, 4 * count, 4, stream); }
int cuStreamCreate(void **stream, unsigned flags) {
    HOLD(changing);
    if (stream_count == STREAMS) return OUT_OF_MEMORY;
    if (elsewhere()) return FOREIGN;
    streams[stream_count].device = own_device();
    *stream = &streams[stream_count++];
    return 0;
}
int cuStreamSynchronize(void *stream) { counts.calls++; if (elsewhere()) return FOREIGN; host_waits(of(stream)); return 0; }
int cuStreamQuery(void *stream) {
    counts.calls++;
    if (comms && !pthread_mutex_trylock(&running)) {
        go_on();
        pthread_mutex_unlock(&running);
    }
    HOLD(changing);
    return streams[of(stream)].done < (uint64_t)streams[of(stream)].queue.count ? NOT_READY : 0;
}
int cuEventCreate(void **event, unsigned flags) { *event = calloc(1, sizeof(Event)); return 0; }
int cuEventRecord(Event *event, void *stream) {
    counts.calls++;
    HOLD(changing);
    event->stream = of(stream);
    Stream *own = &streams[event->stream];
    event->graph = own->capturing;
    if (own->capturing) {
        Task task = {.kind = RECORD};
        int result = capture(own, &task);
        event->branch = own->branch, event->node = own->capturing->nodes.count;
        return result;
    }
    event->position = own->before + own->queue.count;
    memcpy(event->clock, own->clock, sizeof event->clock);
    return 0;
}
/* A captured stream waits for what another branch recorded; a stream that was not captured becomes a branch. */
static int join_capture(Stream *stream, const Event *event) {
    Graph *graph = event->graph;
    Task task = {.kind = JOIN, .join = {event->node}};
    if (!graph || (stream->capturing && stream->capturing != graph)) return ISOLATED;
    if (!stream->capturing) {
        if (++graph->branches == BRANCHES) return failed("a graph has more branches than %s", "the stand-in knows");
        stream->capturing = graph;
        stream->branch = graph->branches;
        stream->dependency = 0;
    }
    if (stream->branch == 0 && graph->joined[event->branch] < event->node) graph->joined[event->branch] = event->node;
    return capture(stream, &task);
}
int cuStreamWaitEvent(void *stream, Event *event, unsigned flags) {
    Task task = {.kind = AFTER, .after = {event->stream, event->position}};
    counts.calls++, counts.waits++;
    HOLD(changing);
    if (lost_wait && !--lost_wait) return 0;
    if (event->graph || streams[of(stream)].capturing) return join_capture(&streams[of(stream)], event);
    later(streams[of(stream)].clock, event->clock);
    return enqueue(stream, &task);
}
int cuEventQuery(Event *event) { counts.calls++; return streams[event->stream].before + streams[event->stream].done < event->position ? NOT_READY : 0; }
int cuEventDestroy_v2(Event *event) { free(event); return 0; }
int cuEventSynchronize(Event *event) { counts.calls++; host_waits(event->stream); return 0; }

int cuModuleLoadData(Module **loaded, const char *image) {
    int twin = !memcmp(image, "fuser-twin", 10);
    HOLD(changing);
    if (elsewhere()) return FOREIGN;
    const int64_t *at = (const int64_t *)(image + 16);
    for (Module *module = modules; twin && module; module = module->next) /* all kernels of one source */
        if (module->number == *at && module->device == own_device()) { *loaded = module; return 0; }
    Module *module = *loaded = calloc(1, sizeof *module);
    if (!twin) return strncmp(image, ".version", 8) ? 200 : 0;
    module->next = modules, modules = module;
    module->device = own_device();
    module->number = *at++;
    module->run = (void (*)(void **, const int64_t *))(uintptr_t)*at++;
    int64_t count = *at++;
    module->sizes = malloc((count + 1) * 8);
    for (int64_t k = 0; k < count; k++) module->sizes[k] = *at++;
    module->buffer_count = *at++;
    module->bytes = malloc((module->buffer_count + 1) * 8);
    module->writes = malloc((module->buffer_count + 1) * 8);
    module->buffers = calloc(module->buffer_count + 1, sizeof(void *));
    module->values = calloc(module->buffer_count + 1, 8);
    for (int64_t k = 0; k < module->buffer_count; k++) module->bytes[k] = *at++, module->writes[k] = *at++;
    module->entry_count = (int)*at++;
    module->entries = calloc(module->entry_count, sizeof(Entry));
    for (int k = 0; k < module->entry_count; k++) {
        Entry *entry = &module->entries[k];
        entry->count = (int)*at++;
        for (int n = 0; n < entry->count; n++) {
            entry->params[n].buffer = (int)*at++;
            entry->params[n].by_value = (int)*at++;
        }
    }
    const char *names = (const char *)at;
    for (int k = 0; k < module->entry_count; k++, names += strlen(names) + 1) snprintf(module->entries[k].name, sizeof module->entries[k].name, "%s", names);
    return 0;
}
int cuModuleGetFunction(Function **found, Module *module, const char *name) {
    counts.calls++;
    *found = calloc(1, sizeof(Function));
    (*found)->of_addresses = !strcmp(name, "set_addresses");
    if (!module->run) return strcmp(name, "set_condition") && strcmp(name, "set_addresses") ? 500 : 0;
    (*found)->module = module;
    for (int k = 0; k < module->entry_count; k++)
        if (!strcmp(module->entries[k].name, name)) (*found)->entry = &module->entries[k];
    return (*found)->entry ? 0 : 500;
}
int cuModuleUnload(Module *module) { return elsewhere() ? FOREIGN : 0; }
int cuFuncSetAttribute(Function *function, int attribute, int value) { return 0; }
/* A map, in the place of CUtensorMap: a word to know it by, the address and the bytes from there to its last element. */
int cuTensorMapEncodeTiled(uint64_t *map, int type, unsigned rank, uint64_t address, const uint64_t *extents, const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleaved, int swizzle, int promotion, int outside) {
    static const int sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    counts.calls++;
    if (type > 12 || rank < 1 || rank > 5 || address % 16 || (uint64_t)map % 64) return INVALID;
    uint64_t span = extents[0] * sizes[type];
    for (unsigned k = 0; k < rank; k++) {
        if (!extents[k] || extents[k] >> 32 || !box[k] || box[k] > 256 || steps[k] != 1) return INVALID;
        if (k + 1 < rank && (strides[k] % 16 || strides[k] >> 40)) return INVALID;
        if (k) span += (extents[k] - 1) * strides[k - 1];
    }
    map[0] = MAP_WORD, map[1] = address, map[2] = span;
    return 0;
}
/* Whether a map lies within the buffer that it is of, which is a parameter too. */
static int lies_within(const Module *module, const Entry *entry, const uint64_t *map, int buffer, void **params) {
    for (int k = 0; k < entry->count; k++)
        if (entry->params[k].buffer == buffer && map[0] == MAP_WORD) {
            uint64_t first = *(uint64_t *)params[k];
            return buffer >= module->buffer_count || (map[1] >= first && map[1] + map[2] <= first + module->bytes[buffer]);
        }
    return 0;
}
int cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
    Graph *captured = streams[of(stream)].capturing;
    counts.calls++, counts.launches++;
    *(captured ? &captured->programs : &counts.programs) += x; /* a graph's are counted when it is launched */
    if (refuse_launches) return FAILED;
    if (elsewhere()) return FOREIGN;
    if (!execute && !captured) return 0;
    int count = function->module ? function->entry->count : 4;
    Task task = {.kind = KERNEL, .kernel = {function, calloc(count + 1, 8)}};
    for (int k = 0; k < count; k++) {
        const ParamOf *param = function->module ? &function->entry->params[k] : NULL;
        if (param && param->buffer == MAPPED && !lies_within(function->module, function->entry, params[k], param->by_value, params))
            return failed("%s gets a tensor map that leaves its array", function->entry->name);
        int narrow = function->of_addresses ? k > 2 : function->module ? function->entry->params[k].buffer == -2 || function->entry->params[k].by_value == 4 : k > 1;
        memcpy(&task.kernel.values[k], params[k], narrow ? 4 : 8);
    }
    return enqueue(stream, &task);
}
