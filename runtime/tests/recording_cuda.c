/* A CUDA driver for tests: its kernels are C functions on host memory, and it counts what is asked of it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int count; int sizes[8]; void (*run)(void **params, unsigned grid, unsigned threads); } Kernel;
typedef struct Node { Kernel *kernel; unsigned grid, threads; unsigned char values[64]; struct Node *next; } Node;
typedef struct { Kernel *function; unsigned grid[3], block[3], shared; void **params, **extra; void *kernel, *context; } NodeParams;

int launches, graphs, instantiated, destroyed, is_capturing, fails;
uint64_t last_stream;

int cuLaunchKernel(Kernel *kernel, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
    if (fails) return 719;
    ++launches;
    last_stream = (uint64_t)(uintptr_t)stream;
    kernel->run(params, x, bx);
    return 0;
}
int cuStreamIsCapturing(void *stream, int *status) { *status = is_capturing; return 0; }
int cuGraphCreate(Node **graph, unsigned flags) { *graph = calloc(1, sizeof(Node)); return 0; }
int cuGraphAddKernelNode_v2(Node **node, Node *graph, Node *const *before, size_t count, const NodeParams *params) {
    Node *made = calloc(1, sizeof(Node)), *last = graph;
    unsigned char *place = made->values;
    made->kernel = params->function;
    made->grid = params->grid[0];
    made->threads = params->block[0];
    for (int k = 0; k < made->kernel->count; ++k, place += 8) memcpy(place, params->params[k], made->kernel->sizes[k]);
    while (last->next) last = last->next;
    if (count ? last != before[0] : last != graph) return 1; /* the order must be the launches' */
    last->next = made;
    *node = made;
    return 0;
}
int cuGraphInstantiateWithFlags(Node **exec, Node *graph, unsigned long long flags) {
    ++instantiated;
    *exec = calloc(1, sizeof(Node));
    (*exec)->next = graph->next;
    graph->next = NULL;
    return 0;
}
int cuGraphLaunch(Node *exec, void *stream) {
    ++graphs;
    last_stream = (uint64_t)(uintptr_t)stream;
    for (Node *node = exec->next; node; node = node->next) {
        void *params[8];
        for (int k = 0; k < 8; ++k) params[k] = node->values + 8 * k;
        node->kernel->run(params, node->grid, node->threads);
    }
    return 0;
}
int cuGraphDestroy(Node *graph) { free(graph); return 0; }
int cuGraphExecDestroy(Node *exec) {
    ++destroyed;
    for (Node *node = exec->next, *next; node; node = next) { next = node->next; free(node); }
    free(exec);
    return 0;
}
int cuGetErrorString(int error, const char **words) { *words = "unspecified launch failure"; return 0; }

/* out[i] = a * x[i] + y[i] for i < n */
static void run_axpy(void **params, unsigned grid, unsigned threads) {
    const float *x = *(const float **)params[0], *y = *(const float **)params[1];
    float *out = *(float **)params[2];
    int64_t n = *(int64_t *)params[4];
    for (int64_t i = 0; i < n && i < (int64_t)grid * threads; ++i) out[i] = *(int32_t *)params[3] * x[i] + y[i];
}
Kernel axpy = {7, {8, 8, 8, 4, 8, 8, 8}, run_axpy};
