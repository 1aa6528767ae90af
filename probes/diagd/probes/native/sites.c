/* The line of the user's own code that a call comes from: a memory in front of sites.py, which says what a file is. */
#include "native.h"

enum { SLOTS = 1024, TRIES = 4, MAX_FRAMES = 200, PACKAGE = 1, USER = 2 };

typedef struct {
    PyObject *code;  /* kept, so that its address stays its own */
    int64_t lasti;   /* -1: what kind of code it is; else the offset of the string that names the line */
    int64_t value;
} Slot;

static Slot slots[SLOTS];

static Slot *slot_of(PyObject *code, int64_t lasti, int try)
{
    uintptr_t hash = ((uintptr_t)code >> 4) * 31 + (uintptr_t)(lasti + 1) * 17;
    return &slots[(hash + (uintptr_t)try) % SLOTS];
}

static int64_t known(PyObject *code, int64_t lasti)
{
    for (int try = 0; try < TRIES; try++) {
        Slot *slot = slot_of(code, lasti, try);
        if (slot->code == code && slot->lasti == lasti)
            return slot->value;
        if (slot->code == NULL)
            break;
    }
    return -1;
}

static void keep(PyObject *code, int64_t lasti, int64_t value)
{
    static unsigned turn;
    Slot *slot = NULL;
    for (int try = 0; try < TRIES && (slot == NULL || slot->code != NULL); try++)
        slot = slot_of(code, lasti, try);
    if (slot->code != NULL)
        slot = slot_of(code, lasti, (int)(turn++ % TRIES));
    PyObject *before = slot->code;
    *slot = (Slot){Py_NewRef(code), lasti, value};
    Py_XDECREF(before);
}

void forget_sites(void)
{
    for (int n = 0; n < SLOTS; n++) {
        PyObject *before = slots[n].code;
        slots[n] = (Slot){NULL, 0, 0};
        Py_XDECREF(before);
    }
}

static int64_t asked(PyObject *function, PyObject *argument)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(function, argument, NULL);
    if (answer == NULL)
        return -1;
    int64_t value = PyLong_AsLongLong(answer);
    Py_DECREF(answer);
    if (value < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "no site");
    return value < 0 ? -1 : value;
}

static int64_t kind_of(PyObject *code)
{
    int64_t kind = known(code, -1);
    if (kind < 0) {
        kind = asked(hooks.kind_of, code);
        if (kind >= 0)
            keep(code, -1, kind);
    }
    return kind;
}

static int64_t site_of(PyObject *frame, PyObject *code)
{
    PyObject *number = PyObject_GetAttr(frame, s_f_lasti);
    int64_t lasti = number != NULL ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    if (PyErr_Occurred())
        return -1;
    int64_t site = lasti >= 0 ? known(code, lasti) : -1;
    if (site >= 0)
        return site;
    uint64_t generation = current.generation;
    site = asked(hooks.intern, frame);
    if (site > 0 && lasti >= 0 && generation == current.generation)
        keep(code, lasti, site);
    return site;
}

/* Looks at one frame: whether the search is over, with its result in `site`; the frame's reference is used up. */
static int decided(PyObject *frame, PyObject **package, int64_t *site)
{
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    int64_t kind = kind_of(code);
    int over = kind < 0 || kind == USER;
    if (over)
        *site = kind < 0 ? -1 : site_of(frame, code);
    else if (kind == PACKAGE && *package == NULL)
        *package = Py_NewRef(frame);
    Py_DECREF(code);
    return over;
}

static PyObject *outer(PyObject *frame)
{
    PyObject *back = PyObject_GetAttr(frame, s_f_back);
    Py_DECREF(frame);
    return back;
}

static PyObject *here(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    int ready = hooks.intern != NULL ? box_ready() : -1;
    int64_t site = ready == 1 ? find_site() : ready;
    return site < 0 ? fall_back(fallback, args, count) : PyLong_FromLongLong(site);
}

static PyMethodDef definition = {"here", (PyCFunction)(void (*)(void))here, METH_FASTCALL, NULL};

PyObject *make_here(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&definition, fallback);
}

int64_t find_site(void)
{
    int64_t site = 0;
    PyObject *package = NULL, *frame = (PyObject *)PyEval_GetFrame();
    if (frame == NULL)
        return 0;
    frame = outer(Py_NewRef(frame));
    int over = 0;
    for (int depth = 0; depth < MAX_FRAMES && frame != NULL && frame != Py_None; depth++) {
        over = decided(frame, &package, &site);
        if (over)
            break;
        frame = outer(frame);
    }
    if (frame == NULL)
        site = -1;
    else if (!over && package != NULL) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)package);
        site = site_of(package, code);
        Py_DECREF(code);
    }
    Py_XDECREF(frame);
    Py_XDECREF(package);
    return site;
}
