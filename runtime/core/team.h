/* Teams: whether a kernel's threads pay, found out by timing it now and then with and without them. */
#pragma once
#include "core.h"

typedef struct {
    int *threads; /* how many the kernel's library may use */
    bool alone;   /* one thread has been the faster way */
    int left, pause, turn;     /* calls to the next trial, and from one to the next; the trial's calls so far */
    int64_t spent[2], most[2]; /* nanoseconds of a trial's calls, in all and the longest: of a team, of one thread */
} Team;

typedef void (*Kernel)(void **buffers, const int64_t *sizes);

void new_team(Team *team, int *threads);
void run_in_team(Team *team, Kernel kernel, void **buffers, const int64_t *sizes);
