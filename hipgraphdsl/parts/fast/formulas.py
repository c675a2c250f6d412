"""What the compiled launcher writes into a kernel's launch: values of parameters, and formulas of them (formulas.h)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ...arrays import Access, Expression, MovingView, Parameter, range_of
from ...backends import Environment
from ...backends.environment import Owned
from ...kernels import KernelParameter, Signature
from ...nodes.facets import KernelLaunch

_LOAD, _PUSH, _WITHIN = range(3)
_OPERATIONS: Final = {
    key: code
    for code, key in enumerate(
        [("+", 2), ("-", 2), ("*", 2), ("//", 2), ("%", 2), ("ceil_div", 2), ("<", 2), ("<=", 2), (">", 2), (">=", 2),
         ("minimum", 2), ("maximum", 2), ("-", 1)],
        _WITHIN + 1,
    )
}  # fmt: skip
"""The codes of operations, by sign or name and number of operands, in the order of formulas.h."""
_MOST_DEPTH: Final = 80  # kMostDepth
_INTEGERS: Final = frozenset("?bBhHiIqQ")  # struct codes
_INT64: Final = -(2**63), 2**63 - 1
_KINDS: Final = {**{char: char for char in "?bBhHiIqQfd"}, "l": "q", "L": "Q"}  # NumPy's codes of 64 bits are C's long


class NoFormula(Exception):  # not an error: the step is left to Python
    """The launcher cannot compute something."""


def kind_of_slot(parameter: Parameter) -> str | None:
    """Return the struct code of a scalar parameter that the launcher can write; None for others."""
    return _KINDS.get(parameter.dtype.char) if parameter.dtype.kind in "biuf" and not parameter.shape else None


class Formula:
    """A postfix program of integers; `numbers` has the launcher's numbers of parameters."""

    def __init__(self, numbers: Mapping[Owned, int]) -> None:
        self._numbers = numbers
        self._words: list[int] = []
        self._depth = self._most = 0
        self.used: dict[Owned, None] = {}
        """The parameters in it."""

    def packed(self) -> bytes:
        """Return the words of the program."""
        if self._most > _MOST_DEPTH or not all(_INT64[0] <= word <= _INT64[1] for word in self._words):
            raise NoFormula
        return struct.pack(f"={len(self._words)}q", *self._words)

    def push(self, value: Any, scope: Environment) -> None:
        """Push an integer, or what a parameter or an expression of a scope has come to."""
        if isinstance(value, Expression):
            for operand in value.operands:
                self.push(operand, scope)
            self._do(value.op, len(value.operands))
        elif isinstance(value, Parameter):
            at, found, _ = scope.resolve(value)
            if not isinstance(found, Parameter):
                self._push(int(scope.value(value)))
            elif found.terms and value.dtype.kind in "iub":
                self.push(found, at)
                self.require(*range_of(value.dtype))
            elif (at, found) in self._numbers:
                self.used[at, found] = None
                self._push(self._numbers[at, found], _LOAD)
            else:
                raise NoFormula
        else:
            self._push(int(value))

    def push_address(self, view: MovingView, scope: Environment, base: int) -> None:
        """Push the address of the first element of a view of an array that begins at `base`."""
        step = view.dtype.itemsize
        terms = []
        for extent, selector in zip(view.root.shape[::-1], view.chosen[::-1]):
            start = selector.start if isinstance(selector, slice) else selector
            if isinstance(start, Parameter):
                terms.append((start, step))
            else:
                base += start * step
            step *= extent
        self._push(base)
        for start, step in terms:
            self.push(start, scope)
            self._push(step)
            self._do("*", 2)
            self._do("+", 2)

    def push_product(self, values: Iterable[Any], scope: Environment) -> None:
        """Push the product of integers, parameters or expressions."""
        self._push(1)
        for value in values:
            self.push(value, scope)
            self._do("*", 2)

    def require(self, least: int, most: int) -> None:
        """Have no result if what is on top is out of this range."""
        self._words += _WITHIN, max(least, _INT64[0]), min(most, _INT64[1])

    def require_aligned(self, alignment: int) -> None:
        """Have no result if what is on top is no multiple of this; it is gone after that."""
        self._push(alignment)
        self._do("%", 2)
        self.require(0, 0)

    def _push(self, word: int, code: int = _PUSH) -> None:
        self._words += code, word
        self._depth += 1
        self._most = max(self._most, self._depth)

    def _do(self, op: str, operands: int) -> None:
        self._words.append(_OPERATIONS[op, operands])
        self._depth -= operands - 1


class Place(NamedTuple):
    """Where values of parameters stand in the launch parameters of a kernel."""

    at: int
    """The number of an argument; after the last one those of the axes of grid and block."""
    owners: tuple[Owned, ...]
    """The parameters that decide it."""
    computed: tuple[str, int, bytes] | tuple[()] = ()
    """Struct code, size and formula; empty where the parameter itself stands."""


def places_of(
    node: KernelLaunch, signature: Signature, scope: Environment, device: int, numbers: Mapping[Owned, int]
) -> list[Place]:
    """Return where parameters stand in a launch, without those that stand where the launcher cannot write, too.

    Raises
    ------
    NoFormula
        If the launcher cannot compute something: a formula has several parameters, so it sets those of all formulas or none.
    """
    places, others = list[Place](), set[Owned]()
    for k, (given, taker) in enumerate(zip(node.args, signature.parameters)):
        arg = given.view if isinstance(given, Access) else given
        if isinstance(arg, MovingView):
            places.append(_computed(k, "Q", _address(arg, taker, scope, device, numbers)))
        elif isinstance(arg, Parameter) and not arg.shape:
            at, found, _ = scope.resolve(arg)
            if not isinstance(found, Parameter):
                continue
            if arg.terms or found.terms:
                formula = Formula(numbers)
                formula.push(arg, scope)
                places.append(_computed(k, taker.format, formula))
            elif (at, found) in numbers and taker.format == kind_of_slot(found):
                places.append(Place(k, ((at, found),)))
            else:
                others.add((at, found))
    for k, axis in enumerate((*node.grid, *node.block)):
        if isinstance(axis, Parameter):
            formula = Formula(numbers)
            if k >= len(node.grid):
                formula.push_product(node.block, scope)
                formula.require(1, 1024)
            formula.push(axis, scope)
            formula.require(1, 2**32 - 1)  # a grid of 0 disables the node
            places.append(_computed(len(node.args) + k, "I", formula))
    return [place for place in places if place.owners and others.isdisjoint(place.owners)]


def _address(view: MovingView, taker: KernelParameter, scope: Environment, device: int, numbers: Mapping[Owned, int]) -> Formula:
    """Return the formula of a view's address; as `backends.resolve`, with no result where a vector type is misaligned."""
    if scope.is_given(view):  # a launch may give it other memory
        raise NoFormula
    formula, base = Formula(numbers), scope.address(view, device) - scope.here(view).offset_bytes
    if taker.lanes > 1:
        formula.push_address(view, scope, base)
        formula.require_aligned(taker.target_align)
    formula.push_address(view, scope, base)
    return formula


def _computed(at: int, kind: str, formula: Formula) -> Place:
    if kind not in _INTEGERS:
        raise NoFormula
    return Place(at, tuple(formula.used), (kind, struct.calcsize("=" + kind), formula.packed()))
