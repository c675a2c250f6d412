/* Launcher: the compiled call path of Executable.launch, synchronize and run.
 *
 * A Launcher holds hipGraphLaunch, the executable and its stream. Called without arguments it releases the GIL, calls, and
 * returns; everything else goes to the Python function that it was given. A parameter that only kernel launches use can be
 * declared to it: its value, or what a formula computes from it, is then written into each kernel's launch parameters, which
 * hipGraphExecKernelNodeSetParams sets before the launch, without a Python frame. Of a parameter that others use too it sets the
 * kernel launches when `set` asks. All formulas are computed before anything is set; one without a result is Python's to judge.
 *
 * Where the driver goes by the thread's current context (CUDA) or device (HIP, with several), the Launcher compares it with the
 * executable's before each call, because another library may have changed it since the last one, makes the executable's current
 * if it differs, and what was current before, or none, afterwards.
 *
 * Where nothing but the own stream is to be waited for (`can_wait`), short work is waited for here too; what takes longer, or fails, is
 * left to the Python method.
 *
 * Where others know the own stream (`capturing` is set), a launch first asks whether it captures; the Python method refuses it then.
 *
 * A program that is not one graph is launched by a Python function (`python`) in place of hipGraphLaunch, in the critical section of the
 * Executable's Python methods.
 */
#pragma once
#include "formulas.h"
#include "values.h"
#include "wait.h"

namespace launcher {

enum { kMostKeywords = 16 }; /* calls with more take the slow path */
enum { kNotReady = 600 };    /* hipErrorNotReady */

/* Whether this thread runs a host callback, in which the Python function refuses every launch, and how many threads do. */
static thread_local bool in_callback;
static int callbacks;

typedef int (*launch_fn)(void *exec, void *stream);
typedef int (*set_fn)(void *exec, void *node, const void *params);
/* cuCtxGetCurrent and cuCtxSetCurrent, or hipGetDevice and hipSetDevice, whose int is the low half of what stands here. */
typedef int (*get_current_fn)(uint64_t *current);
typedef int (*set_current_fn)(uint64_t current);
/* hipStreamIsCapturing: it writes a hipStreamCaptureStatus, 0 where the stream does not capture. */
typedef int (*capturing_fn)(void *stream, int *status);
/* hipGetLastError, after which another library does not find the answer of hipStreamQuery. */
typedef int (*clear_fn)();

typedef struct {
  char *value;        /* where its bytes stand */
  void *node;         /* hipGraphNode_t */
  const void *params; /* the platform's kernel node parameters, which point at the arguments */
  void *exec;         /* hipGraphExec_t */
  int64_t *formula;   /* what computes it, in `words` words; NULL for the slot's value */
  Py_ssize_t words;
  char kind; /* struct code: ? b B h H i I q Q f d */
  uint8_t size;
  char other[8]; /* the bytes to write; once written, those that stood there */
} use_t;

typedef struct {
  PyObject *name; /* interned */
  PyObject *limits; /* (least, most), or an empty tuple */
  char kind;      /* struct code of the parameter */
  uint8_t size;
  char whole;    /* whether nothing else depends on it */
  char given;    /* whether a launch has named it */
  char value[8]; /* current */
  Py_ssize_t count;
  use_t *uses;
} slot_t;

/* Items of `Launcher.python`: the function and its argument, and methods of the two locks of the critical section. */
enum { kFunction, kArgument, kTake, kTakeOutermost, kRelease, kReleaseOutermost };

typedef struct {
  PyObject_HEAD
  launch_fn launch; /* what every launch needs stands together: after the driver's work little is left in the caches */
  void *exec, *stream;
  get_current_fn get_current; /* NULL where it makes no difference what is current */
  int inside;                 /* calls on the fast path that have not returned */
  char ready, pending, can_wait;
  char torn; /* a value could be neither set nor set back */
  unsigned long long launches;
  uint64_t context; /* what must be current */
  set_fn set;
  set_current_fn set_current;
  waiting::query_fn query;
  clear_fn clear; /* NULL where there is none */
  unsigned long long capturing; /* a capturing_fn; 0 while nobody else knows the own stream */
  waiting::query_fn room; /* 0 where a launch would not wait for room in the queue; NULL where the driver's own launch waits */
  PyObject *slow;
  PyObject *python; /* a tuple, or NULL for a graph */
  PyObject *keep;
  unsigned long long updates;
  long long left; /* updates that may still be made on the fast path; negative: any number */
  Py_ssize_t lane_count;
  uint64_t *lanes; /* other streams that a launch needs room on */
  Py_ssize_t count;
  slot_t *slots;
} Launcher;

/* Keywords that are written out are interned, so an address mostly tells; those of a mapping may be any string. */
static slot_t *find(Launcher *self, PyObject *name) {
  for (Py_ssize_t i = 0; i < self->count; ++i)
    if (self->slots[i].name == name) return &self->slots[i];
  if (PyUnicode_CHECK_INTERNED(name)) return NULL;
  for (Py_ssize_t i = 0; i < self->count; ++i)
    if (PyUnicode_Compare(self->slots[i].name, name) == 0) return &self->slots[i];
  return NULL;
}

/* Whether a use is the last one of its node, whose parameters are then complete; the uses of one node are neighbours. */
static bool ends_node(const slot_t *slot, Py_ssize_t i) { return i + 1 == slot->count || slot->uses[i + 1].node != slot->uses[i].node; }

/* Compute the bytes of all uses of a slot; false if a formula has no result, or one that does not fit. */
static bool prepare(Launcher *self, slot_t *slot) {
  for (use_t *use = slot->uses; use < slot->uses + slot->count; ++use) {
    if (!use->formula) {
      memcpy(use->other, slot->value, sizeof use->other);
      continue;
    }
    long long found;
    const auto load = [self](int64_t i, long long *number) { return !fetch(self->slots[i].kind, self->slots[i].value, number); };
    if (!formulas::compute(use->formula, use->formula + use->words, load, &found) || store(use->kind, found, use->other)) return false;
  }
  return true;
}

template <class T> static void exchange_as(use_t *use) {
  T there;
  memcpy(&there, use->value, sizeof there);
  memcpy(use->value, use->other, sizeof there);
  memcpy(use->other, &there, sizeof there);
}

/* Exchange what stands at a use and its other bytes. */
static void exchange(use_t *use) {
  switch (use->size) {
    case 1: return exchange_as<uint8_t>(use);
    case 2: return exchange_as<uint16_t>(use);
    case 4: return exchange_as<uint32_t>(use);
    default: return exchange_as<uint64_t>(use);
  }
}

/* Exchange the values of slots and `bytes`. */
static void exchange_values(slot_t **changed, char (*bytes)[8], Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < n; ++i) {
    char before[8];
    memcpy(before, changed[i]->value, 8);
    memcpy(changed[i]->value, bytes[i], 8);
    memcpy(bytes[i], before, 8);
  }
}

/* Write back what stood at all uses, and set the nodes again of the slots up to `last`, of which `tried` uses were come to. */
static void set_back(Launcher *self, slot_t **changed, Py_ssize_t n, Py_ssize_t last, Py_ssize_t tried) {
  for (Py_ssize_t i = n; i-- > 0;) /* the last one first: slots have uses in common */
    for (Py_ssize_t k = changed[i]->count; k-- > 0;) exchange(&changed[i]->uses[k]);
  for (Py_ssize_t i = 0; i <= last; ++i)
    for (Py_ssize_t k = 0; k < (i < last ? changed[i]->count : tried); ++k) {
      use_t *use = &changed[i]->uses[k];
      if (!ends_node(changed[i], k) || !self->set(use->exec, use->node, use->params)) continue;
      self->torn = 1;
      self->ready = 0; /* no other thread launches it before it is built again */
    }
}

/* Give slots the values `bytes`, and set their uses. False if that cannot be done: everything is as before then, or torn. */
static bool change(Launcher *self, slot_t **changed, char (*bytes)[8], Py_ssize_t n) {
  exchange_values(changed, bytes, n);
  bool good = true;
  for (Py_ssize_t i = 0; i < n && good; ++i) good = prepare(self, changed[i]);
  if (good) { /* from here on something changes */
    for (Py_ssize_t i = 0; i < n; ++i)
      for (Py_ssize_t k = 0; k < changed[i]->count; ++k) exchange(&changed[i]->uses[k]);
    for (Py_ssize_t i = 0; i < n && good; ++i)
      for (Py_ssize_t k = 0; k < changed[i]->count && good; ++k) {
        const use_t *use = &changed[i]->uses[k];
        if (!ends_node(changed[i], k)) continue;
        good = !self->set(use->exec, use->node, use->params);
        if (good) self->updates++;
        else set_back(self, changed, n, i, k + 1);
      }
  }
  if (!good) exchange_values(changed, bytes, n);
  return good;
}

/* Take so many updates from those that are left; false if there are not so many. */
static bool spend(Launcher *self, Py_ssize_t uses) {
  if (self->left < 0) return true;
  if (uses > self->left) return false;
  self->left -= uses;
  return true;
}

/* Whether a slot takes an integer. */
static bool allows(const slot_t *slot, PyObject *value) {
  return !PyTuple_GET_SIZE(slot->limits) || (PyObject_RichCompareBool(value, PyTuple_GET_ITEM(slot->limits, 0), Py_GE) == 1 &&
                                             PyObject_RichCompareBool(value, PyTuple_GET_ITEM(slot->limits, 1), Py_LE) == 1);
}

/* Set the slots that keywords name; false if the slow path must do it, or must report why it cannot be done. */
static bool set_values(Launcher *self, PyObject *const *args, PyObject *kwnames, Py_ssize_t keywords) {
  char bytes[kMostKeywords][8];
  slot_t *named[kMostKeywords], *changed[kMostKeywords];
  Py_ssize_t n = 0;
  if (keywords > kMostKeywords) return false;
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    slot_t *slot = named[i] = find(self, PyTuple_GET_ITEM(kwnames, i));
    if (!slot || !slot->whole || pack(slot->kind, args[i], bytes[n]) || !allows(slot, args[i])) return false;
    if (memcmp(bytes[n], slot->value, slot->size)) changed[n++] = slot;
  }
  Py_ssize_t uses = 0;
  for (Py_ssize_t i = 0; i < n; ++i) uses += changed[i]->count;
  if (!spend(self, uses) || !change(self, changed, bytes, n)) return false; /* the slow path meets a failure again, and reports it */
  for (Py_ssize_t i = 0; i < keywords; ++i) named[i]->given = 1;
  return true;
}

/* Make the executable's context or device current, and note what was; false if the driver refuses. */
static bool enter(const Launcher *self, uint64_t *before) {
  *before = 0; /* hipGetDevice writes the low half */
  if (!self->get_current) return true;
  if (self->get_current(before)) return false;
  if (*before == self->context) return true;
  int code;
  Py_BEGIN_ALLOW_THREADS /* the driver may wait for a lock of its own, whose owner waits for a host function */
  code = self->set_current(self->context);
  Py_END_ALLOW_THREADS
  return !code;
}

/* Make current again what was before `enter`. Returns the driver's code. */
static int leave(const Launcher *self, uint64_t before) {
  return !self->get_current || before == self->context ? 0 : self->set_current(before);
}

/* Whether no stream of a launch makes it wait for room in the queue. */
static bool has_room(const Launcher *self) {
  if (!self->room) return true;
  if (self->room(self->stream, 0)) return false;
  for (Py_ssize_t i = 0; i < self->lane_count; ++i)
    if (self->room((void *)(uintptr_t)self->lanes[i], 0)) return false;
  return true;
}

/* Whether the own stream captures, or cannot be asked. */
static bool captures(const Launcher *self) {
  int status = 0;
  return ((capturing_fn)(uintptr_t)self->capturing)(self->stream, &status) || status;
}

/* Let the slow path raise for the driver's code. */
static PyObject *report(Launcher *self, int code) {
  PyObject *failed = PyObject_GetAttrString(self->slow, "failed");
  if (!failed) return NULL;
  PyObject *result = PyObject_CallFunction(failed, "i", code);
  Py_DECREF(failed);
  return result;
}

/* Enter the critical section; false where this thread is inside, or would have to wait for another one. */
static bool take_turn(PyObject *python) {
  for (int lock = kTake; lock <= kTakeOutermost; ++lock) {
    PyObject *taken = PyObject_CallOneArg(PyTuple_GET_ITEM(python, lock), Py_False);
    Py_XDECREF(taken);
    if (taken == Py_True) continue;
    if (lock == kTakeOutermost) Py_XDECREF(PyObject_CallNoArgs(PyTuple_GET_ITEM(python, kRelease)));
    PyErr_Clear();
    return false;
  }
  return true;
}

/* Launch by Python. Returns NotImplemented where the slow path must do it. */
static PyObject *call_python(Launcher *self, PyObject *const *args, PyObject *kwnames, Py_ssize_t keywords) {
  PyObject *python = Py_NewRef(self->python), *result = Py_NewRef(Py_NotImplemented);
  PyObject *type = NULL, *error = NULL, *traceback = NULL;
  int left = 0;
  if (take_turn(python)) {
    uint64_t before;
    if (self->ready && has_room(self) && enter(self, &before)) {
      if (!(self->capturing && captures(self)) && (!keywords || set_values(self, args, kwnames, keywords))) {
        Py_SETREF(result, PyObject_CallOneArg(PyTuple_GET_ITEM(python, kFunction), PyTuple_GET_ITEM(python, kArgument)));
        PyErr_Fetch(&type, &error, &traceback); /* what is called below may run Python */
        self->launches += result != NULL;
        self->pending = 1;
      }
      Py_BEGIN_ALLOW_THREADS
      if (self->get_current) left = self->set_current(before); /* the function may have changed it */
      Py_END_ALLOW_THREADS
    }
    Py_XDECREF(PyObject_CallNoArgs(PyTuple_GET_ITEM(python, kReleaseOutermost)));
    Py_XDECREF(PyObject_CallNoArgs(PyTuple_GET_ITEM(python, kRelease)));
  }
  Py_DECREF(python);
  if (!result) PyErr_Restore(type, error, traceback);
  else if (left) Py_SETREF(result, report(self, left));
  return result;
}

/* launch(stream=None, **params). A method, not the object itself: interpreters call built-in methods the shortest way. */
static PyObject *call(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
  Launcher *self = (Launcher *)object;
  Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  /* A call that sets values waits its turn on the slow path: between setting and launching no other may set. */
  const bool fast = self->ready && !(callbacks && in_callback) && !count && !(keywords && (self->inside || !self->count));
  if (fast && self->python) {
    PyObject *result = call_python(self, args, kwnames, keywords);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  } else if (fast) {
    uint64_t before;
    int code = 0, left = 0;
    bool set = false;
    self->inside++; /* whoever wants to change anything waits until it has come back */
    if (has_room(self) && enter(self, &before)) {
      set = !(self->capturing && captures(self)) && (!keywords || set_values(self, args, kwnames, keywords));
      Py_BEGIN_ALLOW_THREADS
      if (set) code = self->launch(self->exec, self->stream);
      left = leave(self, before);
      Py_END_ALLOW_THREADS
    }
    self->inside--;
    if (set) {
      self->launches++;
      self->pending = 1;
    }
    if (code || left) return report(self, code ? code : left);
    if (set) Py_RETURN_NONE;
  }
  return PyObject_Vectorcall(self->slow, args, count, kwnames);
}

/* Wait for the own stream. Returns 0, hipErrorNotReady where the slow path must wait, or the driver's code. */
static int wait_shortly(Launcher *self) {
  if (!self->ready || !self->can_wait || (callbacks && in_callback)) return kNotReady;
  const unsigned long long launches = self->launches;
  uint64_t before;
  int code = kNotReady;
  self->inside++;
  if (enter(self, &before)) {
    const bool asks = !(self->capturing && captures(self)); /* a question would end the capture */
    Py_BEGIN_ALLOW_THREADS
    if (asks) code = waiting::ask(self->query, kNotReady, self->stream, waiting::kSpinSeconds);
    if (self->clear) self->clear();
    const int left = leave(self, before);
    if (!code) code = left;
    Py_END_ALLOW_THREADS
  }
  self->inside--;
  if (code) return code;
  if (!self->ready) return kNotReady; /* whoever has disabled it may have met a failure */
  if (launches == self->launches) self->pending = 0;
  return 0;
}

/* Call a method of the slow path. */
static PyObject *slowly(Launcher *self, const char *name, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
  PyObject *method = PyObject_GetAttrString(self->slow, name);
  if (!method) return NULL;
  PyObject *result = PyObject_Vectorcall(method, args, count, kwnames);
  Py_DECREF(method);
  return result;
}

/* Wait, here or on the slow path, which raises what the driver's code says. */
static PyObject *finish(Launcher *self) {
  const int code = wait_shortly(self);
  if (!code) Py_RETURN_NONE;
  if (code == kNotReady) return slowly(self, "synchronize", NULL, 0, NULL);
  PyObject *number = PyLong_FromLong(code);
  PyObject *result = number ? slowly(self, "wait_failed", &number, 1, NULL) : NULL;
  Py_XDECREF(number);
  return result;
}

/* synchronize(timeout_s=None) */
static PyObject *synchronize(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
  Launcher *self = (Launcher *)object;
  return count || kwnames ? slowly(self, "synchronize", args, count, kwnames) : finish(self);
}

/* run(**params) */
static PyObject *run(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
  Launcher *self = (Launcher *)object;
  if (count) return slowly(self, "run", args, count, kwnames); /* which refuses them */
  PyObject *launched = call(object, args, count, kwnames);
  if (!launched) return NULL;
  Py_DECREF(launched);
  return finish(self);
}

static void clear_slots(Launcher *self) {
  for (Py_ssize_t i = 0; i < self->count; ++i) {
    Py_XDECREF(self->slots[i].name);
    Py_XDECREF(self->slots[i].limits);
    for (Py_ssize_t k = 0; k < self->slots[i].count; ++k) PyMem_Free(self->slots[i].uses[k].formula);
    PyMem_Free(self->slots[i].uses);
  }
  PyMem_Free(self->slots);
  self->slots = NULL;
  self->count = 0;
}

static int init(PyObject *object, PyObject *args, PyObject *kwargs) {
  Launcher *self = (Launcher *)object;
  PyObject *slow;
  if (!PyArg_ParseTuple(args, "O", &slow)) return -1;
  self->left = -1;
  Py_INCREF(slow);
  Py_XSETREF(self->slow, slow);
  return 0;
}

static void dealloc(PyObject *object) {
  Launcher *self = (Launcher *)object;
  PyTypeObject *type = Py_TYPE(object);
  clear_slots(self);
  PyMem_Free(self->lanes);
  Py_XDECREF(self->slow);
  Py_XDECREF(self->python);
  Py_XDECREF(self->keep);
  type->tp_free(object);
  Py_DECREF(type);
}

/* bind(launch, set, exec, stream, get_current, set_current, context, query, clear, room=0, lanes=b""): what to call from now on, and
 * where; `lanes` are 64-bit handles of the other streams that a launch uses. */
static PyObject *bind(PyObject *object, PyObject *args) {
  Launcher *self = (Launcher *)object;
  unsigned long long launch, set, exec, stream, get_current, set_current, context, query, clear, room = 0;
  const char *lanes = "";
  Py_ssize_t nbytes = 0;
  if (!PyArg_ParseTuple(args, "KKKKKKKKK|Ky#", &launch, &set, &exec, &stream, &get_current, &set_current, &context, &query, &clear, &room,
                        &lanes, &nbytes))
    return NULL;
  uint64_t *copy = NULL;
  if (nbytes) {
    copy = (uint64_t *)PyMem_Malloc(nbytes);
    if (!copy) return PyErr_NoMemory();
    memcpy(copy, lanes, nbytes);
  }
  PyMem_Free(self->lanes);
  self->lanes = copy;
  self->lane_count = nbytes / (Py_ssize_t)sizeof(uint64_t);
  clear_slots(self);
  Py_CLEAR(self->python);
  Py_CLEAR(self->keep);
  self->launch = (launch_fn)(uintptr_t)launch;
  self->set = (set_fn)(uintptr_t)set;
  self->exec = (void *)(uintptr_t)exec;
  self->stream = (void *)(uintptr_t)stream;
  self->get_current = (get_current_fn)(uintptr_t)get_current;
  self->set_current = (set_current_fn)(uintptr_t)set_current;
  self->context = context;
  self->query = (waiting::query_fn)(uintptr_t)query;
  self->clear = (clear_fn)(uintptr_t)clear;
  self->room = (waiting::query_fn)(uintptr_t)room;
  self->can_wait = 0;
  Py_RETURN_NONE;
}

/* Read one use of a slot; false with an exception set if it is not what `slots` documents. */
static bool read_use(use_t *use, PyObject *item, const slot_t *slot) {
  unsigned long long value, node, params, exec;
  const char *formula = NULL, *kind = NULL;
  Py_ssize_t nbytes = 0;
  int size = slot->size;
  if (!PyArg_ParseTuple(item, "KKKK|siy#", &value, &node, &params, &exec, &kind, &size, &formula, &nbytes)) return false;
  use->value = (char *)(uintptr_t)value;
  use->node = (void *)(uintptr_t)node;
  use->params = (const void *)(uintptr_t)params;
  use->exec = (void *)(uintptr_t)exec;
  use->kind = kind ? kind[0] : slot->kind;
  use->size = (uint8_t)size;
  if (!formula) return true;
  use->formula = (int64_t *)PyMem_Malloc(nbytes);
  if (!use->formula) {
    PyErr_NoMemory();
    return false;
  }
  memcpy(use->formula, formula, nbytes);
  use->words = nbytes / (Py_ssize_t)sizeof(int64_t);
  return true;
}

/* Read one slot; false with an exception set if it is not what `slots` documents. */
static bool read_slot(slot_t *slot, PyObject *item) {
  const char *kind, *bytes;
  Py_ssize_t length;
  PyObject *name, *uses, *limits;
  int size, whole;
  if (!PyArg_ParseTuple(item, "Usiy#O!pO!", &name, &kind, &size, &bytes, &length, &PyList_Type, &uses, &whole, &PyTuple_Type, &limits))
    return false;
  if ((size != 1 && size != 2 && size != 4 && size != 8) || length != size) {
    PyErr_SetString(PyExc_ValueError, "a slot holds 1, 2, 4 or 8 bytes");
    return false;
  }
  Py_ssize_t count = PyList_GET_SIZE(uses);
  slot->uses = (use_t *)PyMem_Calloc(count ? count : 1, sizeof(use_t));
  if (!slot->uses) {
    PyErr_NoMemory();
    return false;
  }
  slot->kind = kind[0];
  slot->size = (uint8_t)size;
  slot->whole = (char)whole;
  memcpy(slot->value, bytes, size);
  slot->count = count;
  for (Py_ssize_t k = 0; k < count; ++k)
    if (!read_use(&slot->uses[k], PyList_GET_ITEM(uses, k), slot)) return false;
  slot->limits = Py_NewRef(limits);
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name); /* keywords of calls are interned, so names are compared by address */
  slot->name = name;
  return true;
}

/* slots([(name, kind, size, value bytes, [(value address, node, params address, exec), ...], whole, limits), ...], keep); a use that a
 * formula computes has its kind, its size and the formula's words, too, in which parameters are positions in the list. */
static PyObject *set_slots(PyObject *object, PyObject *args) {
  Launcher *self = (Launcher *)object;
  PyObject *list, *keep;
  if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &list, &keep)) return NULL;
  clear_slots(self);
  Py_ssize_t count = PyList_GET_SIZE(list);
  self->slots = (slot_t *)PyMem_Calloc(count ? count : 1, sizeof(slot_t));
  if (!self->slots) return PyErr_NoMemory();
  self->count = count;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!read_slot(&self->slots[i], PyList_GET_ITEM(list, i))) {
      clear_slots(self);
      return NULL;
    }
  Py_INCREF(keep);
  Py_XSETREF(self->keep, keep);
  Py_RETURN_NONE;
}

/* set({name: value, ...}) -> bool: give parameters values without launching; False if nothing is set, or what was is set back. */
static PyObject *set_some(PyObject *object, PyObject *values) {
  Launcher *self = (Launcher *)object;
  if (!PyDict_Check(values)) return PyErr_Format(PyExc_TypeError, "set takes a dictionary");
  const Py_ssize_t most = PyDict_Size(values) + 1;
  slot_t **changed = (slot_t **)PyMem_Malloc(most * sizeof *changed);
  char (*bytes)[8] = (char (*)[8])PyMem_Calloc(most, 8);
  bool good = changed && bytes;
  Py_ssize_t at = 0, n = 0, uses = 0;
  PyObject *name, *value;
  while (good && PyDict_Next(values, &at, &name, &value)) {
    slot_t *slot = find(self, name);
    good = slot && !pack(slot->kind, value, bytes[n]);
    if (!good || !memcmp(bytes[n], slot->value, slot->size)) continue;
    uses += slot->count;
    changed[n++] = slot;
  }
  good = good && spend(self, uses) && change(self, changed, bytes, n);
  PyMem_Free(changed);
  PyMem_Free(bytes);
  return PyBool_FromLong(good);
}

/* value(name) -> bytes or None: what a slot holds now, if a launch has named it. */
static PyObject *value(PyObject *object, PyObject *name) {
  Launcher *self = (Launcher *)object;
  for (Py_ssize_t i = 0; i < self->count; ++i)
    if (self->slots[i].given && PyUnicode_Compare(self->slots[i].name, name) == 0)
      return PyBytes_FromStringAndSize(self->slots[i].value, self->slots[i].size);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

/* callback(runs): say whether this thread runs a host callback, for all Launchers. */
static PyObject *callback(PyObject *object, PyObject *runs) {
  in_callback = runs == Py_True;
  __atomic_fetch_add(&callbacks, in_callback ? 1 : -1, __ATOMIC_RELAXED);
  Py_RETURN_NONE;
}

static PyMemberDef members[] = {
    {"ready", T_BOOL, offsetof(Launcher, ready), 0, "whether a call may take the fast path"},
    {"pending", T_BOOL, offsetof(Launcher, pending), 0, "whether the own stream has been launched on since this was reset"},
    {"can_wait", T_BOOL, offsetof(Launcher, can_wait), 0, "whether to wait for the own stream is all that `synchronize` would do"},
    {"torn", T_BOOL, offsetof(Launcher, torn), 0, "whether a value could be neither set nor set back since this was reset"},
    {"inside", T_INT, offsetof(Launcher, inside), READONLY, "calls on the fast path that have not returned"},
    {"launches", T_ULONGLONG, offsetof(Launcher, launches), 0, "launches on the fast path"},
    {"updates", T_ULONGLONG, offsetof(Launcher, updates), 0, "nodes set on the fast path"},
    {"capturing", T_ULONGLONG, offsetof(Launcher, capturing), 0, "hipStreamIsCapturing where others know the own stream, or 0"},
    {"python", T_OBJECT, offsetof(Launcher, python), 0, "what launches a program that is not one graph: the items that `kFunction` lists"},
    {"left", T_LONGLONG, offsetof(Launcher, left), 0, "nodes that may still be set on the fast path; negative: any number"},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef methods[] = {
    {"launch", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS,
     "launch($self, /, stream=None, **params)\n--\n\nExecutable.launch, compiled: put one run of the workflow on a stream and return."},
    {"synchronize", (PyCFunction)(void (*)(void))synchronize, METH_FASTCALL | METH_KEYWORDS,
     "synchronize($self, /, timeout_s=None)\n--\n\nExecutable.synchronize, compiled: wait until all launches have finished."},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL | METH_KEYWORDS,
     "run($self, /, **params)\n--\n\nExecutable.run, compiled: launch on the own stream and wait."},
    {"bind", bind, METH_VARARGS,
     "bind(launch, set, exec, stream, get_current, set_current, context, query, clear, room=0, lanes=b\"\"): what to call, with what, and where"},
    {"slots", set_slots, METH_VARARGS, "slots(list, keep): parameters of which kernel launches can be set"},
    {"set", set_some, METH_O, "set(values): set the uses of parameters, by name; False if they are as before"},
    {"callback", callback, METH_O, "callback(runs): say whether this thread runs a host callback, for all Launchers"},
    {"value", value, METH_O, "value(name): bytes that a slot holds now, or None if no launch has named it"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, (void *)init}, {Py_tp_dealloc, (void *)dealloc}, {Py_tp_members, members}, {Py_tp_methods, methods},
    {Py_tp_new, (void *)PyType_GenericNew}, {0, NULL},
};
static PyType_Spec spec = {
    "native.Launcher", sizeof(Launcher), 0, Py_TPFLAGS_DEFAULT, slots,
};

} // namespace launcher
