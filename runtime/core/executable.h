/* Executables: what steps and those who run them share. A new kind of step is a function `run` and a line in the table
   of kinds in executable.c. */
#pragma once
#include "device_array.h"

/* What lies in a slot during one call. `data` is where a kernel reads or writes; `object`, owned, is the array that the
   memory belongs to, or NULL for a place in the call's arena and for a scalar that the caller holds. */
typedef struct {
    PyObject *object;
    char *data;
    bool writable; /* a result may take the memory over */
    bool given;    /* the memory was a donated argument's, which the caller holds too */
    bool made;     /* by the call, for what a kernel writes */
    bool foreign;  /* an input in memory that the caller may change later: no result may share it */
} Slot;

typedef struct {
    int ndim; /* -1: unknown */
    npy_intp *dims;
    PyArray_Descr *dtype;
    npy_intp bytes;
} SlotType;

typedef struct {
    int slot;
    int reuse;          /* the slot of an input, or -1 */
    Py_ssize_t offset;  /* in the arena, or -1 */
    PyObject *label;    /* the user's line, or NULL */
} Output;

typedef void (*Kernel)(void **buffers, const int64_t *sizes);
typedef struct Call Call;
typedef struct Step Step;

struct Step {
    int (*run)(Call *call, const Step *step); /* fills the outputs' slots; -1 with an exception set */
    PyObject *name;
    PyObject *function; /* what is called, or what keeps the kernel's code loaded */
    Kernel kernel;
    int64_t *sizes;
    bool keeps_gil; /* the kernel takes less time than giving the GIL to others would be worth */
    bool meets;     /* a collective: a call that can be suspended stops here */
    int argument_count, output_count, drop_count;
    int *arguments, *drops;
    Output *outputs;
};

typedef struct {
    PyObject_HEAD
    int slot_count, input_count, const_count, step_count, output_count;
    int *inputs, *const_slots, *outputs;
    bool *fresh; /* outputs that a kernel writes, into memory of their own */
    PyObject **consts;
    Step *steps;
    SlotType *types;
    bool typed;         /* whether the inputs' types are known */
    PyObject *allocate; /* makes outputs; NULL: new_ndarray */
    bool device;        /* whether arrays lie on the GPU */
    size_t arena;
    PyObject *label; /* whose the arena is, in errors */
    bool lends; /* whether a step other than a kernel reads the arena, so that an array over it may outlive the call */
} Executable;

struct Call {
    const Executable *executable;
    Slot *slots;
    char *arena;
    PyObject *arena_owner; /* once an array over the arena may have left the call's sight */
    Handle stream;         /* of one on the device */
    ContextGuard context;
};

typedef struct {
    const char *name;
    int (*run)(Call *call, const Step *step);
} StepKind;

extern const StepKind step_kinds[]; /* ends with a NULL name */
extern PyTypeObject executable_type;

/* Run on `inputs`, one for each of the executable's, whose references are taken over, and write as many new references
   as there are outputs. -1 with an exception set, and nothing written, if a step fails. */
int run_executable(const Executable *executable, Slot *inputs, PyObject **outputs);
/* The same in parts. `slots`, as many as the executable has, and the `arena`, NULL for one from the pool, must outlive
   the call; end_call follows begin_call even where that fails. */
int begin_call(Call *call, const Executable *executable, Slot *slots, Slot *inputs, char *arena);
int walk(Call *call);
/* The steps from `*next` on, up to the first collective, which is not run: 1 there, 0 at the end, -1 with an exception. */
int walk_to_meeting(Call *call, int *next);
void drop_dead(Call *call, const Step *step);
int gather_results(Call *call, PyObject **outputs);
void end_call(Call *call, const char *arena);
/* construct.c: the arrays as slots of the inputs, checked. -1 with an exception set, and no references taken. */
int read_inputs(const Executable *executable, PyObject *const *args, Py_ssize_t count, Slot *inputs);
PyObject *list_of(PyObject **outputs, int count);
/* Whether an array is what an input's slot is for; true where the executable does not know. */
bool same_type(PyObject *array, const SlotType *type);
/* Lay an array into an input's slot, its reference taken over; a copy without gaps where it has some. */
int put_input(Slot *slot, PyObject *array);

/* The ndarray (or what else lies there) of a slot, borrowed; made now if nothing has needed it so far. */
PyObject *slot_object(Call *call, int slot);
/* Give each output of a step its memory: its place in the arena, that of a donated input, or memory of its own. */
int allocate_outputs(Call *call, const Step *step);
/* Put what a step returned, one array or a list or tuple of them, into its outputs' slots. */
int fill_outputs(Call *call, const Step *step, PyObject *results);
/* device_program.c: the step of a DeviceProgram. */
int run_device(Call *call, const Step *step);
