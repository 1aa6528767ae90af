/* Waiting for an operation, and the phase that the rank is in: what waits.py and phases.py do. */
#include "native.h"

int is_trainer(void)
{
    PyObject *trainer = PyObject_GetAttr(hooks.state, s_trainer);
    if (trainer == NULL)
        return -1;
    unsigned long ident = PyLong_AsUnsignedLong(trainer);
    Py_DECREF(trainer);
    if (PyErr_Occurred())
        return -1;
    return ident == PyThread_get_thread_ident();
}

int may_change(void)
{
    int64_t held;
    if (state_int(s_held, &held))
        return -1;
    return held ? 0 : is_trainer();
}

void change_phase(int64_t phase, int64_t now)
{
    int64_t *live = live_numbers();
    int64_t before = live[layout.phase];
    if (before >= 0 && before < 9)
        live[layout.totals + before] += now - live[layout.phase_ns];
    live[layout.phase] = phase;
    live[layout.phase_ns] = now;
}

int64_t *live_numbers(void)
{
    return current.numbers + layout.live_at / 8;
}

static PyObject *enter(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    int64_t phase = count == 1 ? PyLong_AsLongLong(args[0]) : -1;
    int ready = phase >= 0 ? box_ready() : -1;
    if (ready == 0)
        Py_RETURN_NONE;
    int mine = ready == 1 ? may_change() : -1;
    if (mine < 0 || phase > 8)
        return fall_back(fallback, args, count);
    if (mine && live_numbers()[layout.phase] != phase)
        change_phase(phase, now_ns());
    Py_RETURN_NONE;
}

/* Whether what was found at a work's place is that work's and not an earlier one's; -1 with an exception set. */
static int is_of(PyObject *found, PyObject *work)
{
    PyObject *reference = PyTuple_CheckExact(found) && PyTuple_Size(found) == 3 ? PyTuple_GetItem(found, 2) : Py_None;
    if (reference == Py_None)
        return 1;
    PyObject *known = PyObject_CallNoArgs(reference);
    Py_XDECREF(known);  /* compared, not used: if it is this work, its caller holds it */
    return known == NULL ? -1 : known == work;
}

/* The record that a work belongs to, no longer watched; NULL, perhaps with an exception set, where there is none. */
static PyObject *taken(PyObject *work)
{
    PyObject *key = PyLong_FromVoidPtr(work);
    PyObject *found = key != NULL ? Py_XNewRef(PyDict_GetItemWithError(hooks.watched, key)) : NULL;
    if (found != NULL && (PyDict_DelItem(hooks.watched, key) || is_of(found, work) != 1)) {
        Py_DECREF(found);
        found = NULL;
    }
    Py_XDECREF(key);
    return found;
}

static PyObject *waiting(PyObject *found, int64_t now)
{
    int64_t index = PyLong_AsLongLong(PyTuple_GetItem(found, 0)), serial = PyLong_AsLongLong(PyTuple_GetItem(found, 1));
    if (PyErr_Occurred())
        return NULL;
    if (!record_at(index, serial))
        return Py_NewRef(Py_None);
    int mine = may_change();
    if (mine < 0)
        return NULL;
    current.numbers[index + WAIT] = now;
    int64_t *live = live_numbers(), phase = live[layout.phase];
    PyObject *before;
    if (!mine || (phase >= 0 && phase < 64 && (layout.kept >> phase & 1)))
        before = Py_NewRef(Py_None);
    else {
        before = PyLong_FromLongLong(phase);
        if (before != NULL)
            change_phase(layout.collective, now);
    }
    PyObject *token = before != NULL
        ? PyTuple_Pack(3, PyTuple_GetItem(found, 0), PyTuple_GetItem(found, 1), before) : NULL;
    Py_XDECREF(before);
    return token;
}

static PyObject *wait_before(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    int64_t now = now_ns();
    if (count != 2 || !PyTuple_CheckExact(args[0]) || PyTuple_Size(args[0]) < 1)
        return fall_back(fallback, args, count);
    int ready = box_ready();
    if (ready == 0)
        Py_RETURN_NONE;
    PyObject *found = ready == 1 ? taken(PyTuple_GetItem(args[0], 0)) : NULL;
    if (found == NULL)
        return fall_back(fallback, args, count);
    if (!PyTuple_CheckExact(found) || PyTuple_Size(found) != 3) {
        Py_DECREF(found);
        Py_RETURN_NONE;
    }
    int64_t serial = PyLong_AsLongLong(PyTuple_GetItem(found, 1));
    int64_t timed = (serial & layout.cost_mask) == TIMED ? cpu_ns() : 0;
    PyObject *token = waiting(found, now);
    Py_DECREF(found);
    if (token == NULL) {
        PyErr_Clear();  /* the record is no longer watched: this wait is not told */
        Py_RETURN_NONE;
    }
    if (timed)
        add_cost(hooks.cost_wait, timed);
    return token;
}

static PyObject *wait_after(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    int64_t now = now_ns();
    if (count != 2 || !PyTuple_CheckExact(args[0]) || PyTuple_Size(args[0]) != 3 || box_ready() != 1)
        return fall_back(fallback, args, count);
    PyObject *before = PyTuple_GetItem(args[0], 2);
    int64_t index = PyLong_AsLongLong(PyTuple_GetItem(args[0], 0));
    int64_t serial = PyLong_AsLongLong(PyTuple_GetItem(args[0], 1));
    int64_t phase = before == Py_None ? -1 : PyLong_AsLongLong(before);
    if (PyErr_Occurred())
        return fall_back(fallback, args, count);
    int64_t timed = (serial & layout.cost_mask) == TIMED ? cpu_ns() : 0;
    if (record_at(index, serial))
        current.numbers[index + RETURNED] = now;
    if (phase >= 0 && live_numbers()[layout.phase] == layout.collective)
        change_phase(phase, now);
    if (timed)
        add_cost(hooks.cost_waited, timed);
    Py_RETURN_NONE;
}

static PyMethodDef definitions[] = {
    {"enter", (PyCFunction)(void (*)(void))enter, METH_FASTCALL, NULL},
    {"before", (PyCFunction)(void (*)(void))wait_before, METH_FASTCALL, NULL},
    {"after", (PyCFunction)(void (*)(void))wait_after, METH_FASTCALL, NULL},
};

PyObject *make_enter(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definitions[0], fallback);
}

PyObject *make_wait_before(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definitions[1], fallback);
}

PyObject *make_wait_after(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definitions[2], fallback);
}
