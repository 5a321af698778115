/* Teams of threads: a kernel's step finds out whether they pay.

   That cannot be derived from sizes alone: a team costs a microsecond on an idle machine, but where another process has a
   processor, or threads of a library that wait for work, it costs as long as they keep it. So now and then some calls run with the
   team and some without, and the step goes on with what was faster; trials become rarer while that stays the same. The longest call
   of each way does not count, since threads that sleep have to be woken. Results do not depend on the number of threads.

   A step's team changes in calls, without a lock: what threads make of each other's counts is at worst a trial that says
   nothing. */
#include "team.h"
#include <time.h>

#define FIRST 4     /* calls before the first trial, in which caches fill */
#define TURNS 5     /* calls of each way in a trial */
#define SOON 64     /* calls to the next trial, once the way has changed */
#define LATE 8192   /* and at most */
#define LONG 20000000 /* nanoseconds of a call beside which a time slice is little, and a trial would take long */

static int team_size = 1; /* what the process's settings allow */

static int64_t nanoseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void new_team(Team *team, int *threads) { *team = (Team){.threads = threads, .left = FIRST, .pause = SOON / 2}; }

static void pause_team(Team *team, int calls) {
    *team = (Team){.threads = team->threads, .alone = team->alone, .left = calls, .pause = calls};
}

/* A tenth of the time has to be won before the way changes. */
static void judge(Team *team) {
    int64_t spent[2];
    for (int way = 0; way < 2; way++)
        spent[way] = team->spent[way] - team->most[way];
    bool changes = 10 * spent[!team->alone] < 9 * spent[team->alone];
    team->alone ^= changes;
    pause_team(team, changes ? SOON : team->pause < LATE / 2 ? 2 * team->pause : LATE);
}

void run_in_team(Team *team, Kernel kernel, void **buffers, const int64_t *sizes) {
    if (team_size <= 1) {
        kernel(buffers, sizes);
        return;
    }
    bool trial = team->left <= 0;
    team->left -= !trial;
    bool alone = trial && team->turn >= TURNS ? !team->alone : team->alone;
    int64_t began = trial ? nanoseconds_now() : 0;
    if (alone)
        *team->threads = 1;
    kernel(buffers, sizes);
    if (alone)
        *team->threads = team_size;
    if (!trial)
        return;
    int64_t spent = nanoseconds_now() - began;
    team->spent[alone] += spent;
    team->most[alone] = spent > team->most[alone] ? spent : team->most[alone];
    if (spent > LONG)
        pause_team(team, LATE);
    else if (++team->turn >= 2 * TURNS)
        judge(team);
}

static PyObject *set_team_size(PyObject *module, PyObject *count) {
    int size = (int)PyLong_AsLong(count);
    if (PyErr_Occurred())
        return NULL;
    team_size = size;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_team_size", set_team_size, METH_O, "set_team_size(count): how many threads kernels may use."},
    {NULL},
};

int add_team(PyObject *module) { return PyModule_AddFunctions(module, methods); }
