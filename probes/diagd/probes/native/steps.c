/* Optimizer steps and backward passes that are like the one before: what steps.py, turns.py and backward.py do then.
 *
 * Everything that may be unusual is asked before anything is changed, as Python's way then does all of it. */
#include "native.h"

enum { PLAIN, KNOWN, OPEN, PENDING, TURN, LOOK, CASTS, NUMBERS, ON = 1, OFF = 2, TIMED_STEP = 8, TIMED_PASS = 5 };

static struct {
    int64_t step, step_ns, started, optimizer_steps, backwards, backward_site;  /* within the live block */
    int64_t forward, backward, optimizer, other;                                /* phases */
} at;
static int64_t *fast;
static PyObject *cost_step, *cost_pass, *odd_pass;

static int64_t under_way(const int64_t *live)
{
    return (live[at.step] > 0 ? live[at.step] : 0) + 1;
}

/* Whether this is the training thread, outside of backward passes; what cannot be told is a no. */
static int is_plain_thread(void)
{
    int64_t depth;
    int plain = !state_int(s_backward_depth, &depth) && depth == 0 && is_trainer() == 1;
    PyErr_Clear();
    return plain;
}

static void enter_phase(int64_t phase)
{
    if (may_change() == 1 && live_numbers()[layout.phase] != phase)
        change_phase(phase, now_ns());
    PyErr_Clear();
}

static PyObject *stepping(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    if (fast == NULL || count != 1 || !fast[PLAIN] || fast[KNOWN] != (int64_t)(intptr_t)args[0] || box_ready() != 1)
        return fall_back(fallback, args, count);
    if (fast[PLAIN] == OFF)
        Py_RETURN_NONE;
    int64_t *live = live_numbers();
    if (under_way(live) >= fast[TURN] || !is_plain_thread())
        return fall_back(fallback, args, count);
    if (fast[OPEN] == 0 || live[layout.phase] != at.optimizer) {
        fast[OPEN] = fast[KNOWN];
        enter_phase(at.optimizer);
    }
    Py_RETURN_NONE;
}

static PyObject *stepped(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    if (fast == NULL || count != 1 || !fast[PLAIN] || fast[KNOWN] != (int64_t)(intptr_t)args[0] || box_ready() != 1)
        return fall_back(fallback, args, count);
    int64_t *live = live_numbers(), step = under_way(live), off = fast[PLAIN] == OFF;
    if (step >= fast[LOOK] || (!off && (step >= fast[TURN] || !is_plain_thread())))
        return fall_back(fallback, args, count);
    int64_t now = now_ns(), timed = off || (step & layout.cost_mask) != TIMED_STEP ? 0 : cpu_ns();
    live[at.optimizer_steps]++;
    fast[PENDING]++;
    if (fast[OPEN] == fast[KNOWN]) {
        fast[OPEN] = 0;
        if (!off)
            enter_phase(at.forward);
    }
    live[at.step] = step;
    live[at.step_ns] = live[at.started] = now;
    if (timed)
        add_cost(cost_step, timed - (cpu_ns() - timed)); /* twice: what comes before the step costs about the same */
    Py_RETURN_NONE;
}

/* Whether a pass is to be looked at though no probe waits for its step; also where that cannot be told. */
static int is_odd(PyObject *args)
{
    PyObject *found = PyObject_CallFunctionObjArgs(odd_pass, args, NULL);
    int odd = found == NULL ? 1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    PyErr_Clear();
    return odd;
}

/* The phases and the place of a pass; 0, or -1 where nothing was changed. */
static int begin_pass(int64_t *live)
{
    int64_t detail, evaluating;
    if (state_int(s_detail, &detail) || state_int(s_evaluating, &evaluating))
        return -1;
    int64_t site = detail ? find_site() : 0;
    if (site < 0 || (evaluating && PyObject_SetAttr(hooks.state, s_evaluating, Py_False)))
        return -1;
    PyObject *one = PyLong_FromLong(1);
    int failed = one == NULL || PyObject_SetAttr(hooks.state, s_backward_depth, one);
    Py_XDECREF(one);
    if (failed)
        return -1;
    if (detail)
        live[at.backward_site] = site;
    enter_phase(at.backward);
    return 0;
}

static PyObject *pass_before(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    int plain = fast != NULL && fast[PLAIN] == ON && !fast[CASTS] && box_ready() == 1;
    int64_t *live = plain ? live_numbers() : NULL;
    if (!plain || count != 2 || under_way(live) >= fast[TURN] || !is_plain_thread())
        return fall_back(fallback, args, count);
    int64_t timed = (live[at.backwards] & layout.cost_mask) == TIMED_PASS ? cpu_ns() : 0;
    if (is_odd(args[0]))
        return fall_back(fallback, args, count);
    int64_t asked = timed ? cpu_ns() : 0;
    PyObject *token = Py_BuildValue("(iO)", 1, Py_None);
    if (token == NULL || begin_pass(live)) {
        Py_XDECREF(token);
        return fall_back(fallback, args, count);
    }
    if (timed)
        add_cost(cost_pass, timed - (cpu_ns() - asked)); /* likewise, but for the question, which is asked once */
    return token;
}

static PyObject *pass_after(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    int plain = fast != NULL && fast[PLAIN] == ON && count == 2 && PyTuple_CheckExact(args[0])
        && PyTuple_Size(args[0]) == 2 && box_ready() == 1;
    int64_t *live = plain ? live_numbers() : NULL;
    int64_t depth = plain ? PyLong_AsLongLong(PyTuple_GetItem(args[0], 0)) : 0;
    PyObject *none = plain && depth == 1 ? PyLong_FromLong(0) : NULL;
    if (none == NULL || under_way(live) >= fast[TURN] || live[at.optimizer_steps] == 0
        || PyObject_SetAttr(hooks.state, s_backward_depth, none)) {
        Py_XDECREF(none);
        return fall_back(fallback, args, count);
    }
    Py_DECREF(none);
    enter_phase(at.other);
    live[at.backwards]++;
    Py_RETURN_NONE;
}

PyObject *lay_out_steps(PyObject *module, PyObject *args)
{
    (void)module;
    static Py_buffer view; /* for good: the numbers live as long as the process */
    PyObject *numbers, *step, *pass, *odd;
    int64_t *told = (int64_t *)&at;
    if (!PyArg_ParseTuple(args, "OOOOLLLLLLLLLL", &numbers, &step, &pass, &odd, &told[0], &told[1], &told[2], &told[3], &told[4],
                          &told[5], &told[6], &told[7], &told[8], &told[9])
        || PyObject_GetBuffer(numbers, &view, PyBUF_WRITABLE))
        return NULL;
    if (view.len < NUMBERS * (Py_ssize_t)sizeof *fast || ((uintptr_t)view.buf & 7)) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "other numbers");
        return NULL;
    }
    cost_step = Py_NewRef(step);
    cost_pass = Py_NewRef(pass);
    odd_pass = Py_NewRef(odd);
    fast = view.buf;
    Py_RETURN_NONE;
}

static PyMethodDef definitions[] = {
    {"stepping", (PyCFunction)(void (*)(void))stepping, METH_FASTCALL, NULL},
    {"stepped", (PyCFunction)(void (*)(void))stepped, METH_FASTCALL, NULL},
    {"pass_before", (PyCFunction)(void (*)(void))pass_before, METH_FASTCALL, NULL},
    {"pass_after", (PyCFunction)(void (*)(void))pass_after, METH_FASTCALL, NULL},
};

PyObject *make_stepping(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definitions[0], fallback);
}

PyObject *make_stepped(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definitions[1], fallback);
}

PyObject *make_pass_before(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definitions[2], fallback);
}

PyObject *make_pass_after(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definitions[3], fallback);
}
