/* calls: what a launch of several graphs does, one after another: calls of the platform and of other libraries without the GIL,
 * and functions of the host.
 *
 * Each call stands in 32 bytes, as `compiled_calls.CompiledCalls` packs them; eight words follow one of another library.
 */
#pragma once
#include "values.h"

namespace calls {

enum { kHandles = 0, kHandlesAndFlags = 1, kFunction = 2, kWords = 3 }; /* call_t.kind */

typedef struct {
  uint64_t address;       /* of the platform's function; for the host's its place in the list */
  /* Handles, the stream of the launch where all bits are set; for the host's its stream; for another library's the address of a
   * 32-bit word that must be 0, or 0. */
  uint64_t first, second;
  uint64_t kind;
} call_t;

typedef int (*handles_fn)(void *, void *);
typedef int (*flags_fn)(void *, void *, unsigned);

/* As integers go to functions on the ABIs that this is built for, one that takes fewer, or narrower ones, finds its own. */
typedef int (*words_fn)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

/* A list that a Launcher launches: calls of which none is a function of the host. */
typedef struct {
  uint64_t count, failed; /* `failed`: the place of the call that the last run ended with */
  call_t calls[];
} list_t;

static uint64_t given(uint64_t handle, uint64_t stream) { return ~handle ? handle : stream; }

static Py_ssize_t length(const call_t *call) { return call->kind == kWords ? 3 : 1; }

static int make(const call_t *call, uint64_t stream) {
  if (call->kind == kWords) {
    if (call->first && *(const volatile int32_t *)(uintptr_t)call->first) return -1;
    uint64_t w[8];
    memcpy(w, call + 1, sizeof w);
    for (int i = 0; i < 8; ++i) w[i] = given(w[i], stream);
    return ((words_fn)(uintptr_t)call->address)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
  }
  void *first = (void *)(uintptr_t)given(call->first, stream), *second = (void *)(uintptr_t)given(call->second, stream);
  if (call->kind == kHandles) return ((handles_fn)(uintptr_t)call->address)(first, second);
  return ((flags_fn)(uintptr_t)call->address)(first, second, 0);
}

/* Make the calls of a list on a stream, as hipGraphLaunch launches a graph. */
static int run(void *list, void *stream) {
  list_t *self = (list_t *)list;
  for (uint64_t i = 0; i < self->count; i += length(&self->calls[i])) {
    const int code = make(&self->calls[i], (uintptr_t)stream);
    if (code) {
      self->failed = i;
      return code;
    }
  }
  return 0;
}

/* runner() -> the address of `run`. */
static PyObject *runner(PyObject *module, PyObject *) { return PyLong_FromVoidPtr((void *)run); }

/* make_all(calls, functions, failed, stream): `failed` raises for the place and the code of a call. */
static PyObject *make_all(PyObject *module, PyObject *args) {
  const call_t *calls;
  Py_ssize_t nbytes;
  PyObject *functions, *failed;
  unsigned long long stream;
  if (!PyArg_ParseTuple(args, "y#O!OK", &calls, &nbytes, &PyTuple_Type, &functions, &failed, &stream)) return NULL;
  const Py_ssize_t count = nbytes / (Py_ssize_t)sizeof(call_t);
  for (Py_ssize_t i = 0; i < count;) {
    if (calls[i].kind == kFunction) {
      PyObject *number = PyLong_FromUnsignedLongLong(given(calls[i].first, stream));
      PyObject *result = number ? PyObject_CallOneArg(PyTuple_GET_ITEM(functions, calls[i].address), number) : NULL;
      Py_XDECREF(number);
      if (!result) return NULL;
      Py_DECREF(result);
      ++i;
      continue;
    }
    int code = 0;
    Py_BEGIN_ALLOW_THREADS /* a call may wait for the device, which may wait for a host node */
    while (!(code = make(&calls[i], stream)) && (i += length(&calls[i])) < count && calls[i].kind != kFunction) {}
    Py_END_ALLOW_THREADS
    if (code) return PyObject_CallFunction(failed, "ni", i, code);
    if (PyErr_CheckSignals()) return NULL;
  }
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"make_all", make_all, METH_VARARGS, "make_all(calls, functions, failed, stream): failed(place, code) raises"},
    {"runner", runner, METH_NOARGS, "runner(): the address of what makes the calls of a list, for Launcher.bind"},
    {NULL, NULL, 0, NULL},
};

} // namespace calls
