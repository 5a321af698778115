/* A call's arguments as leaves and tokens: equal tokens and equal objects mean the same program. */
#pragma once
#include "program.h"

#define TOKENS_INLINE 192
#define LEAVES_INLINE 32
#define OBJECTS_INLINE 48

/* `tokens` hold the structure and the leaves' types, `objects` what is compared by == : keys of dicts, names and values
   of static arguments. Both, and the leaves, are in the order of the arguments. */
typedef struct {
    int64_t *tokens;
    Operand *leaves;
    PyObject **objects; /* owned */
    Py_ssize_t token_count, leaf_count, object_count;
    Py_ssize_t token_room, leaf_room, object_room;
    uint64_t hash;
    int64_t some_tokens[TOKENS_INLINE];
    Operand some_leaves[LEAVES_INLINE];
    PyObject *some_objects[OBJECTS_INLINE];
} Flat;

/* The arguments of one call, and which of them are static. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *names;       /* a tuple of the keywords that follow the positional arguments, or NULL */
    PyObject *numbers;     /* static_argnums, a tuple of integers */
    PyObject *static_names;
} Arguments;

typedef enum { FLAT, UNKNOWN, FAILED } Outcome;

/* UNKNOWN: Python must look at the arguments, because of a leaf or a container that is not known here. FAILED: an
   exception is set. Whatever comes back, `drop_flat` has to follow. */
Outcome flatten(Flat *flat, const Arguments *arguments);
void drop_flat(Flat *flat);
/* The leaves' positions in canonical order, which `numbered` (args, kwargs), the arguments' tree of non-static leaves with
   numbers instead, tells. -1 with an exception set. */
int number_leaves(const Arguments *arguments, PyObject *numbered, int *order, Py_ssize_t count);
bool is_static(const Arguments *arguments, Py_ssize_t position);
bool is_static_name(const Arguments *arguments, PyObject *name);
int add_leaf_types(PyObject *module);
