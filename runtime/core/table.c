/* Entries and the tables that hold them: open addressing over a power of two, copied when it grows by an entry. */
#include "table.h"

struct Table {
    PyObject_HEAD
    uint64_t clock; /* counts finds */
    Py_ssize_t count, room;
    Entry **entries; /* NULL: free */
};

Entry *new_entry(const Flat *flat, const int *order, PyObject *program) {
    Entry *self = PyObject_GC_New(Entry, &entry_type);
    if (self == NULL)
        return NULL;
    self->hash = flat->hash;
    self->token_count = flat->token_count;
    self->object_count = 0;
    self->last_use = 0;
    self->program = Py_NewRef(program);
    self->tokens = PyMem_Malloc(flat->token_count * sizeof(int64_t));
    self->objects = PyMem_Malloc((flat->object_count + 1) * sizeof(PyObject *));
    bool same = true;
    for (Py_ssize_t k = 0; k < flat->leaf_count; k++)
        same &= order[k] == k;
    self->order = same ? NULL : PyMem_Malloc(flat->leaf_count * sizeof(int));
    if (self->tokens == NULL || self->objects == NULL || (!same && self->order == NULL)) {
        PyObject_GC_Track(self);
        Py_DECREF(self);
        return (Entry *)PyErr_NoMemory();
    }
    memcpy(self->tokens, flat->tokens, flat->token_count * sizeof(int64_t));
    if (!same)
        memcpy(self->order, order, flat->leaf_count * sizeof(int));
    for (; self->object_count < flat->object_count; self->object_count++)
        self->objects[self->object_count] = Py_NewRef(flat->objects[self->object_count]);
    PyObject_GC_Track(self);
    return self;
}

static int entry_traverse(Entry *self, visitproc visit, void *arg) {
    for (Py_ssize_t k = 0; k < self->object_count; k++)
        Py_VISIT(self->objects[k]);
    Py_VISIT(self->program);
    return 0;
}

static int entry_clear(Entry *self) {
    Py_ssize_t count = self->object_count;
    self->object_count = 0;
    for (Py_ssize_t k = 0; k < count; k++)
        Py_DECREF(self->objects[k]);
    Py_CLEAR(self->program);
    return 0;
}

static void entry_dealloc(Entry *self) {
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    PyMem_Free(self->tokens);
    PyMem_Free(self->objects);
    PyMem_Free(self->order);
    PyObject_GC_Del(self);
}

/* 1 if the entry is for these arguments, 0 if not, -1 with an exception set. */
static int matches(const Entry *entry, const Flat *flat) {
    if (entry->hash != flat->hash || entry->token_count != flat->token_count ||
        entry->object_count != flat->object_count ||
        memcmp(entry->tokens, flat->tokens, flat->token_count * sizeof(int64_t)) != 0)
        return 0;
    for (Py_ssize_t k = 0; k < flat->object_count; k++) {
        PyObject *known = entry->objects[k], *given = flat->objects[k];
        if (known == given)
            continue;
        int equal = PyObject_RichCompareBool(known, given, Py_EQ);
        if (equal <= 0)
            return equal;
    }
    return 1;
}

Entry *find_entry(Table *table, const Flat *flat) {
    if (table == NULL)
        return NULL;
    Py_ssize_t mask = table->room - 1;
    for (Py_ssize_t slot = flat->hash & mask; table->entries[slot] != NULL; slot = (slot + 1) & mask) {
        Entry *entry = table->entries[slot];
        int found = matches(entry, flat);
        if (found < 0)
            return NULL;
        if (found) {
            entry->last_use = ++table->clock;
            return (Entry *)Py_NewRef((PyObject *)entry);
        }
    }
    return NULL;
}

static void insert(Table *table, Entry *entry) {
    Py_ssize_t mask = table->room - 1, slot = entry->hash & mask;
    while (table->entries[slot] != NULL)
        slot = (slot + 1) & mask;
    table->entries[slot] = (Entry *)Py_NewRef((PyObject *)entry);
    table->count++;
}

static const Entry *least_used(const Table *table) {
    const Entry *found = NULL;
    for (Py_ssize_t k = 0; k < table->room; k++)
        if (table->entries[k] != NULL && (found == NULL || table->entries[k]->last_use < found->last_use))
            found = table->entries[k];
    return found;
}

Table *with_entry(Table *old, Entry *entry, Py_ssize_t most) {
    Py_ssize_t count = old == NULL ? 0 : old->count, room = 8;
    const Entry *without = count >= most ? least_used(old) : NULL;
    while (room < 2 * (count + 1))
        room *= 2;
    Table *table = PyObject_GC_New(Table, &table_type);
    if (table == NULL)
        return NULL;
    table->count = 0;
    table->room = room;
    table->clock = old == NULL ? 0 : old->clock;
    table->entries = PyMem_Calloc(room, sizeof(Entry *));
    PyObject_GC_Track(table);
    if (table->entries == NULL) {
        table->room = 0;
        Py_DECREF(table);
        return (Table *)PyErr_NoMemory();
    }
    for (Py_ssize_t k = 0; old != NULL && k < old->room; k++)
        if (old->entries[k] != NULL && old->entries[k] != without)
            insert(table, old->entries[k]);
    entry->last_use = ++table->clock;
    insert(table, entry);
    return table;
}

Py_ssize_t table_size(const Table *table) { return table == NULL ? 0 : table->count; }

static int table_traverse(Table *self, visitproc visit, void *arg) {
    for (Py_ssize_t k = 0; k < self->room; k++)
        Py_VISIT(self->entries[k]);
    return 0;
}

static void table_dealloc(Table *self) {
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t k = 0; k < self->room; k++)
        Py_XDECREF(self->entries[k]);
    PyMem_Free(self->entries);
    PyObject_GC_Del(self);
}

PyTypeObject entry_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
};

PyTypeObject table_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fuser._native.Table",
    .tp_basicsize = sizeof(Table),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = (destructor)table_dealloc,
    .tp_traverse = (traverseproc)table_traverse,
};
