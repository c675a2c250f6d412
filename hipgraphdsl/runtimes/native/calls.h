/* calls: what a launch of several graphs does, one after another: calls of the platform without the GIL, and functions of the host.
 *
 * Each call stands in 32 bytes, as `hip_abi.HipAbiRuntime.launch_calls` packs them.
 */
#pragma once
#include "values.h"

namespace calls {

enum { kHandles = 0, kHandlesAndFlags = 1, kFunction = 2 }; /* call_t.kind */

typedef struct {
  uint64_t address;       /* of the platform's function; for the host's its place in the list */
  uint64_t first, second; /* handles, the stream of the launch where all bits are set; for the host's its stream, and `always` */
  uint64_t kind;
} call_t;

typedef int (*handles_fn)(void *, void *);
typedef int (*flags_fn)(void *, void *, unsigned);

static uint64_t given(uint64_t handle, uint64_t stream) { return ~handle ? handle : stream; }

static int make(const call_t *call, uint64_t stream) {
  void *first = (void *)(uintptr_t)given(call->first, stream), *second = (void *)(uintptr_t)given(call->second, stream);
  if (call->kind == kHandles) return ((handles_fn)(uintptr_t)call->address)(first, second);
  return ((flags_fn)(uintptr_t)call->address)(first, second, 0);
}

/* make_all(calls, functions, failures, stream) -> None, or the place and the code of the call that failed.
 *
 * While `failures` is not empty, functions are passed over that are not called `always`. */
static PyObject *make_all(PyObject *module, PyObject *args) {
  const call_t *calls;
  Py_ssize_t nbytes;
  PyObject *functions, *failures;
  unsigned long long stream;
  if (!PyArg_ParseTuple(args, "y#O!O!K", &calls, &nbytes, &PyTuple_Type, &functions, &PyList_Type, &failures, &stream)) return NULL;
  const Py_ssize_t count = nbytes / (Py_ssize_t)sizeof(call_t);
  for (Py_ssize_t i = 0; i < count;) {
    if (calls[i].kind == kFunction) {
      if (calls[i].second || !PyList_GET_SIZE(failures)) {
        PyObject *number = PyLong_FromUnsignedLongLong(given(calls[i].first, stream));
        PyObject *result = number ? PyObject_CallOneArg(PyTuple_GET_ITEM(functions, calls[i].address), number) : NULL;
        Py_XDECREF(number);
        if (!result) return NULL;
        Py_DECREF(result);
      }
      ++i;
      continue;
    }
    int code = 0;
    Py_BEGIN_ALLOW_THREADS /* a call may wait for the device, which may wait for a host node */
    while (!(code = make(&calls[i], stream)) && ++i < count && calls[i].kind != kFunction) {}
    Py_END_ALLOW_THREADS
    if (code) return Py_BuildValue("ni", i, code);
    if (PyErr_CheckSignals()) return NULL;
  }
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"make_all", make_all, METH_VARARGS, "make_all(calls, functions, failures, stream): None, or place and code of what failed"},
    {NULL, NULL, 0, NULL},
};

} // namespace calls
