/* Capture and graphs of the stand-in for libcuda (cuda_stand_in.c, whose text comes before this one). */

int cuStreamIsCapturing(void *stream, int *status) { *status = streams[of(stream)].capturing != NULL; return 0; }
int cuStreamBeginCapture_v2(void *stream, int mode) {
    counts.calls++;
    if (of(stream) == 0) return 901; /* the legacy stream cannot be captured */
    streams[of(stream)].capturing = calloc(1, sizeof(Graph));
    streams[of(stream)].dependency = streams[of(stream)].branch = 0;
    return 0;
}
int cuStreamBeginCaptureToGraph(void *stream, Graph *graph, void *const *before, const void *data, size_t count, int mode) {
    counts.calls++;
    streams[of(stream)].capturing = graph;
    streams[of(stream)].dependency = graph->last[0] = graph->nodes.count;
    streams[of(stream)].branch = 0;
    return 0;
}
/* Its branches' streams are no longer captured; all must have been waited for. */
static int leave_capture(const Graph *graph) {
    int result = 0;
    for (int k = 1; graph && k <= graph->branches; k++)
        if (graph->joined[k] < graph->last[k]) failed("%s", "a branch of a graph that nothing waits for"), result = UNJOINED;
    for (int k = 0; graph && k < stream_count; k++)
        if (streams[k].capturing == graph && streams[k].branch) streams[k].capturing = NULL, streams[k].branch = 0;
    return result;
}
int cuStreamEndCapture(void *stream, Graph **graph) {
    counts.calls++;
    *graph = streams[of(stream)].invalid ? NULL : streams[of(stream)].capturing;
    int result = streams[of(stream)].invalid ? 901 : leave_capture(streams[of(stream)].capturing);
    streams[of(stream)].capturing = NULL;
    streams[of(stream)].invalid = 0;
    return result;
}
int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, Graph **graph, void *const **before, size_t *count) {
    static void *last[1];
    Stream *found = &streams[of(stream)];
    counts.calls++;
    *status = found->capturing != NULL;
    if (!found->capturing) return 0;
    *graph = found->capturing;
    last[0] = (void *)(uintptr_t)found->dependency; /* a node is known by its number, from 1 */
    if (before) *before = last;
    if (count) *count = found->dependency > 0;
    return 0;
}
int cuStreamUpdateCaptureDependencies(void *stream, void **nodes, size_t count, unsigned flags) {
    counts.calls++;
    if (count != 1 || flags != 1) return 1;
    streams[of(stream)].dependency = streams[of(stream)].capturing->last[0] = (int)(uintptr_t)nodes[0];
    return 0;
}
int cuGraphConditionalHandleCreate(uint64_t **handle, Graph *graph, void *context, unsigned value, unsigned flags) {
    *handle = calloc(1, 8);
    return 0;
}
typedef struct { int type, reserved[3]; uint64_t *handle; int kind; unsigned size; Graph **bodies; void *context; } NodeParams;
int cuGraphAddNode(void **node, Graph *graph, void *const *before, size_t count, NodeParams *params) {
    counts.calls++;
    if (params->type != 13 || params->size != 1) return 1;
    if (count ? (int)(uintptr_t)before[0] != graph->last[0] : graph->nodes.count != 0) return failed("a conditional node does not follow %s", "the node before it");
    Graph *body = calloc(1, sizeof(Graph));
    Task task = {.kind = CONDITIONAL, .conditional = {params->kind, params->handle, body}};
    push(&graph->nodes, &task);
    params->bodies = malloc(sizeof *params->bodies);
    params->bodies[0] = body;
    *node = (void *)(uintptr_t)graph->nodes.count;
    return 0;
}
/* An executable graph is the graph that it was made from or updated to: what is in flight keeps the old one. */
typedef struct { Graph *graph; } Exec;
int cuGraphInstantiateWithFlags(Exec **exec, Graph *graph, unsigned long long flags) {
    counts.calls++, counts.instantiated++;
    *exec = malloc(sizeof **exec);
    (*exec)->graph = graph;
    return 0;
}
static int alike(const Graph *a, const Graph *b) {
    if (a->nodes.count != b->nodes.count) return 0;
    for (int k = 0; k < a->nodes.count; k++) {
        const Task *one = &a->nodes.tasks[k], *other = &b->nodes.tasks[k];
        if (one->kind != other->kind || (one->kind == CONDITIONAL && !alike(one->conditional.body, other->conditional.body))) return 0;
    }
    return 1;
}
int cuGraphExecUpdate_v2(Exec *exec, Graph *graph, void *info) {
    counts.calls++;
    if (graph_cannot_update || !alike(exec->graph, graph)) return UPDATE_FAILED;
    counts.updated++;
    exec->graph = graph;
    return 0;
}
int cuGraphLaunch(Exec *exec, void *stream) {
    counts.calls++, counts.graphs++, counts.programs += exec->graph->programs;
    Task task = {.kind = GRAPH, .graph = {exec->graph}};
    return refuse_launches ? FAILED : execute ? enqueue(stream, &task) : 0;
}
int cuGraphDestroy(Graph *graph) { return 0; }
int cuGraphExecDestroy(Exec *exec) { counts.destroyed++; free(exec); return 0; }
