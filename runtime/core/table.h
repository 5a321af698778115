/* The programs of one jitted function by the tokens of their calls. */
#pragma once
#include "flatten.h"

typedef struct {
    PyObject_HEAD
    uint64_t hash;
    int64_t *tokens;
    Py_ssize_t token_count, object_count;
    PyObject **objects;
    int *order;       /* for each leaf its place in the order of the program's inputs; NULL if that is the same */
    PyObject *program;
    uint64_t last_use;
} Entry;

typedef struct Table Table; /* never changes once made, so that a look needs no lock */

extern PyTypeObject entry_type, table_type;

/* A new entry; `order` is copied. */
Entry *new_entry(const Flat *flat, const int *order, PyObject *program);
/* The entry for these arguments (a new reference) or NULL; an exception may be set by the == of a static argument. */
Entry *find_entry(Table *table, const Flat *flat);
/* A table with one entry more; beyond `most`, without the one that was used least recently. `table` may be NULL. */
Table *with_entry(Table *table, Entry *entry, Py_ssize_t most);
Py_ssize_t table_size(const Table *table);
