/* The rank's box and its rings: one record is written whole, without a step of the interpreter in between. */
#include "native.h"

#include <string.h>
#include <time.h>

Layout layout;
Box current;

typedef struct {
    uint64_t generation;
    int64_t thread;  /* as the ring's header had it: another one that takes the ring over changes that */
    int ring;
} Own;

static _Thread_local Own own;

int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int state_int(PyObject *name, int64_t *value)
{
    PyObject *found = PyObject_GetAttr(hooks.state, name);
    if (found == NULL)
        return -1;
    *value = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int attach(PyObject *box)
{
    PyObject *map = PyObject_GetAttr(box, s__map);
    if (map == NULL)
        return -1;
    Py_buffer view;
    int failed = PyObject_GetBuffer(map, &view, PyBUF_WRITABLE);
    Py_DECREF(map);
    if (failed)
        return -1;
    if (view.len < layout.box_size || ((uintptr_t)view.buf & 7)) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "not a box");
        return -1;
    }
    Box before = current;
    memset(current.rings, 0, sizeof current.rings);
    current.box = Py_NewRef(box);
    current.view = view;
    current.numbers = view.buf;
    current.generation = before.generation + 1;
    forget_sites();
    Py_XDECREF(forget_groups(NULL, NULL));  /* their numbers are those of a box too */
    for (int ring = 0; ring < RING_COUNT_MOST; ring++)
        Py_XDECREF(before.rings[ring]);
    if (before.box != NULL) {
        PyBuffer_Release(&before.view);
        Py_DECREF(before.box);
    }
    return 1;
}

int box_ready(void)
{
    if (hooks.state == NULL || layout.box_size == 0)
        return 0;
    PyObject *box = PyObject_GetAttr(hooks.state, s_box);
    if (box == NULL)
        return -1;
    int ready = box == current.box ? 1 : box == Py_None ? 0 : attach(box);
    Py_DECREF(box);
    return ready;
}

static int64_t *header_of(int ring)
{
    return current.numbers + (layout.rings_at + ring * layout.ring_size) / 8;
}

static int ask_for_ring(void)
{
    uint64_t generation = current.generation;
    PyObject *ring = PyObject_CallMethodObjArgs(current.box, s_ring, NULL);
    if (ring == NULL)
        return -1;
    if (ring == Py_None) {
        Py_DECREF(ring);
        return -2;
    }
    PyObject *at = PyObject_GetAttr(ring, s__at);
    int64_t offset = at != NULL ? PyLong_AsLongLong(at) : -1;
    Py_XDECREF(at);
    int64_t number = (offset - layout.rings_at) / layout.ring_size;
    if (PyErr_Occurred() || offset < layout.rings_at || number >= layout.ring_count || generation != current.generation) {
        Py_DECREF(ring);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no ring of this box");
        return -1;
    }
    PyObject *before = current.rings[number];
    current.rings[number] = ring;
    own = (Own){generation, header_of((int)number)[0], (int)number};
    Py_XDECREF(before);
    return (int)number;
}

int ring_of_thread(void)
{
    if (own.generation == current.generation && header_of(own.ring)[0] == own.thread)
        return own.ring;
    return ask_for_ring();
}

int64_t write_record(int ring, int64_t entered_ns, int64_t numel, const Described *described, int64_t *serial)
{
    int64_t *header = header_of(ring), *numbers = current.numbers;
    int64_t *operations = numbers + layout.live_at / 8 + layout.operations;
    int64_t begun = header[1];
    int64_t *record = header + layout.ring_header / 8 + (uint64_t)begun % (uint64_t)layout.ring_records * RECORD_WORDS;
    *serial = *operations + 1;
    __atomic_store_n(&record[SERIAL], 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);  /* a reader in another process never takes half a record for a whole one */
    record[ENTERED] = entered_ns;
    record[ISSUED] = record[WAIT] = record[RETURNED] = record[SEQ] = 0;
    record[NUMEL] = numel;
    Described told = *described;
    told.thread = (uint32_t)own.thread;
    memcpy(record + DESCRIBED, &told, sizeof told);
    __atomic_store_n(&record[SERIAL], *serial, __ATOMIC_RELEASE);
    __atomic_store_n(&header[1], begun + 1, __ATOMIC_RELEASE);
    __atomic_store_n(operations, *serial, __ATOMIC_RELEASE);
    return record - numbers;
}

int record_at(int64_t index, int64_t serial)
{
    return index >= layout.rings_at / 8 && index <= layout.box_size / 8 - RECORD_WORDS && current.numbers[index] == serial;
}
