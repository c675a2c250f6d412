/* native: what this library does often enough that Python is too slow for it, as one extension module.
 *
 *   values.h        Python numbers as bytes of kernel arguments
 *   launcher.h      Launcher: launching an instantiated graph
 *   kernel_adder.h  KernelAdder: adding the kernel nodes of a plan to a graph
 *   wait.h          wait: asking a stream until it has finished
 *   calls.h         make_all: what a launch of several graphs does, one after another
 */
#include "calls.h"
#include "kernel_adder.h"
#include "launcher.h"
#include "wait.h"

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "native", NULL, -1, NULL, NULL, NULL, NULL, NULL};

static bool add_type(PyObject *module, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromSpec(spec);
  if (!type) return false;
  if (PyModule_AddObject(module, name, type) == 0) return true;
  Py_DECREF(type);
  return false;
}

PyMODINIT_FUNC PyInit_native(void) {
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
  if (add_type(module, "Launcher", &launcher::spec) && add_type(module, "KernelAdder", &kernel_adder::spec) &&
      !PyModule_AddFunctions(module, waiting::functions) && !PyModule_AddFunctions(module, calls::functions))
    return module;
  Py_DECREF(module);
  return NULL;
}
