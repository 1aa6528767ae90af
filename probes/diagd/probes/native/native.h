/* What a rank does at every operation, compiled. The Python functions of the same names define what is right; what is
 * unusual is handed to them. Nothing here takes a lock, lets go of the GIL or raises of its own accord. */
#ifndef DIAGD_NATIVE_H
#define DIAGD_NATIVE_H

#define Py_LIMITED_API 0x030B0000 /* the stable ABI of Python 3.11, which all later ones have too */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define RING_COUNT_MOST 64
#define MAX_DIMS 6
#define TIMED 11 /* of the numbers that cost_mask leaves, as cost.py has it */

/* The box's layout, as box/layout.py has it; told by `use`, so that there is one definition. */
typedef struct {
    int64_t box_size, live_at, rings_at, ring_size, ring_header, ring_records, ring_count;
    int64_t operations, phase, phase_ns, totals;  /* int64 indices within the live block */
    int64_t collective, cost_mask;
    int64_t kept;  /* a bit for each phase that stays what it is while it communicates */
} Layout;

/* From byte 56 of a record on. */
typedef struct {
    int16_t group;
    uint8_t op, flags, dtype, reduce, ndim, tensors;
    int32_t peer, tag;
    uint32_t site, detail, thread, dims[MAX_DIMS];
} Described;

enum { SERIAL, ENTERED, ISSUED, WAIT, RETURNED, SEQ, NUMEL, DESCRIBED, RECORD_WORDS = 16 };

/* The Python objects that are used; NULL until they are told. */
typedef struct {
    PyObject *state, *find_group, *kind_of, *intern, *describe, *dtype_number, *watched, *forget_old;
    PyObject *cost_before, *cost_after, *cost_wait, *cost_waited;
} Hooks;

typedef struct {
    PyObject *box;  /* the BoxWriter that is written to */
    Py_buffer view;
    int64_t *numbers;
    uint64_t generation;  /* changes with the box; 0: there is none yet */
    PyObject *rings[RING_COUNT_MOST];
} Box;

extern Layout layout;
extern Hooks hooks;
extern Box current;

/* Names of attributes and methods. */
#define NAMES(X) \
    X(box) X(_map) X(ring) X(_at) X(detail) X(backward_depth) X(held) X(trainer) X(f_back) X(f_lasti) X(dtype) X(shape) \
    X(reduceOp) X(asyncOp) X(rootRank) X(_get_sequence_number_for_group) X(number) X(ranks) X(handle) X(counts) \
    X(uncounted) X(evaluating)
#define DECLARE(name) extern PyObject *s_##name;
NAMES(DECLARE)
#undef DECLARE

/* box.c: 1 ready, 0 there is no box, -1 with an exception set. */
int box_ready(void);
int ring_of_thread(void);  /* its number; -1 with an exception set, -2 there is none left */
int64_t write_record(int ring, int64_t entered_ns, int64_t numel, const Described *described, int64_t *serial);
int record_at(int64_t index, int64_t serial);  /* whether the box still holds that record there */
int64_t now_ns(void);
int64_t cpu_ns(void);  /* of this thread */
int state_int(PyObject *name, int64_t *value);  /* an attribute of the probes' state; 0, or -1 with an exception set */

/* sites.c */
int64_t find_site(void);  /* of the Python function that runs; -1 with an exception set */
void forget_sites(void);

/* operations.c and waits.c */
PyObject *make_recorder(PyObject *module, PyObject *args);
PyObject *make_after(PyObject *module, PyObject *fallback);
PyObject *forget_groups(PyObject *module, PyObject *unused);
PyObject *make_wait_before(PyObject *module, PyObject *fallback);
PyObject *make_wait_after(PyObject *module, PyObject *fallback);
PyObject *make_here(PyObject *module, PyObject *fallback);
PyObject *make_enter(PyObject *module, PyObject *fallback);
int is_trainer(void);  /* -1 with an exception set, like the next */
int may_change(void);  /* whether the phase is this thread's to change */
int64_t *live_numbers(void);
void change_phase(int64_t phase, int64_t now);

/* steps.c */
PyObject *lay_out_steps(PyObject *module, PyObject *args);
PyObject *make_stepping(PyObject *module, PyObject *fallback);
PyObject *make_stepped(PyObject *module, PyObject *fallback);
PyObject *make_pass_before(PyObject *module, PyObject *fallback);
PyObject *make_pass_after(PyObject *module, PyObject *fallback);

/* Hand over to the Python function; whatever was set aside is cleared, unless it ends the program. */
PyObject *fall_back(PyObject *fallback, PyObject *const *args, Py_ssize_t count);
PyObject *bound(PyMethodDef *definition, PyObject *fallback);
void add_cost(PyObject *add, int64_t began_ns);

#endif
