/* wait: ask a stream until it has finished, without the GIL.
 *
 * Short work is waited for by asking again and again, because a sleep takes at least 50 us; after kSpinSeconds by sleeps of a
 * 64th of what has passed, so that the end is found late by two or three percent at most.
 */
#pragma once
#include "values.h"
#include <time.h>

namespace waiting {

typedef int (*query_fn)(void *stream);

static const double kSpinSeconds = 2e-3, kLongestSleep = 1e-3;

static double now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* wait(query, not_ready, stream, seconds) -> the last answer: `not_ready` if the time is up */
static PyObject *wait(PyObject *module, PyObject *args) {
  unsigned long long query, stream;
  int not_ready, code;
  double seconds;
  if (!PyArg_ParseTuple(args, "KiKd", &query, &not_ready, &stream, &seconds)) return NULL;
  Py_BEGIN_ALLOW_THREADS
  const double start = now();
  while ((code = ((query_fn)(uintptr_t)query)((void *)(uintptr_t)stream)) == not_ready) {
    const double waited = now() - start;
    if (waited >= seconds) break;
    if (waited < kSpinSeconds) continue;
    double sleep = waited / 64;
    if (sleep > kLongestSleep) sleep = kLongestSleep;
    if (sleep > seconds - waited) sleep = seconds - waited;
    struct timespec t = {0, (long)(1e9 * sleep)};
    nanosleep(&t, NULL);
  }
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(code);
}

static PyMethodDef functions[] = {
    {"wait", wait, METH_VARARGS, "wait(query, not_ready, stream, seconds): ask a stream until it has finished, or the time is up"},
    {NULL, NULL, 0, NULL},
};

} // namespace waiting
