"""Parameters, which are bound at launch, and integer expressions of them, which a launch computes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, TypeVar

import numpy as np

from ..errors import DeclarationError
from .coercion import as_int
from .dtypes import int_range
from .views import ArrayView, Root

_MOST_TEXT: Final = 2000  # characters of an expression's text
_COMPARISON, _FUNCTION = 1, 9  # how tightly operations bind
_MOST_DEPTH: Final = 64  # operations inside each other
_INT: Final = np.dtype("int64")

T = TypeVar("T")
Range = tuple[int, int]
"""The least and the greatest value of something, both included."""


@dataclass(frozen=True, eq=False, repr=False)
class Parameter(Root):
    """A value bound at launch: a scalar, or with a shape, an array.

    Scalar integers take part in arithmetic: ``n + 1``, ``-n``, ``n * m``, ``n // 64``, ``n % 4``, ``n < m``, `ceil_div`,
    `minimum` and `maximum` are `Expression` objects, which stand where an integer does.

    Attributes
    ----------
    name : str
        The launch keyword.
    dtype : numpy.dtype
    default : object
        The value of the first launch; None if that launch must give it.
    shape : tuple of int
        Empty for a scalar.
    copy : bool
        Whether a launch copies values into page-locked memory of the Executable instead of using memory in place.
    min, max : int or None
        The least and the greatest value that a launch may give; None: what the dtype holds.
    """

    name: str
    dtype: np.dtype[Any]
    default: Any = None
    shape: tuple[int, ...] = ()
    copy: bool = False
    min: int | None = field(default=None, kw_only=True)
    max: int | None = field(default=None, kw_only=True)

    kind = "parameter"
    device = None
    __array_ufunc__ = None  # NumPy's integers leave arithmetic to it
    terms: tuple[Parameter, ...] = field(default=(), init=False)
    """The parameters that an expression is computed from; none for a parameter."""

    @property
    def on_host(self) -> bool:
        """Whether host callbacks may take it; the memory bound to it is checked at launch."""
        return bool(self.shape)

    @property
    def limits(self) -> dict[str, int]:
        """The bounds that were given, by the names of their fields."""
        return {key: value for key, value in (("min", self.min), ("max", self.max)) if value is not None}

    @property
    def bounds(self) -> Range:
        """The least and the greatest value of a scalar integer."""
        least, most = range_of(self.dtype)
        return least if self.min is None else self.min, most if self.max is None else self.max

    def as_view(self) -> ArrayView:
        """Return the view of all its elements."""
        if not self.shape:
            advice = "" if self.terms else "; give it a shape"
            what = "expression" if self.terms else "parameter"
            raise DeclarationError(
                f"{what} {self.name!r} is a scalar and cannot stand where an array may{advice}", array=self.name
            )
        return super().as_view()

    def __repr__(self) -> str:
        shape = f", shape={self.shape}" if self.shape else ""
        default = f", default={self.default!r}" if self.default is not None else ""
        limits = "".join(f", {key}={value}" for key, value in self.limits.items())
        return f"Parameter({self.name!r}, {self.dtype}{default}{shape}{', copy=True' * self.copy}{limits})"

    # -- arithmetic

    def __add__(self, other: Any) -> Expression:
        return _expression("+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _expression("+", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _expression("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _expression("-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _expression("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _expression("*", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return _expression("//", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _expression("//", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _expression("%", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _expression("%", other, self)

    def __neg__(self) -> Expression:
        return _expression("-", self)

    def __lt__(self, other: Any) -> Expression:
        return _expression("<", self, other)

    def __le__(self, other: Any) -> Expression:
        return _expression("<=", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _expression(">", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _expression(">=", self, other)

    def __truediv__(self, other: Any) -> Expression:
        raise DeclarationError(f"{self.name} / {other!r}: expressions are integers; write //, or hg.ceil_div to round up")

    __rtruediv__ = __truediv__


class Expression(Parameter):
    """An integer that a launch computes from parameters, with Python's rules: nothing wraps, ``//`` and ``%`` round down.

    Its dtype is int64 for what asks for one; the value is checked against the type of what takes it. `default` is its value for
    the defaults of all parameters, or None; `min` and `max` are bounds of its value that follow from theirs.

    Attributes
    ----------
    name : str
        Its text, as files and drawings have it, such as ``ceil_div(n, 256)``.
    op : str
    operands : tuple of int or Parameter
    terms : tuple of Parameter
        The parameters in it, each once.
    """

    op: str
    operands: tuple[int | Parameter, ...]

    def __bool__(self) -> bool:
        raise DeclarationError(
            f"{self.name} is known when the graph is launched, so Python cannot decide by it; a kernel can, or a conditional node"
        )

    def at(self, value_of: Callable[[Parameter], Any]) -> int:
        """Return its value, for the values of its parameters; raise DeclarationError where it divides by zero."""
        values = [value_at(operand, value_of) for operand in self.operands]
        try:
            return _OPERATIONS[self.op, len(values)].compute(*values)
        except ZeroDivisionError:
            raise DeclarationError(
                f"expression {self.name} divides by zero: {self._with(value_of)}", array=self.terms[0].name
            ) from None

    def default_at(self, value_of: Callable[[Parameter], Any]) -> int | None:
        """Return its value; None where a parameter's is None, or it divides by zero."""
        return if_known(self.at, self.terms, value_of)

    def replaced(self, by: Callable[[Parameter], Any]) -> Any:
        """Return it with other parameters, expressions or integers in place of its parameters; an int if none is left."""
        return _made(self.op, *(with_other(operand, by) for operand in self.operands))

    def spelled(self, name_of: Callable[[Parameter], str], prefix: str = "") -> str:
        """Return its text with other names of its parameters, and `prefix` before those of `FUNCTIONS`."""
        return _spelled(self.op, self.operands, name_of, prefix)

    def told(self, value_of: Callable[[Parameter], Any]) -> str:
        """Return its text and value, for errors: ``n * 4 = 12 (n = 3)``."""
        return f"{self.name} = {self.at(value_of)} ({self._with(value_of)})"

    def _with(self, value_of: Callable[[Parameter], Any]) -> str:
        return ", ".join(f"{parameter.name} = {value_of(parameter)}" for parameter in self.terms)

    def __repr__(self) -> str:
        return f"Expression({self.name})"


@dataclass(frozen=True)
class _Operation:
    """What an operation computes, the range of its results for ranges of its operands, and how tightly its text binds."""

    compute: Callable[..., int]
    range: Callable[..., Range]
    level: int


def _corners(compute: Callable[..., int]) -> Callable[..., Range]:
    """Return the range of an operation that has its extremes where its operands have theirs."""

    def found(*ranges: Range) -> Range:
        values = [compute(*ends) for ends in product(*ranges)]
        return min(values), max(values)

    return found


def _divided(compute: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    """Return the range of a division; a divisor of 0 is refused at launch, so it is left out."""

    def found(a: Range, b: Range) -> Range:
        values = [compute(x, y) for y in _without_zero(b) for x in a]
        return min(values), max(values)

    return found


def _without_zero(b: Range) -> set[int]:
    """Return the ends of a divisor's range on both sides of 0."""
    return {end for end in (b[0], b[1], -1, 1) if b[0] <= end <= b[1] and end} or {1}


def _rest(a: Range, b: Range) -> Range:
    if b[0] > 0 and a[0] >= 0 and a[1] < b[0]:
        return a
    return min(0, b[0] + 1), max(0, b[1] - 1)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _comparison(compute: Callable[[int, int], bool]) -> _Operation:
    return _Operation(lambda a, b: int(compute(a, b)), lambda a, b: (0, 1), _COMPARISON)


_OPERATIONS: Final[dict[tuple[str, int], _Operation]] = {
    ("<", 2): _comparison(operator.lt),
    ("<=", 2): _comparison(operator.le),
    (">", 2): _comparison(operator.gt),
    (">=", 2): _comparison(operator.ge),
    ("+", 2): _Operation(operator.add, _corners(operator.add), 2),
    ("-", 2): _Operation(operator.sub, _corners(operator.sub), 2),
    ("*", 2): _Operation(operator.mul, _corners(operator.mul), 3),
    ("//", 2): _Operation(operator.floordiv, _divided(operator.floordiv), 3),
    ("%", 2): _Operation(operator.mod, _rest, 3),
    ("-", 1): _Operation(operator.neg, _corners(operator.neg), 4),
    ("ceil_div", 2): _Operation(_ceil, _divided(_ceil), _FUNCTION),
    ("minimum", 2): _Operation(min, _corners(min), _FUNCTION),
    ("maximum", 2): _Operation(max, _corners(max), _FUNCTION),
}
"""By sign or name and number of operands."""
FUNCTIONS: Final = tuple(op for (op, _), operation in _OPERATIONS.items() if operation.level == _FUNCTION)
"""The operations that are written as calls."""


def ceil_div(a: Any, b: Any) -> Any:
    """Return a / b rounded up, of integers or expressions of them: the number of blocks of b threads for a elements."""
    return _made("ceil_div", a, b)


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller one of two integers or expressions of them."""
    return _made("minimum", a, b)


def maximum(a: Any, b: Any) -> Any:
    """Return the greater one of two integers or expressions of them."""
    return _made("maximum", a, b)


def difference(a: Any, b: Any) -> Range:
    """Return the bounds of a - b, of integers or expressions; what is added to both, or a multiple of it, cancels out."""
    weights, constant = _linear(a)
    others, less = _linear(b)
    low = high = constant - less
    for name, (_, value) in {**others, **weights}.items():
        weight = weights.get(name, (0, value))[0] - others.get(name, (0, value))[0]
        ends = [weight * end for end in value.bounds]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _linear(value: Any) -> tuple[dict[str, tuple[int, Parameter]], int]:
    """Return a value as multiples of parameters and of other expressions, by their text, and a constant."""
    if not isinstance(value, Parameter):
        return {}, int(value)
    if isinstance(value, Expression):
        parts = [_linear(operand) for operand in value.operands]
        if value.op in ("+", "-"):
            weights: dict[str, tuple[int, Parameter]] = {}
            constant = 0
            signs = (-1,) if len(parts) == 1 else (1, 1 if value.op == "+" else -1)
            for sign, (found, alone) in zip(signs, parts):
                constant += sign * alone
                for name, (weight, term) in found.items():
                    weights[name] = weights.get(name, (0, term))[0] + sign * weight, term
            return weights, constant
        if value.op == "*" and not all(found for found, _ in parts):
            (found, alone), (_, factor) = sorted(parts, key=lambda part: not part[0])
            return {name: (weight * factor, term) for name, (weight, term) in found.items()}, alone * factor
    return {value.name: (1, value)}, 0


def range_of(dtype: np.dtype[Any]) -> Range:
    """Return the least and the greatest value of an integer dtype, or of bool."""
    return (0, 1) if dtype.kind == "b" else int_range(dtype)


def checked_limits(
    name: str, dtype: np.dtype[Any], shape: Any, default: Any, least: Any, most: Any
) -> tuple[int | None, int | None]:
    """Return a parameter's `min` and `max`; refuse what are no bounds of its dtype, and a default beyond them."""
    if least is None and most is None:
        return None, None
    if shape or dtype.kind not in "iu":
        raise DeclarationError(
            f"parameter {name!r}: min and max are for scalar integers, and it is {dtype}{list(shape) or ''}", array=name
        )
    lowest, highest = int_range(dtype)
    limits = [None if value is None else as_int(value) for value in (least, most)]
    for key, given, value in zip(("min", "max"), (least, most), limits):
        if given is not None and (value is None or not lowest <= value <= highest):
            raise DeclarationError(f"parameter {name!r}: {key} is an integer that {dtype} holds (got {given!r})", array=name)
    found = Parameter(name, dtype, min=limits[0], max=limits[1])
    low, high = found.bounds
    if low > high:
        raise DeclarationError(f"parameter {name!r}: min is {low} and max is {high}; no value is within", array=name)
    if default is not None:
        within(found, default, f"parameter {name!r}: default")
    return limits[0], limits[1]


def within(parameter: Parameter, value: Any, what: str) -> Any:
    """Return a value of a parameter; refuse one that is out of its bounds."""
    if parameter.min is not None or parameter.max is not None:
        least, most = parameter.bounds
        if not least <= value <= most:
            raise DeclarationError(f"{what} is from {least} to {most} (got {value})", array=parameter.name)
    return value


def value_at(value: Any, value_of: Callable[[Parameter], Any]) -> int:
    """Return an integer, or the value of a parameter or an expression for values of its parameters."""
    if isinstance(value, Expression):
        return value.at(value_of)
    return int(value_of(value) if isinstance(value, Parameter) else value)


def with_other(value: Any, by: Callable[[Parameter], Any]) -> Any:
    """Return an integer as it is, and of a parameter or an expression what it is with others in place of its parameters."""
    if isinstance(value, Expression):
        return value.replaced(by)
    return by(value) if isinstance(value, Parameter) else value


def if_known(
    at: Callable[[Callable[[Parameter], Any]], T], terms: Iterable[Parameter], value_of: Callable[[Parameter], Any]
) -> T | None:
    """Return what `at` returns for values of parameters; None where one is None, or something divides by zero."""
    values = {term: value_of(term) for term in terms}
    if any(value is None for value in values.values()):
        return None
    try:
        return at(values.__getitem__)
    except DeclarationError:
        return None


def terms_of(value: Any) -> tuple[Parameter, ...]:
    """Return the parameters that a value depends on: those of an expression, or the parameter itself."""
    return (value.terms or (value,)) if isinstance(value, Parameter) else ()


def _made(op: str, *given: Any) -> Any:
    """Return the value of an operation: an int of ints, else an expression."""
    operands = tuple(_operand(each, op) for each in given)
    operation = _OPERATIONS[op, len(operands)]
    if op in ("//", "%", "ceil_div") and operands[-1] == 0 and type(operands[-1]) is int:
        raise DeclarationError(f"{_spelled(op, operands)} divides by zero")
    if all(type(operand) is int for operand in operands):
        return operation.compute(*operands)
    if op in ("+", "-") and len(operands) == 2 and type(operands[1]) is int:
        base, total = _apart(operands[0], operands[1] if op == "+" else -operands[1])
        if total == 0 and isinstance(base, Expression):
            return base
        op, operands = "-" if total < 0 else "+", (base, abs(total))
        operation = _OPERATIONS[op, 2]
    text, depth = _spelled(op, operands), _depth(operands)
    if len(text) > _MOST_TEXT or depth > _MOST_DEPTH:
        raise DeclarationError(
            f"expression {text[:40]}... has {len(text)} characters and {depth} operations inside each other; at most {_MOST_TEXT}"
            f" and {_MOST_DEPTH} are taken: compute a part of it in Python, and give that as a parameter"
        )
    made = Expression(text, _INT)
    least, most = operation.range(*(each.bounds if isinstance(each, Parameter) else (each, each) for each in operands))
    terms = tuple(dict.fromkeys(term for operand in operands for term in terms_of(operand)))
    fields = {"op": op, "operands": operands, "terms": terms, "min": least, "max": most}
    made.__dict__.update(fields)  # a frozen dataclass: this is its only construction
    made.__dict__["default"] = made.default_at(lambda parameter: parameter.default)
    return made


def _apart(value: Any, more: int) -> tuple[Any, int]:
    """Return what a value adds a constant to, and that constant with another one added."""
    if isinstance(value, Expression) and value.op in ("+", "-") and len(value.operands) == 2:
        base, constant = value.operands
        if isinstance(constant, int):
            return base, more + (constant if value.op == "+" else -constant)
    return value, more


def _expression(op: str, *given: Any) -> Expression:
    """Return the value of an operation on at least one parameter."""
    made: Expression = _made(op, *given)
    return made


def _operand(value: Any, op: str) -> int | Parameter:
    """Return an operand; refuse what is no integer and no scalar integer parameter."""
    if isinstance(value, Parameter):
        if value.shape or value.dtype.kind not in "iub":
            raise DeclarationError(f"expressions are of scalar integer parameters; {op!r} got {value!r}", array=value.name)
        return value
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    raise DeclarationError(f"expressions are of integers and scalar integer parameters; {op!r} got {value!r}")


def _depth(operands: tuple[Any, ...]) -> int:
    return 1 + max(_depth(each.operands) if isinstance(each, Expression) else 0 for each in operands)


def _spelled(op: str, operands: tuple[Any, ...], name_of: Callable[[Parameter], str] | None = None, prefix: str = "") -> str:
    """Return the text of an operation, with the parentheses that it needs."""
    level = _OPERATIONS[op, len(operands)].level

    def text(operand: int | Parameter, least: int = 0) -> str:
        """Return the text of an operand, in parentheses if its operation binds less tightly than `least`."""
        own = _FUNCTION
        if isinstance(operand, Expression):
            own = _OPERATIONS[operand.op, len(operand.operands)].level
            found = operand.name if name_of is None else operand.spelled(name_of, prefix)
        elif isinstance(operand, Parameter):
            found = operand.name if name_of is None else name_of(operand)
        else:
            own, found = _OPERATIONS["-", 1].level if operand < 0 else own, str(operand)
        # Python reads two comparisons in a row as one of three, so the left one has parentheses too.
        return f"({found})" if own < least or own == least == _COMPARISON else found

    if level == _FUNCTION:
        return f"{prefix}{op}({', '.join(map(text, operands))})"
    if len(operands) == 1:
        return f"-{text(operands[0], level)}"
    left, right = operands
    return f"{text(left, level)} {op} {text(right, level + 1)}"


# -- reading ---------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"\s*(?:(\d+)(?!\w)|([^\W\d]\w*)|(//|<=|>=|[-+*%<>(),]))")


def read_expression(text: str, find: Callable[[str], Parameter]) -> Any:
    """Return the expression of a text, as `Expression.name` has it; `find` returns a parameter by its name.

    The grammar is that of Python's integers, names, ``+ - * // % < <= > >=``, parentheses and calls of `FUNCTIONS`.

    Raises
    ------
    DeclarationError
        If the text is none, or too long or too deep.
    """
    if len(text) > _MOST_TEXT:
        raise DeclarationError(f"expression {text[:40]}... has {len(text)} characters, at most {_MOST_TEXT} are taken")
    return _Reader(text, find).read()


class _Reader:
    """Reads the text of one expression."""

    def __init__(self, text: str, find: Callable[[str], Parameter]) -> None:
        self._text, self._find, self._depth = text, find, 0
        self._tokens = [*self._split(), ""]
        self._at = 0

    def read(self) -> Any:
        value = self._binary(_COMPARISON)
        if self._tokens[self._at]:
            raise self._fault()
        return value

    def _split(self) -> Iterator[str]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise DeclarationError(f"{self._text[:60]!r} is no expression: nothing is known of {self._text[at : at + 10]!r}")
            yield found.group(found.lastindex or 0)
            at = found.end()

    def _fault(self) -> DeclarationError:
        return DeclarationError(f"{self._text[:60]!r} is no expression: unexpected {self._tokens[self._at] or 'end'!r}")

    def _take(self, token: str) -> None:
        if self._tokens[self._at] != token:
            raise self._fault()
        self._at += 1

    def _binary(self, level: int) -> Any:
        if level == _OPERATIONS["-", 1].level:
            return self._unary()
        left = self._binary(level + 1)
        while (found := _OPERATIONS.get((op := self._tokens[self._at], 2))) is not None and found.level == level:
            self._at += 1
            left = _made(op, left, self._binary(level + 1))
            if level == _COMPARISON:
                break
        return left

    def _unary(self) -> Any:
        token = self._tokens[self._at]
        self._at += 1
        self._depth += 1
        if self._depth > 2 * _MOST_DEPTH:
            raise DeclarationError(f"expression {self._text[:40]}... is nested too deeply")
        try:
            if token == "-":
                return _made("-", self._unary())
            if token == "(":
                value = self._binary(_COMPARISON)
                self._take(")")
                return value
            if token in FUNCTIONS and self._tokens[self._at] == "(":
                self._at += 1
                first = self._binary(_COMPARISON)
                self._take(",")
                second = self._binary(_COMPARISON)
                self._take(")")
                return _made(token, first, second)
        finally:
            self._depth -= 1
        if token.isdigit():
            return int(token)
        if token.isidentifier():
            return self._find(token)
        self._at -= 1
        raise self._fault()
