/* values: Python numbers as bytes of kernel arguments. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

/* Write an integer as `kind` to `out`; 0 good, -1 it does not fit. */
static int store(char kind, long long v, char *out) {
#define FITS(type, low, high) if (v < (low) || v > (high)) return -1; { type t = (type)v; memcpy(out, &t, sizeof t); } return 0
  switch (kind) {
    case '?': FITS(uint8_t, 0, 1);
    case 'b': FITS(int8_t, INT8_MIN, INT8_MAX);
    case 'B': FITS(uint8_t, 0, UINT8_MAX);
    case 'h': FITS(int16_t, INT16_MIN, INT16_MAX);
    case 'H': FITS(uint16_t, 0, UINT16_MAX);
    case 'i': FITS(int32_t, INT32_MIN, INT32_MAX);
    case 'I': FITS(uint32_t, 0, UINT32_MAX);
    case 'Q': FITS(uint64_t, 0, INT64_MAX);
    case 'q': memcpy(out, &v, 8); return 0;
  }
#undef FITS
  return -1;
}

/* Read an integer of `kind`; -1 it has more than 63 bits. */
static int fetch(char kind, const char *from, long long *v) {
#define READ(type) { type t; memcpy(&t, from, sizeof t); *v = (long long)t; } return 0
  switch (kind) {
    case '?': case 'B': READ(uint8_t);
    case 'b': READ(int8_t);
    case 'h': READ(int16_t);
    case 'H': READ(uint16_t);
    case 'i': READ(int32_t);
    case 'I': READ(uint32_t);
    case 'q': READ(int64_t);
    case 'Q': memcpy(v, from, 8); return *v < 0 ? -1 : 0;
  }
#undef READ
  return -1;
}

/* Write `value` as `kind` to `out`; 0 good, -1 it does not fit exactly as Python checks it: the slow path says so. */
static int pack(char kind, PyObject *value, char *out) {
  if (kind == 'f' || kind == 'd') {
    double d;
    if (PyFloat_CheckExact(value)) d = PyFloat_AS_DOUBLE(value);
    else if (PyLong_CheckExact(value)) {
      d = PyLong_AsDouble(value);
      if (d == -1.0 && PyErr_Occurred()) { PyErr_Clear(); return -1; }
    } else return -1;
    if (kind == 'd') memcpy(out, &d, 8);
    else {
      float f = (float)d;
      if (d - d == 0.0 && !(f - f == 0.0f)) return -1; /* finite, but not as a float */
      memcpy(out, &f, 4);
    }
    return 0;
  }
  if (kind == '?') {
    if (value != Py_True && value != Py_False) return -1;
    out[0] = value == Py_True;
    return 0;
  }
  if (!PyLong_CheckExact(value)) return -1;
  if (kind == 'Q') {
    unsigned long long u = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred()) { PyErr_Clear(); return -1; }
    memcpy(out, &u, 8);
    return 0;
  }
  int overflow = 0;
  long long v = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow ? -1 : store(kind, v, out);
}
