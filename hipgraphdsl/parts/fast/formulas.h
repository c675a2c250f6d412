/* formulas: integers that a launch computes from its parameters, as postfix programs of 64-bit words.
 *
 * `//` and `%` round down, as Python's do. What does not fit 64 bits, divides by zero or is out of a range that the formula asks for has
 * no result here: Python computes without limits, and says what is wrong.
 */
#pragma once
#include <stdint.h>

namespace formulas {

/* Loads a parameter, pushes a constant, or checks the top against a range: the words after these are their operands. */
enum { kLoad, kPush, kWithin, kAdd, kSubtract, kMultiply, kFloor, kRest, kCeil, kLess, kAtMost, kMore, kAtLeast, kLeast, kMost, kNegate };
enum { kMostDepth = 80 }; /* numbers on the stack; who makes a formula checks it */

/* Divide, rounded down or up, with the rest of the former; false if the quotient does not exist. */
static bool divide(long long a, long long b, bool up, long long *quotient, long long *rest) {
  if (!b || (b == -1 && a == INT64_MIN)) return false;
  *quotient = a / b;
  *rest = a % b;
  if (!*rest) return true;
  const bool below = (a < 0) != (b < 0); /* C rounds towards zero */
  if (up) *quotient += !below;
  else if (below) {
    --*quotient;
    *rest += b;
  }
  return true;
}

/* One operation of two numbers; false if it has no result. */
static bool operate(int64_t op, long long a, long long b, long long *out) {
  long long other;
  switch (op) {
    case kAdd: return !__builtin_add_overflow(a, b, out);
    case kSubtract: return !__builtin_sub_overflow(a, b, out);
    case kMultiply: return !__builtin_mul_overflow(a, b, out);
    case kFloor: return divide(a, b, false, out, &other);
    case kRest: return divide(a, b, false, &other, out);
    case kCeil: return divide(a, b, true, out, &other);
    case kLess: *out = a < b; return true;
    case kAtMost: *out = a <= b; return true;
    case kMore: *out = a > b; return true;
    case kAtLeast: *out = a >= b; return true;
    case kLeast: *out = a < b ? a : b; return true;
    case kMost: *out = a > b ? a : b; return true;
  }
  return false;
}

/* Compute a formula; `load` writes the number of a parameter, false if it has none. The result is what is on top at the end. */
template <class Load> static bool compute(const int64_t *word, const int64_t *end, Load load, long long *result) {
  long long stack[kMostDepth];
  long long *top = stack - 1;
  while (word < end) {
    const int64_t op = *word++;
    if (op == kLoad) {
      if (!load(*word++, ++top)) return false;
    } else if (op == kPush) {
      *++top = *word++;
    } else if (op == kWithin) {
      const int64_t least = *word++, most = *word++;
      if (*top < least || *top > most) return false;
    } else if (op == kNegate) {
      if (__builtin_sub_overflow(0LL, *top, top)) return false;
    } else {
      --top;
      if (!operate(op, top[0], top[1], top)) return false;
    }
  }
  *result = *top;
  return true;
}

} // namespace formulas
