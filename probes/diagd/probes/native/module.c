/* The module: it is told the box's layout and the Python objects that it works with, and makes functions around fallbacks. */
#include "native.h"

#include <stddef.h>

Hooks hooks;

#define DEFINE(name) PyObject *s_##name;
NAMES(DEFINE)
#undef DEFINE

PyObject *fall_back(PyObject *fallback, PyObject *const *args, Py_ssize_t count)
{
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return NULL;  /* an interrupt goes on to whom it is for */
        PyErr_Clear();
    }
    PyObject *given = PyTuple_New(count), *result = NULL;
    if (given == NULL)
        return NULL;
    for (Py_ssize_t n = 0; n < count; n++)
        PyTuple_SetItem(given, n, Py_NewRef(args[n]));
    result = PyObject_Call(fallback, given, NULL);
    Py_DECREF(given);
    return result;
}

PyObject *bound(PyMethodDef *definition, PyObject *fallback)
{
    /* The function and what it falls back to live as long as the process, as the wrappers do. */
    PyObject *capsule = PyCapsule_New(Py_NewRef(fallback), NULL, NULL);
    PyObject *function = capsule != NULL ? PyCFunction_NewEx(definition, capsule, NULL) : NULL;
    Py_XDECREF(capsule);
    return function;
}

void add_cost(PyObject *add, int64_t began_ns)
{
    PyObject *took = PyLong_FromLongLong(cpu_ns() - began_ns);
    PyObject *done = took != NULL ? PyObject_CallFunctionObjArgs(add, took, NULL) : NULL;
    Py_XDECREF(took);
    Py_XDECREF(done);
    PyErr_Clear();
}

static PyObject *use(PyObject *module, PyObject *args)
{
    (void)module;
    Hooks told = {.state = hooks.state};
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOO", &told.find_group, &told.kind_of, &told.intern, &told.describe,
                          &told.dtype_number, &told.watched, &told.forget_old, &told.cost_before, &told.cost_after,
                          &told.cost_wait, &told.cost_waited))
        return NULL;
    if (!PyDict_CheckExact(told.watched)) {
        PyErr_SetString(PyExc_TypeError, "watched is no dict");
        return NULL;
    }
    PyObject *const *given = (PyObject *const *)&told;
    for (size_t n = 0; n < sizeof told / sizeof *given; n++)
        Py_XINCREF(given[n]);
    hooks = told;  /* what was told before, if anything, is kept: something may still be using it */
    Py_RETURN_NONE;
}

static PyObject *lay_out(PyObject *module, PyObject *args)
{
    (void)module;
    Layout told;
    PyObject *state;
    if (!PyArg_ParseTuple(args, "OLLLLLLLLLLLLLL", &state, &told.box_size, &told.live_at, &told.rings_at, &told.ring_size,
                          &told.ring_header, &told.ring_records, &told.ring_count, &told.operations, &told.phase,
                          &told.phase_ns, &told.totals, &told.collective, &told.cost_mask, &told.kept))
        return NULL;
    int fits = told.ring_count > 0 && told.ring_count <= RING_COUNT_MOST && told.ring_records > 0
        && told.ring_size >= told.ring_header + told.ring_records * RECORD_WORDS * 8
        && told.rings_at + told.ring_count * told.ring_size <= told.box_size
        && !((told.rings_at | told.ring_size | told.ring_header | told.live_at) & 7)
        && told.live_at / 8 + told.operations < told.rings_at / 8 && told.live_at / 8 + told.totals + 9 < told.rings_at / 8;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "another layout");
        return NULL;
    }
    layout = told;
    hooks.state = Py_NewRef(state);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"lay_out", lay_out, METH_VARARGS, NULL},
    {"use", use, METH_VARARGS, NULL},
    {"recorder", make_recorder, METH_VARARGS, NULL},
    {"after", make_after, METH_O, NULL},
    {"wait_before", make_wait_before, METH_O, NULL},
    {"wait_after", make_wait_after, METH_O, NULL},
    {"here", make_here, METH_O, NULL},
    {"enter", make_enter, METH_O, NULL},
    {"lay_out_steps", lay_out_steps, METH_VARARGS, NULL},
    {"stepping", make_stepping, METH_O, NULL},
    {"stepped", make_stepped, METH_O, NULL},
    {"pass_before", make_pass_before, METH_O, NULL},
    {"pass_after", make_pass_after, METH_O, NULL},
    {"forget_groups", forget_groups, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    _Static_assert(sizeof(Described) == 6 + 2 + 2 * 4 + 3 * 4 + MAX_DIMS * 4, "fields without gaps");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    PyErr_SetString(PyExc_ImportError, "the box is little-endian");
    return NULL;
#endif
#define INTERN(name) \
    if ((s_##name = PyUnicode_InternFromString(#name)) == NULL) \
        return NULL;
    NAMES(INTERN)
#undef INTERN
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "SOURCES", DIAGD_SOURCES))
        return NULL;
    return module;
}
