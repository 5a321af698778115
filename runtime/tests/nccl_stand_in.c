/* A stand-in for NCCL on the devices of cuda_stand_in.c, whose text comes before this one.

   A group's sends and receives of one device are one operation of its stream. When it runs, it posts what it sends, and waits
   for what it is to receive: from a device of this process by letting that device's stream go on, from one of another process
   by files in a folder that the id names. Messages carry what they are, so that devices that take part in different
   collectives are a fault; a pair that meets first while a graph is captured is one too. */
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 64, UNIQUE_BYTES = 128, NCCL_IN_PROGRESS = 7, NCCL_INVALID = 4 };

long exchanges, messages, message_bytes; /* that have run, and what was sent to other devices */

typedef struct { char bytes[UNIQUE_BYTES]; } UniqueId;
typedef struct Message { struct Message *next; int source, target; uint64_t number, bytes; char what[16]; char *data; } Message;
typedef struct Clique { struct Clique *next; char folder[UNIQUE_BYTES]; struct Comm *local[RANKS]; Message *messages; int count; } Clique;
typedef struct Comm { Clique *clique; int rank, device, dead, connected[RANKS]; uint64_t sent[RANKS], received[RANKS]; } Comm;
typedef struct Transfer { int sends, peer; uint64_t at, bytes; char what[16]; } Transfer;
static Clique *cliques;

int pause_briefly(void) { return nanosleep(&(struct timespec){0, 200000}, NULL); }

static int check_exchange(int stream, const Exchange *exchange) {
    if (exchange->comm->device != streams[stream].device) return failed("%s", "a collective on a stream of another device than its communicator's");
    for (int k = 0; k < exchange->count; k++)
        if (access_memory(stream, exchange->transfers[k].at, exchange->transfers[k].bytes, !exchange->transfers[k].sends, "a collective")) return FAILED;
    return 0;
}

static void path_of(char *path, const Clique *clique, int source, int target, uint64_t number) {
    snprintf(path, 300, "%s/%d-%d-%llu", clique->folder, source, target, (unsigned long long)number);
}

static void post(Comm *own, const Transfer *transfer) {
    Clique *clique = own->clique;
    Message message = {clique->messages, own->rank, transfer->peer, own->sent[transfer->peer]++, transfer->bytes};
    memcpy(message.what, transfer->what, sizeof message.what);
    messages += transfer->peer != own->rank, message_bytes += transfer->peer != own->rank ? transfer->bytes : 0;
    if (clique->local[transfer->peer]) {
        message.data = malloc(transfer->bytes + 1);
        memcpy(message.data, (void *)transfer->at, transfer->bytes);
        clique->messages = malloc(sizeof message);
        *clique->messages = message;
        return;
    }
    char path[300], draft[304];
    path_of(path, clique, own->rank, transfer->peer, message.number);
    snprintf(draft, sizeof draft, "%s.new", path);
    FILE *file = fopen(draft, "wb");
    if (!file) { failed("%s cannot be written", path); return; }
    fwrite(&message, sizeof message, 1, file);
    fwrite((void *)transfer->at, 1, transfer->bytes, file);
    fclose(file);
    rename(draft, path);
}

/* The message that a receive waits for; NULL where it has not come. */
static Message *arrived(Comm *own, const Transfer *transfer) {
    uint64_t number = own->received[transfer->peer];
    for (Message **at = &own->clique->messages; *at; at = &(*at)->next)
        if ((*at)->source == transfer->peer && (*at)->target == own->rank && (*at)->number == number) {
            Message *found = *at;
            *at = found->next;
            return found;
        }
    if (own->clique->local[transfer->peer]) return NULL;
    char path[300];
    path_of(path, own->clique, transfer->peer, own->rank, number);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    Message *found = malloc(sizeof *found);
    if (fread(found, sizeof *found, 1, file) != 1) found->bytes = 0;
    found->data = malloc(found->bytes + 1);
    found->bytes = fread(found->data, 1, found->bytes, file);
    fclose(file);
    unlink(path);
    return found;
}

static int receive(Comm *own, const Transfer *transfer) {
    Message *message = arrived(own, transfer);
    Comm *peer = own->clique->local[transfer->peer];
    for (int k = 0; !message && peer && peer != own && k < stream_count; k++) { /* let it come so far */
        if (streams[k].device != peer->device || !streams[k].queue.count) continue;
        drain(k, UINT64_MAX);
        message = arrived(own, transfer);
    }
    if (!message) return 0;
    if (message->bytes != transfer->bytes || strcmp(message->what, transfer->what)) failed("a device is in another collective than its peer: %s", transfer->what);
    else memcpy((void *)transfer->at, message->data, transfer->bytes);
    own->received[transfer->peer]++;
    free(message->data);
    free(message);
    return 1;
}

/* Sends come first in the order of an exchange; `next` counts what is done. */
static int run_exchange(int stream, Task *task) {
    Exchange *exchange = &task->exchange;
    if (exchange->comm->dead) return 1;
    for (; task->next < exchange->count; task->next++) {
        const Transfer *transfer = &exchange->transfers[task->next];
        if (transfer->sends) post(exchange->comm, transfer);
        else if (!receive(exchange->comm, transfer)) return 0;
    }
    exchanges++;
    return 1;
}

/* ---- groups, of one thread each */

static _Thread_local struct { int depth, count; struct { Comm *comm; void *stream; Transfer transfer; } ops[4096]; } group;

static int flush(void) {
    int result = 0;
    for (int k = 0; k < group.count && !result; k++) {
        Comm *comm = group.ops[k].comm;
        if (!comm) continue;
        void *stream = group.ops[k].stream;
        Exchange exchange = {comm, 0, calloc(group.count, sizeof(Transfer))};
        for (int sends = 1; sends >= 0; sends--)
            for (int n = k; n < group.count; n++)
                if (group.ops[n].comm == comm && group.ops[n].stream == stream && group.ops[n].transfer.sends == sends) exchange.transfers[exchange.count++] = group.ops[n].transfer;
        for (int n = k; n < group.count; n++)
            if (group.ops[n].comm == comm && group.ops[n].stream == stream) group.ops[n].comm = NULL;
        for (int n = 0; n < exchange.count; n++) {
            int *connected = &comm->connected[exchange.transfers[n].peer];
            if (!*connected && streams[of(stream)].capturing) result = failed("%s", "devices meet first while a graph is captured");
            *connected = 1;
        }
        void *before = current_context;
        current_context = &contexts[comm->device];
        Task task = {.kind = EXCHANGE, .exchange = exchange};
        result = result ? 1 : enqueue(stream, &task) ? 1 : 0;
        current_context = before;
    }
    group.count = 0;
    return result;
}

static int add(Comm *comm, void *stream, int sends, int peer, const void *at, uint64_t bytes, const char *what) {
    if (!comm || comm->dead || peer < 0 || peer >= comm->clique->count || group.count == 4096) return NCCL_INVALID;
    group.ops[group.count].comm = comm, group.ops[group.count].stream = stream;
    Transfer *transfer = &group.ops[group.count++].transfer;
    *transfer = (Transfer){sends, peer, (uint64_t)at, bytes};
    snprintf(transfer->what, sizeof transfer->what, "%s", what);
    return 0;
}

int ncclGroupStart(void) { group.depth++; return 0; }
int ncclGroupEnd(void) {
    int result = --group.depth ? 0 : flush();
    return result ? result : NCCL_IN_PROGRESS;
}
static int ended(int result) { return result || group.depth ? result : flush() ? 1 : NCCL_IN_PROGRESS; }

int ncclSend(const void *at, size_t count, int type, int peer, Comm *comm, void *stream) { return ended(add(comm, stream, 1, peer, at, count, "send")); }
int ncclRecv(void *at, size_t count, int type, int peer, Comm *comm, void *stream) { return ended(add(comm, stream, 0, peer, at, count, "send")); }
int ncclAllGather(const void *in, void *out, size_t count, int type, Comm *comm, void *stream) {
    int result = comm && !comm->dead ? 0 : NCCL_INVALID;
    for (int k = 0; !result && k < comm->clique->count; k++) {
        result = add(comm, stream, 1, k, in, count, "gather");
        if (!result) result = add(comm, stream, 0, k, (char *)out + k * count, count, "gather");
    }
    return ended(result);
}
int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, Comm *comm, void *stream) {
    int result = comm && !comm->dead ? add(comm, stream, 0, root, out, count, "broadcast") : NCCL_INVALID;
    for (int k = 0; !result && comm->rank == root && k < comm->clique->count; k++) result = add(comm, stream, 1, k, in, count, "broadcast");
    return ended(result);
}

/* ---- communicators */

int ncclGetVersion(int *found) { *found = 22304; return 0; }
const char *ncclGetErrorString(int result) { return fault[0] ? fault : result == NCCL_INVALID ? "invalid argument" : "unhandled cuda error"; }
int ncclGetUniqueId(UniqueId *id) {
    memset(id, 0, sizeof *id);
    const char *folder = getenv("NCCL_STAND_IN_FOLDER");  /* which the tests remove */
    if (!folder || snprintf(id->bytes, sizeof id->bytes, "%s/XXXXXX", folder) >= (int)sizeof id->bytes) return NCCL_INVALID;
    return mkdtemp(id->bytes) ? 0 : 2;
}
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;
int ncclCommInitRankConfig(Comm **comm, int count, UniqueId id, int rank, const Config *config) {
    HOLD(changing);
    if (!config || config->size != 48 || config->magic != 0xcafebeef || config->blocking || rank < 0 || rank >= count || count > RANKS || elsewhere()) return NCCL_INVALID;
    Clique *clique = cliques;
    while (clique && strcmp(clique->folder, id.bytes)) clique = clique->next;
    if (!clique) {
        clique = calloc(1, sizeof *clique);
        memcpy(clique->folder, id.bytes, sizeof id.bytes);
        clique->count = count, clique->next = cliques, cliques = clique;
    }
    if (clique->local[rank] || clique->count != count) return NCCL_INVALID;
    Comm *made = *comm = clique->local[rank] = calloc(1, sizeof *made);
    *made = (Comm){.clique = clique, .rank = rank, .device = own_device()};
    char path[300];
    snprintf(path, sizeof path, "%s/rank-%d", id.bytes, rank);
    FILE *file = fopen(path, "wb");
    if (file) fclose(file);
    comms++;
    return NCCL_IN_PROGRESS;
}
int ncclCommGetAsyncError(Comm *comm, int *result) {
    char path[300];
    *result = 0;
    for (int k = 0; k < comm->clique->count && !*result; k++) {
        snprintf(path, sizeof path, "%s/rank-%d", comm->clique->folder, k);
        if (access(path, F_OK)) *result = NCCL_IN_PROGRESS;
    }
    return 0;
}
int ncclCommAbort(Comm *comm) { comm->dead = 1; comms--; return 0; }
