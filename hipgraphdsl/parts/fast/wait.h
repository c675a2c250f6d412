/* wait: ask a stream until it has finished, without the GIL.
 *
 * Short work is waited for by asking again and again, because a sleep takes at least 50 us; after kSpinSeconds by sleeps of a
 * 64th of what has passed, so that the end is found late by two or three percent at most.
 */
#pragma once
#include "values.h"
#include <sched.h>
#include <time.h>

namespace waiting {

/* hipStreamQuery; or what waits itself for at most so many microseconds. A function that takes fewer words finds its own. */
typedef int (*query_fn)(void *stream, uint64_t most_us);

static const double kAloneSeconds = 1e-5, kSpinSeconds = 2e-3, kLongestSleep = 1e-3;

static double now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ask until the answer is another than `not_ready`, or the time is up; the last answer. */
static int ask(query_fn query, int not_ready, void *stream, double seconds) {
  int code;
  const double start = now();
  while ((code = query(stream, (uint64_t)(1e6 * kSpinSeconds))) == not_ready) {
    const double waited = now() - start;
    if (waited >= seconds) break;
    if (waited < kSpinSeconds) {
      /* A process may be bound to one core, as mpiexec does, where threads of the driver and of NCCL have to run too. */
      if (waited > kAloneSeconds) sched_yield();
      continue;
    }
    double sleep = waited / 64;
    if (sleep > kLongestSleep) sleep = kLongestSleep;
    if (sleep > seconds - waited) sleep = seconds - waited;
    struct timespec t = {0, (long)(1e9 * sleep)};
    nanosleep(&t, NULL);
  }
  return code;
}

/* wait(query, not_ready, stream, seconds) -> the last answer: `not_ready` if the time is up */
static PyObject *wait(PyObject *module, PyObject *args) {
  unsigned long long query, stream;
  int not_ready, code;
  double seconds;
  if (!PyArg_ParseTuple(args, "KiKd", &query, &not_ready, &stream, &seconds)) return NULL;
  Py_BEGIN_ALLOW_THREADS
  code = ask((query_fn)(uintptr_t)query, not_ready, (void *)(uintptr_t)stream, seconds);
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(code);
}

static PyMethodDef functions[] = {
    {"wait", wait, METH_VARARGS, "wait(query, not_ready, stream, seconds): ask a stream until it has finished, or the time is up"},
    {NULL, NULL, 0, NULL},
};

} // namespace waiting
