/* An operation on a process group: what collectives.py does before and after it. */
#include "native.h"

#include <string.h>

enum { REDUCES = 16, DTYPES = 16, GROUPS = 64, FLAG_ASYNC = 1, FLAG_IN_BACKWARD = 8 };

typedef struct {
    PyObject *fallback;
    int op, flags, position, reduces, rooted;
    int reduce_count, reduce_other;
    int64_t reduce_hash[REDUCES], reduce_number[REDUCES];
} Method;

typedef struct {
    PyObject *group;  /* as groups.py has it */
    void *handle;     /* by address only: `alive` tells whether it still is that one */
    PyObject *alive;
    PyObject *ranks, *uncounted;
    int64_t number;
    int counts;
} Group;

static Group groups[GROUPS];
static PyObject *dtypes[DTYPES];
static int64_t dtype_numbers[DTYPES];

static void forget_group(Group *group)
{
    Group before = *group;
    memset(group, 0, sizeof *group);
    Py_XDECREF(before.group);
    Py_XDECREF(before.alive);
    Py_XDECREF(before.ranks);
    Py_XDECREF(before.uncounted);
}

PyObject *forget_groups(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    for (int n = 0; n < GROUPS; n++)
        forget_group(&groups[n]);
    Py_RETURN_NONE;
}

static int is_alive(const Group *group, PyObject *handle)
{
    PyObject *there = PyObject_CallNoArgs(group->alive);
    if (there == NULL)
        return -1;
    Py_DECREF(there);
    return there == handle;
}

static int read_group(PyObject *found, PyObject *handle, Group *group)
{
    PyObject *number = PyObject_GetAttr(found, s_number), *counts = PyObject_GetAttr(found, s_counts);
    group->group = Py_NewRef(found);
    group->handle = handle;
    group->alive = PyObject_GetAttr(found, s_handle);
    group->ranks = PyObject_GetAttr(found, s_ranks);
    group->uncounted = PyObject_GetAttr(found, s_uncounted);
    group->number = number != NULL ? PyLong_AsLongLong(number) : 0;
    group->counts = counts != NULL && PyObject_IsTrue(counts) == 1;
    Py_XDECREF(number);
    Py_XDECREF(counts);
    if (!PyErr_Occurred() && PyTuple_Check(group->ranks) && PyList_Check(group->uncounted))
        return 0;
    forget_group(group);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "not a group");
    return -1;
}

/* A copy of what is known of the handle's group, with references of its own. */
static int group_of(PyObject *handle, Group *group)
{
    Group *kept = &groups[((uintptr_t)handle >> 5) % GROUPS];
    int alive = 0;
    if (kept->handle == handle) {
        alive = is_alive(kept, handle);
        if (alive < 0)
            return -1;
    }
    if (alive && kept->handle == handle) {
        *group = *kept;
        Py_INCREF(group->group);
        Py_INCREF(group->alive);
        Py_INCREF(group->ranks);
        Py_INCREF(group->uncounted);
        return 0;
    }
    PyObject *found = PyObject_CallFunctionObjArgs(hooks.find_group, handle, NULL);
    if (found == NULL)
        return -1;
    int failed = read_group(found, handle, group);
    Py_DECREF(found);
    if (failed)
        return -1;
    alive = is_alive(group, handle);
    if (alive == 1) {
        Group copy = *group;
        Py_INCREF(copy.group);
        Py_INCREF(copy.alive);
        Py_INCREF(copy.ranks);
        Py_INCREF(copy.uncounted);
        forget_group(kept);
        *kept = copy;
    }
    return alive < 0 ? (forget_group(group), -1) : 0;
}

static int64_t item_int(PyObject *sequence, Py_ssize_t at, int is_list)
{
    PyObject *item = is_list ? PyList_GetItem(sequence, at) : PyTuple_GetItem(sequence, at);
    return item != NULL ? PyLong_AsLongLong(item) : -1;
}

static int dtype_number(PyObject *dtype, uint8_t *number)
{
    for (int n = 0; n < DTYPES && dtypes[n] != NULL; n++)
        if (dtypes[n] == dtype) {
            *number = (uint8_t)dtype_numbers[n];
            return 0;
        }
    PyObject *answer = PyObject_CallFunctionObjArgs(hooks.dtype_number, dtype, NULL);
    if (answer == NULL)
        return -1;
    int64_t value = PyLong_AsLongLong(answer);
    Py_DECREF(answer);
    if (value < 0 || value > 255)
        return -1;
    *number = (uint8_t)value;
    for (int n = 0; n < DTYPES; n++)
        if (dtypes[n] == NULL) {
            dtypes[n] = Py_NewRef(dtype);
            dtype_numbers[n] = value;
            break;
        }
    return 0;
}

/* Extents as a record has them; -1 where they are no plain numbers, or too large for it. */
static int put_extents(PyObject *shape, Described *told, int64_t *product)
{
    Py_ssize_t count = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    if (count < 0 || count > 255)
        return -1;
    int64_t all = 1;
    for (Py_ssize_t n = 0; n < count; n++) {
        int64_t extent = item_int(shape, n, 0);
        if (extent < 0 || extent > UINT32_MAX || __builtin_mul_overflow(all, extent, &all))
            return -1;
        if (n < MAX_DIMS)
            told->dims[n] = (uint32_t)extent;
    }
    told->ndim = (uint8_t)count;
    *product = all;
    return 0;
}

static int describe_one(PyObject *tensor, Described *told, int64_t *numel)
{
    PyObject *dtype = PyObject_GetAttr(tensor, s_dtype), *shape = PyObject_GetAttr(tensor, s_shape);
    int failed = dtype == NULL || shape == NULL || dtype_number(dtype, &told->dtype) || put_extents(shape, told, numel);
    told->tensors = 1;
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return failed ? -1 : 0;
}

/* Several tensors, as operations.py adds them up. */
static int describe_many(PyObject *value, Described *told, int64_t *numel)
{
    PyObject *all = PyObject_CallFunctionObjArgs(hooks.describe, value, NULL);
    if (all == NULL)
        return -1;
    int failed = !PyTuple_Check(all) || PyTuple_Size(all) != 5;
    if (!failed) {
        int64_t ignored, ndim = item_int(all, 3, 0);
        failed = put_extents(PyTuple_GetItem(all, 4), told, &ignored) || ndim < 0 || ndim > 255;
        told->dtype = (uint8_t)item_int(all, 0, 0);
        *numel = item_int(all, 1, 0);
        told->tensors = (uint8_t)item_int(all, 2, 0);
        told->ndim = (uint8_t)ndim;
    }
    Py_DECREF(all);
    return failed || PyErr_Occurred() ? -1 : 0;
}

static int describe(PyObject *value, Described *told, int64_t *numel)
{
    int list = PyList_CheckExact(value);
    if (!list && !PyTuple_CheckExact(value))
        return describe_one(value, told, numel);
    Py_ssize_t size = list ? PyList_Size(value) : PyTuple_Size(value);
    if (size == 0)
        return 0;
    PyObject *first = Py_XNewRef(list ? PyList_GetItem(value, 0) : PyTuple_GetItem(value, 0));
    if (first == NULL)
        return -1;
    int many = size != 1 || PyList_CheckExact(first);
    int failed = many ? describe_many(value, told, numel) : describe_one(first, told, numel);
    Py_DECREF(first);
    return failed;
}

static int reduce_of(const Method *method, PyObject *options, uint8_t *reduce)
{
    PyObject *op = PyObject_GetAttr(options, s_reduceOp);
    if (op == NULL)
        return -1;
    int64_t hash = PyObject_Hash(op);
    Py_DECREF(op);
    if (hash == -1 && PyErr_Occurred())
        return -1;
    *reduce = (uint8_t)method->reduce_other;
    for (int n = 0; n < method->reduce_count; n++)
        if (method->reduce_hash[n] == hash)
            *reduce = (uint8_t)method->reduce_number[n];
    return 0;
}

static int is_async(PyObject *options, uint8_t *flags)
{
    PyObject *value = PyObject_GetAttr(options, s_asyncOp);
    if (value == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    int truth = PyObject_IsTrue(value);
    Py_DECREF(value);
    if (truth > 0)
        *flags |= FLAG_ASYNC;
    return truth < 0 ? -1 : 0;
}

static int root_of(PyObject *options, PyObject *ranks, int32_t *peer)
{
    PyObject *value = PyObject_GetAttr(options, s_rootRank);
    if (value == NULL)
        return -1;
    int64_t root = PyLong_AsLongLong(value), rank = -1;
    Py_DECREF(value);
    if (root >= 0 && root < PyTuple_Size(ranks))
        rank = item_int(ranks, root, 0);
    *peer = (int32_t)rank;
    return PyErr_Occurred() ? -1 : 0;
}

static int describe_call(const Method *method, PyObject *args, const Group *group, Described *told, int64_t *numel)
{
    int64_t depth, detail;
    if (state_int(s_backward_depth, &depth) || state_int(s_detail, &detail))
        return -1;
    told->group = (int16_t)group->number;
    told->op = (uint8_t)method->op;
    told->flags = (uint8_t)(method->flags | (depth ? FLAG_IN_BACKWARD : 0));
    told->peer = -1;
    PyObject *options = PyTuple_GetItem(args, PyTuple_Size(args) - 1);
    if (detail == 2 && method->position) {
        PyObject *value = PyTuple_GetItem(args, method->position);
        if (value == NULL || (value != Py_None && describe(value, told, numel)))
            return -1;
    }
    if (method->rooted && root_of(options, group->ranks, &told->peer))
        return -1;
    if (detail == 2 && ((method->reduces && reduce_of(method, options, &told->reduce)) || is_async(options, &told->flags)))
        return -1;
    int64_t site = detail ? find_site() : 0;
    told->site = (uint32_t)site;
    return site < 0 ? -1 : 0;
}

static PyObject *token_of(PyObject *handle, const Group *group, int ring, int64_t index, int flags, int64_t serial)
{
    PyObject *numbers[] = {PyLong_FromLongLong(index), PyLong_FromLong(flags), PyLong_FromLongLong(serial),
                           PyLong_FromLong(-1)};
    PyObject *token = NULL;
    if (numbers[0] != NULL && numbers[1] != NULL && numbers[2] != NULL && numbers[3] != NULL)
        token = PyTuple_Pack(7, group->counts ? handle : Py_None, current.rings[ring], numbers[0], numbers[1],
                             numbers[2], group->uncounted, numbers[3]);
    for (int n = 0; n < 4; n++)
        Py_XDECREF(numbers[n]);
    return token;
}

static PyObject *recorded(const Method *method, PyObject *args, int64_t entered_ns)
{
    int ring = ring_of_thread();
    if (ring < 0)
        return ring == -2 ? Py_NewRef(Py_None) : NULL;
    uint64_t generation = current.generation;
    PyObject *handle = PyTuple_GetItem(args, 0), *token = NULL;
    Group group;
    if (handle == NULL || group_of(handle, &group))
        return NULL;
    Described told;
    memset(&told, 0, sizeof told);
    int64_t numel = -1, serial;
    if (!describe_call(method, args, &group, &told, &numel) && generation == current.generation) {
        ring = ring_of_thread();  /* Python may have run since */
        if (ring >= 0) {
            int64_t index = write_record(ring, entered_ns, numel, &told, &serial);
            token = token_of(handle, &group, ring, index, told.flags, serial);
        }
    }
    forget_group(&group);
    return token;
}

static PyObject *before(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const Method *method = PyCapsule_GetPointer(self, NULL);
    int64_t entered_ns = now_ns();
    if (count != 2 || !PyTuple_CheckExact(args[0]) || !PyDict_CheckExact(args[1]) || PyDict_Size(args[1]) != 0)
        return fall_back(method->fallback, args, count);
    int ready = box_ready();
    if (ready == 0)
        Py_RETURN_NONE;
    int64_t timed = 0;
    if (ready == 1 && ((current.numbers[layout.live_at / 8 + layout.operations] + 1) & layout.cost_mask) == TIMED)
        timed = cpu_ns();
    PyObject *token = ready < 0 ? NULL : recorded(method, args[0], entered_ns);
    if (token == NULL)
        return fall_back(method->fallback, args, count);
    if (timed)
        add_cost(hooks.cost_before, timed);
    return token;
}

static int put_sequence(PyObject *handle, PyObject *uncounted, int64_t index)
{
    PyObject *answer = PyObject_CallMethodObjArgs(handle, s__get_sequence_number_for_group, NULL);
    int64_t sequence = answer != NULL ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    int64_t ahead = PyErr_Occurred() ? -1 : item_int(uncounted, 0, 1);
    if (PyErr_Occurred())
        return -1;
    current.numbers[index + SEQ] = sequence - ahead;
    return 0;
}

static int watch(PyObject *work, PyObject *index, PyObject *serial)
{
    PyObject *reference = PyWeakref_NewRef(work, NULL);
    if (reference == NULL) {  /* of a backend of somebody's own: it takes no weak reference */
        PyErr_Clear();
        reference = Py_NewRef(Py_None);
    }
    PyObject *key = PyLong_FromVoidPtr(work), *value = PyTuple_Pack(3, index, serial, reference);
    int failed = key == NULL || value == NULL || PyDict_SetItem(hooks.watched, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_DECREF(reference);
    return failed;
}

static int issued(PyObject *token, PyObject *work, int64_t now, int64_t *serial)
{
    PyObject *handle = PyTuple_GetItem(token, 0), *uncounted = PyTuple_GetItem(token, 5);
    int64_t index = item_int(token, 2, 0), counted = item_int(token, 6, 0);
    *serial = item_int(token, 4, 0);
    if (PyErr_Occurred() || counted >= 0 || !PyList_CheckExact(uncounted) || !record_at(index, *serial))
        return -1;
    uint64_t generation = current.generation;
    if (handle != Py_None && put_sequence(handle, uncounted, index))
        return -1;
    if (generation != current.generation)
        return -1;
    current.numbers[index + ISSUED] = now;
    if (work == Py_None) {
        current.numbers[index + RETURNED] = now;
        return 0;
    }
    return watch(work, PyTuple_GetItem(token, 2), PyTuple_GetItem(token, 4));
}

static PyObject *after(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *fallback = PyCapsule_GetPointer(self, NULL);
    int64_t now = now_ns(), serial;
    if (count != 2 || !PyTuple_CheckExact(args[0]) || PyTuple_Size(args[0]) != 7 || box_ready() != 1)
        return fall_back(fallback, args, count);
    int64_t next = item_int(args[0], 4, 0);
    int64_t timed = (next & layout.cost_mask) == TIMED ? cpu_ns() : 0;
    if (issued(args[0], args[1], now, &serial))
        return fall_back(fallback, args, count);
    if (timed) {
        PyObject *done = PyObject_CallNoArgs(hooks.forget_old);
        Py_XDECREF(done);
        PyErr_Clear();
        add_cost(hooks.cost_after, timed);
    }
    Py_RETURN_NONE;
}

static PyMethodDef before_definition = {"before", (PyCFunction)(void (*)(void))before, METH_FASTCALL, NULL};
static PyMethodDef after_definition = {"after", (PyCFunction)(void (*)(void))after, METH_FASTCALL, NULL};

PyObject *make_after(PyObject *module, PyObject *fallback)
{
    (void)module;
    return bound(&after_definition, fallback);
}

static int read_reduces(Method *method, PyObject *numbers)
{
    PyObject *hash, *number;
    Py_ssize_t at = 0;
    while (PyDict_Next(numbers, &at, &hash, &number) && method->reduce_count < REDUCES) {
        method->reduce_hash[method->reduce_count] = PyLong_AsLongLong(hash);
        method->reduce_number[method->reduce_count++] = PyLong_AsLongLong(number);
    }
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *make_recorder(PyObject *module, PyObject *args)
{
    (void)module;
    Method made = {0};
    PyObject *numbers;
    if (!PyArg_ParseTuple(args, "OiiippO!i", &made.fallback, &made.op, &made.flags, &made.position, &made.reduces,
                          &made.rooted, &PyDict_Type, &numbers, &made.reduce_other) || read_reduces(&made, numbers))
        return NULL;
    Method *method = PyMem_Malloc(sizeof *method);  /* for as long as the process lives, as the wrapper does */
    if (method == NULL)
        return PyErr_NoMemory();
    *method = made;
    Py_INCREF(method->fallback);
    PyObject *capsule = PyCapsule_New(method, NULL, NULL);
    PyObject *function = capsule != NULL ? PyCFunction_NewEx(&before_definition, capsule, NULL) : NULL;
    Py_XDECREF(capsule);
    return function;
}
