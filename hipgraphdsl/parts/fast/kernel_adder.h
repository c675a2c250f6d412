/* KernelAdder: adds the kernel nodes of a plan to a graph, one hipGraphAddKernelNode call a step.
 *
 * It does what backends/explicit.py and backends/resolve.py do for a plain kernel launch: look up the address of each
 * array and the value of each parameter, write them into argument memory, call, and note the node and the operation. What is
 * not plain (another kind of node, an attribute, a value that needs a check) it leaves to them: calling it with the index of
 * a step returns the index of the first step that it has not added.
 */
#pragma once
#include "values.h"

namespace kernel_adder {

typedef int (*add_fn)(void **node, void *graph, void *const *deps, size_t count, const void *params);

/* How a platform lays out the parameters of a kernel node; Python packs it as "=QIIIIIIQ". */
struct platform_t {
  uint64_t add;
  uint32_t size, function, grid, block, shared, args;
  uint64_t most_shared; /* bytes of shared memory that need no other call first */
};

struct place_t {
  uint32_t offset;
  char kind; /* struct code, or P for a pointer */
};

struct kernel_t {
  PyObject *kernel, *packer, *function_object; /* borrowed: the steps and `kept` hold them */
  void *function, *table;
  char *memory;
  Py_ssize_t nbytes, count;
  const place_t *places;
};

enum { KERNEL, GRID, BLOCK, ARGS, SHARED, ROOT, OFFSET, VIEW, NAMES };

struct Adder {
  PyObject_HEAD
  platform_t platform;
  void *graph;
  uint64_t *mark, first_mark; /* where the mark of the node that is added next is written, or NULL */
  PyObject *steps, *models, *nodes, *operations, *addresses, *values, *left; /* two tuples, two lists, two dicts, frozenset */
  PyObject *describe, *launch_type, *rest, *attributes; /* callable, type, tuple, tuple of names */
  PyObject *node_type, *view_type, *access_type, *parameter_type;
  PyObject *kept, *names[NAMES];
  Py_ssize_t deps_at, path_at;
  kernel_t *kernels;
  Py_ssize_t known, room, last;
  void **deps;
  Py_ssize_t deps_room;
  char *params;
  int code;
};

static PyObject *const *owned(Adder *self, Py_ssize_t *count) {
  *count = (PyObject *const *)&self->names[NAMES] - (PyObject *const *)&self->steps;
  return (PyObject *const *)&self->steps;
}

/* A field of an object that keeps its fields in a dictionary; borrowed, NULL without an exception if it is not there. */
static PyObject *field(PyObject *object, PyObject *name) {
  PyObject *fields = PyObject_GenericGetDict(object, NULL);
  if (!fields) {
    PyErr_Clear();
    return NULL;
  }
  PyObject *value = PyDict_GetItemWithError(fields, name);
  Py_DECREF(fields); /* the object keeps it */
  return value;
}

/* Find what is known of a kernel, or ask for it; NULL if Python must do it (an exception may be set). */
static kernel_t *find(Adder *self, PyObject *kernel, PyObject *node) {
  if (self->last < self->known && self->kernels[self->last].kernel == kernel) return &self->kernels[self->last];
  for (Py_ssize_t i = 0; i < self->known; ++i)
    if (self->kernels[i].kernel == kernel) return &self->kernels[self->last = i];
  PyObject *said = PyObject_CallFunctionObjArgs(self->describe, node, NULL);
  if (!said) return NULL;
  if (said == Py_None) {
    Py_DECREF(said);
    return NULL;
  }
  unsigned long long memory, table;
  kernel_t made;
  memset(&made, 0, sizeof made);
  const char *places;
  Py_ssize_t length;
  if (!PyArg_ParseTuple(said, "OOKKny#", &made.function_object, &made.packer, &memory, &table, &made.nbytes, &places, &length) ||
      PyList_Append(self->kept, said) < 0) {
    Py_DECREF(said);
    return NULL;
  }
  Py_DECREF(said); /* `kept` keeps it */
  made.kernel = kernel;
  made.function = PyLong_AsVoidPtr(made.function_object);
  if (PyErr_Occurred()) return NULL;
  made.memory = (char *)(uintptr_t)memory;
  made.table = (void *)(uintptr_t)table;
  made.count = length / (Py_ssize_t)sizeof(place_t);
  made.places = (const place_t *)places;
  if (self->known == self->room) {
    Py_ssize_t room = self->room ? 2 * self->room : 8;
    kernel_t *more = (kernel_t *)PyMem_Realloc(self->kernels, room * sizeof(kernel_t));
    if (!more) {
      PyErr_NoMemory();
      return NULL;
    }
    self->kernels = more;
    self->room = room;
  }
  self->kernels[self->last = self->known++] = made;
  return &self->kernels[self->last];
}

/* Write the address of a view to `out`; false if Python must do it. */
static bool put_address(Adder *self, PyObject *arg, char *out) {
  PyObject *view = arg, *held = NULL;
  if ((PyObject *)Py_TYPE(arg) == self->access_type) {
    view = held = PyObject_GetAttr(arg, self->names[VIEW]);
    if (!view) return false;
  }
  bool good = false;
  if ((PyObject *)Py_TYPE(view) == self->view_type) {
    PyObject *root = field(view, self->names[ROOT]), *offset = field(view, self->names[OFFSET]);
    PyObject *address = root && offset ? PyDict_GetItemWithError(self->addresses, root) : NULL;
    if (address) {
      uint64_t pointer = (uint64_t)(uintptr_t)PyLong_AsVoidPtr(address) + (uint64_t)PyLong_AsLongLong(offset);
      memcpy(out, &pointer, 8);
      good = !PyErr_Occurred();
    }
  }
  Py_XDECREF(held);
  return good;
}

static bool put_value(Adder *self, PyObject *arg, char kind, char *out) {
  if (kind == 'P') return put_address(self, arg, out);
  if ((PyObject *)Py_TYPE(arg) == self->parameter_type) {
    arg = PyDict_GetItemWithError(self->values, arg);
    if (!arg) return false;
  }
  return pack(kind, arg, out) == 0;
}

static bool put_extent(PyObject *dim, char *out) {
  if (!PyTuple_CheckExact(dim) || PyTuple_GET_SIZE(dim) != 3) return false;
  for (int i = 0; i < 3; ++i)
    if (pack('I', PyTuple_GET_ITEM(dim, i), out + 4 * i)) return false;
  return true;
}

/* The operation of a step: a tuple of the type Launch. */
static PyObject *operation(Adder *self, const kernel_t *kernel, PyObject *grid, PyObject *block, PyObject *shared) {
  PyObject *packed = PyBytes_FromStringAndSize(kernel->memory, kernel->nbytes);
  if (!packed) return NULL;
  Py_ssize_t rest = PyTuple_GET_SIZE(self->rest);
  PyTypeObject *type = (PyTypeObject *)self->launch_type;
  PyObject *made = type->tp_alloc(type, 6 + rest);
  if (!made) {
    Py_DECREF(packed);
    return NULL;
  }
  PyObject *fields[] = {kernel->function_object, grid, block, shared, kernel->packer};
  for (int i = 0; i < 5; ++i) {
    Py_INCREF(fields[i]);
    PyTuple_SET_ITEM(made, i, fields[i]);
  }
  PyTuple_SET_ITEM(made, 5, packed);
  for (Py_ssize_t i = 0; i < rest; ++i) {
    PyObject *value = PyTuple_GET_ITEM(self->rest, i);
    Py_INCREF(value);
    PyTuple_SET_ITEM(made, 6 + i, value);
  }
  return made;
}

/* Whether a step is a kernel launch like most: in no child, not left to Python, without attributes. */
static bool is_plain(Adder *self, PyObject *step, PyObject *node, Py_ssize_t index) {
  if ((PyObject *)Py_TYPE(node) != self->node_type || PyTuple_GET_SIZE(PyTuple_GET_ITEM(step, self->path_at))) return false;
  if (PySet_GET_SIZE(self->left)) {
    PyObject *number = PyLong_FromSsize_t(index);
    int found = number ? PySet_Contains(self->left, number) : -1;
    Py_XDECREF(number);
    if (found) return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->attributes); ++i) {
    PyObject *value = field(node, PyTuple_GET_ITEM(self->attributes, i));
    if (value != Py_None && value != Py_False) return false;
  }
  return true;
}

/* Add one step; false if Python must do it, if the call failed (`code`), or with an exception. */
static bool add_one(Adder *self, PyObject *step, Py_ssize_t index) {
  PyObject *node = PyTuple_GET_ITEM(self->models, index);
  if (!is_plain(self, step, node, index)) return false;
  PyObject *found[5];
  for (int i = KERNEL; i <= SHARED; ++i)
    if (!(found[i] = field(node, self->names[i]))) return false;
  kernel_t *kernel = find(self, found[KERNEL], node);
  if (!kernel) return false;
  PyObject *args = found[ARGS];
  if (!PyTuple_CheckExact(args) || PyTuple_GET_SIZE(args) != kernel->count) return false;
  for (Py_ssize_t i = 0; i < kernel->count; ++i)
    if (!put_value(self, PyTuple_GET_ITEM(args, i), kernel->places[i].kind, kernel->memory + kernel->places[i].offset))
      return false;
  char *params = self->params;
  uint32_t shared;
  if (!put_extent(found[GRID], params + self->platform.grid) || !put_extent(found[BLOCK], params + self->platform.block) ||
      pack('I', found[SHARED], (char *)&shared) || shared > self->platform.most_shared)
    return false;
  memcpy(params + self->platform.shared, &shared, 4);
  memcpy(params + self->platform.function, &kernel->function, sizeof(void *));
  memcpy(params + self->platform.args, &kernel->table, sizeof(void *));

  PyObject *deps = PyTuple_GET_ITEM(step, self->deps_at);
  Py_ssize_t count = PyTuple_GET_SIZE(deps);
  if (count > self->deps_room) {
    void **more = (void **)PyMem_Realloc(self->deps, 2 * count * sizeof(void *));
    if (!more) {
      PyErr_NoMemory();
      return false;
    }
    self->deps = more;
    self->deps_room = 2 * count;
  }
  Py_ssize_t given = count;
  count = 0;
  for (Py_ssize_t i = 0; i < given; ++i) {
    Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(deps, i));
    if (at < 0 || at >= PyList_GET_SIZE(self->nodes)) return false;
    void *node = PyLong_AsVoidPtr(PyList_GET_ITEM(self->nodes, at));
    if (!count || self->deps[count - 1] != node) self->deps[count++] = node; /* the steps of a batch are neighbours with one node */
  }
  PyObject *done = operation(self, kernel, found[GRID], found[BLOCK], found[SHARED]);
  if (!done) return false;
  void *made = NULL;
  if (self->mark) *self->mark = self->first_mark + (uint64_t)index;
  self->code = ((add_fn)(uintptr_t)self->platform.add)(&made, self->graph, count ? self->deps : NULL, count, params);
  PyObject *handle = self->code ? NULL : PyLong_FromVoidPtr(made);
  bool good = handle && PyList_Append(self->nodes, handle) == 0 && PyList_Append(self->operations, done) == 0;
  Py_XDECREF(handle);
  Py_DECREF(done);
  return good;
}

/* adder(first) -> index of the first step from there on that was not added */
static PyObject *call(PyObject *object, PyObject *args, PyObject *kwargs) {
  Adder *self = (Adder *)object;
  Py_ssize_t index;
  if (!PyArg_ParseTuple(args, "n", &index)) return NULL;
  if (index < 0) {
    PyErr_SetString(PyExc_IndexError, "steps count from 0");
    return NULL;
  }
  self->code = 0;
  Py_ssize_t count = PyTuple_GET_SIZE(self->steps);
  while (index < count && add_one(self, PyTuple_GET_ITEM(self->steps, index), index)) ++index;
  return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(index);
}

/* KernelAdder(platform, steps, describe, kinds): `steps` is a runtimes.base.GraphSteps, `kinds` are adding._KINDS. */
static int init(PyObject *object, PyObject *args, PyObject *kwargs) {
  Adder *self = (Adder *)object;
  const char *platform;
  Py_ssize_t length;
  unsigned long long graph, mark, first_mark;
  PyObject *function; /* `describe` calls it */
  if (self->params) {
    PyErr_SetString(PyExc_TypeError, "a KernelAdder is made once");
    return -1;
  }
  if (!PyArg_ParseTuple(
          args, "y#(KO!O!O!O!O!O!(KK)O!O)O(O!O!O!OOOOnn)", &platform, &length, &graph, &PyTuple_Type, &self->steps, &PyTuple_Type,
          &self->models, &PyList_Type, &self->nodes, &PyList_Type, &self->operations, &PyDict_Type, &self->addresses, &PyDict_Type,
          &self->values, &mark, &first_mark, &PyFrozenSet_Type, &self->left, &function, &self->describe, &PyType_Type, &self->launch_type, &PyTuple_Type,
          &self->rest, &PyTuple_Type, &self->attributes, &self->node_type, &self->view_type, &self->access_type,
          &self->parameter_type, &self->deps_at, &self->path_at) ||
      length != (Py_ssize_t)sizeof(platform_t) || !PyType_IsSubtype((PyTypeObject *)self->launch_type, &PyTuple_Type) ||
      PyTuple_GET_SIZE(self->steps) != PyTuple_GET_SIZE(self->models)) {
    memset(&self->steps, 0, (char *)&self->kept - (char *)&self->steps); /* borrowed until here */
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a platform's layout, a node for each step and a type of tuples are needed");
    return -1;
  }
  memcpy(&self->platform, platform, sizeof(platform_t));
  self->graph = (void *)(uintptr_t)graph;
  self->mark = (uint64_t *)(uintptr_t)mark;
  self->first_mark = first_mark;
  static const char *const words[NAMES] = {"kernel", "grid", "block", "args", "shared_bytes", "root", "offset_bytes", "view"};
  bool good = (self->kept = PyList_New(0));
  for (int i = 0; i < NAMES; ++i) good = (self->names[i] = PyUnicode_InternFromString(words[i])) && good;
  Py_ssize_t count;
  for (PyObject *const *each = owned(self, &count); each < (PyObject *const *)&self->kept; ++each) Py_INCREF(*each);
  self->params = (char *)PyMem_Calloc(1, self->platform.size);
  if (good && self->params) return 0;
  if (!PyErr_Occurred()) PyErr_NoMemory();
  return -1;
}

static void dealloc(PyObject *object) {
  Adder *self = (Adder *)object;
  PyTypeObject *type = Py_TYPE(object);
  Py_ssize_t count;
  PyObject *const *each = owned(self, &count);
  for (Py_ssize_t i = 0; i < count; ++i) Py_XDECREF(each[i]);
  PyMem_Free(self->kernels);
  PyMem_Free(self->deps);
  PyMem_Free(self->params);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"code", T_INT, offsetof(Adder, code), READONLY, "what the last call returned, 0 if the platform made the node"},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, (void *)init}, {Py_tp_dealloc, (void *)dealloc}, {Py_tp_members, members}, {Py_tp_call, (void *)call},
    {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_doc, (void *)"Adds kernel nodes to a graph: adder(first) -> the first step not added."},
    {0, NULL},
};
static PyType_Spec spec = {"native.KernelAdder", sizeof(Adder), 0, Py_TPFLAGS_DEFAULT, slots};

} // namespace kernel_adder
