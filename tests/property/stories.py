"""Random lives of Executables that share memory: their programs, and what happens to them; it prints as what one would type.

What a story does, and what it must do to NumPy arrays, is in `lives`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import hypothesis.strategies as st
from property.programs import DEVICE, FAULT, HOST, Step, Temporary, steps
from property.strategies import booleans, integers, permutations, sampled_from, sets

import hipgraphdsl as hg

LONG = {"w": "device", "t": "host"}
"""Arrays of twice the rows; steps use the first half, and parameters any rows."""
DEFAULTS = {"m": "device", "n": "device", "x": "host", "y": "host"}
"""Arrays that steps reach only as parameters."""
NUMBERS = ("p", "r", "s", "u")
"""Scalar parameters; all but the first are for arguments of kernels alone, as the compiled path sets them."""
MEMORY = ("q", "o")
"""Array parameters: `o` is for functions on the host too."""
EQUAL = "as it is"
"""The value that a scalar parameter has already, which a launch gives again."""
NUMBERED = ("mix", "set", "call", "eager")
MOST_LIVES = 3

WAYS = ("own", "own", "own", "own", "own", "stream", "stream object", "other's stream", "captured", "profile")
"""On what a launch is put."""
FORMS = ("declared", "json", "pickle", "networkx")
"""What a graph has been before it is compiled."""
ACTIONS = (
    "launch", "launch", "launch", "launch", "update", "update", "clone", "again", "close", "set", "enable", "disable", "write",
)  # fmt: skip
CHANGES = ("update", "update", "clone")
"""What may follow a launch of the same Executable."""

Part = Step | Temporary


def _arrays(part: Part) -> tuple[str, str]:
    """Return the names of what a part writes and reads."""
    return (part.to, part.origin) if isinstance(part, Temporary) else (part.to[0], part.origin[0])


Given = tuple[Any, ...]
"""Memory for an array parameter.

``("name", x)`` and ``("declared", x)`` are an array of the graph, ``("object", life, x, row)`` rows of an array of any Executable
from that row on, ``("left", n, x, row)`` the same of memory that was taken before its Executable was closed or rebuilt, and
``("user", n)`` an array of the user.
"""
Action = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """Nodes ``n0``, ``n1``, ..., the parameters that stand for their numbers, and the parameters' defaults."""

    parts: tuple[Part, ...]
    numbers: tuple[str, ...]
    defaults: dict[str, Any]
    in_line: bool
    """Whether each node follows the one before: then all memory may be bound to all parameters."""

    @property
    def used(self) -> tuple[str, ...]:
        """The parameters that nodes use."""
        names = {*self.numbers, *(name for part in self.parts for name in _arrays(part))}
        return tuple(name for name in (*NUMBERS, *MEMORY, "v") if name in names)

    @property
    def of_kernels(self) -> tuple[str, ...]:
        """The parameters that only arguments of kernels use."""
        others = {name for part, name in zip(self.parts, self.numbers) if getattr(part, "kind", "") != "mix"}
        return tuple(name for name in self.used if name in NUMBERS and name not in others)


@dataclass(frozen=True)
class Story:
    program: Program
    options: dict[str, Any]
    form: str
    compiled: bool
    """Whether launches may take the compiled path."""
    devices: tuple[int, ...]
    """Devices of the first device arrays, which all of them may reach; none where there is one device."""
    actions: list[Action]

    def __repr__(self) -> str:
        program = self.program
        numbered = enumerate(zip(program.parts, program.numbers))
        lines = [f"n{i} = {part!r} by {number or 'itself'}" for i, (part, number) in numbered]
        head = f"options={self.options} form={self.form!r} compiled={self.compiled} devices={self.devices}"
        defaults = f"in_line={program.in_line} defaults={program.defaults}"
        return "\n        ".join(["", head, defaults, *lines, *map(repr, self.actions)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def parts(draw: Any, kind: str | None = None) -> Part:
    """Return a node, or those around a temporary, with array parameters among what they use."""
    if kind == "if" or (kind is None and not draw(integers(0, 7))):
        to, origin = draw(permutations(DEVICE))[:2]
        inside = kind or draw(sampled_from(("", "child", "arrays", "default", "default", "if")))
        origin = "q" if inside == "default" else draw(sampled_from((origin, "q")))  # which launches give other memory
        return Temporary(to, origin, draw(integers(-9, 9)), inside, draw(booleans()))
    step: Step = draw(_steps if kind is None else steps(kind, (*DEVICE, "w"), (*HOST, "t")))
    place = draw(sampled_from(("", "", "to", "origin", "copied")))
    if not place:
        return step
    if place == "copied":
        return replace(step, origin=("v", step.origin[1]))
    name = "o" if step.kind in ("call", "eager") else draw(sampled_from(MEMORY))
    return replace(step, to=(name, step.to[1])) if place == "to" else replace(step, origin=(name, step.origin[1]))


_kinds = ("mix", "mix", "mix", "mix", "copy", "set", "call", "call", "eager", "eager", "issue")
_steps = sampled_from(_kinds).flatmap(cache(lambda kind: steps(kind, (*DEVICE, "w"), (*HOST, "t"))))
_by = {"mix": ("r", "s", "u", "r", "s", "u", "p", ""), "call": ("p", "p", "p", ""), "eager": ("p", ""), "set": ("p", "")}
"""Parameters for the numbers of each kind."""
_small = integers(0, 2)
_number = sampled_from((EQUAL, EQUAL, EQUAL, 0, 1, 2, 7))
_ways = sampled_from(("name", "declared"))
_names = {"q": sampled_from((*DEVICE, *HOST, "m", "n")), "o": sampled_from((*HOST, "x", "y"))}
_defaults: dict[str, Any] = {
    **dict.fromkeys((*NUMBERS, "v"), _small),
    "q": st.tuples(_ways, sampled_from(("m", "n"))),
    "o": st.tuples(_ways, sampled_from(("x", "y"))),
}
_later: dict[str, Any] = {
    **_defaults,
    **dict.fromkeys(NUMBERS, integers(3, 9)),
    **{name: st.tuples(_ways, _names[name]) for name in MEMORY},
}


_parts = cache(parts)
_behind = (("call", "call", "mix"), ("eager", "if"), ("mix", "copy", "set"))
"""Work that may fail, what the host does or decides behind it, and work behind that, which then must not start."""


def _kinds_of_parts(draw: Any, shape: str, most: int) -> list[str | None]:
    """Return the kinds of a program's parts; None for any."""
    if shape != "behind":
        return ["mix"] * draw(integers(2, most)) if shape == "kernels" else [None] * draw(integers(1, most))
    kinds: list[str | None] = [draw(sampled_from(kinds)) for kinds in _behind]
    for _ in range(draw(integers(0, most - len(kinds)))):
        kinds.insert(draw(integers(0, len(kinds))), None)
    return kinds


@st.composite
def programs(draw: Any, most: int) -> Program:
    shape = draw(sampled_from(("any", "behind", "kernels")))  # compiled code gives values to kernels alone
    found = tuple(draw(_parts(kind)) for kind in _kinds_of_parts(draw, shape, most))
    numbers = tuple(draw(sampled_from(_by.get(getattr(part, "kind", ""), ("",)))) for part in found)
    defaults = {name: draw(default) for name, default in _defaults.items()}
    return Program(found, numbers, defaults, in_line=shape == "behind" or bool(draw(integers(0, 2))))


def _given(draw: Any, name: str) -> Given:
    """Return memory for an array parameter; `o` takes memory that the host may use."""
    kind = draw(sampled_from(("name", "declared", "object", "object", "object", "left", "user")))
    if kind in ("name", "declared"):
        return kind, draw(_names[name])
    if kind == "user":
        return kind, draw(integers(0, 1))
    array = draw(sampled_from((*HOST, "t", "t") if name == "o" else (*DEVICE, *HOST, "w", "t", "w", "t")))
    return kind, draw(integers(0, MOST_LIVES - 1)), array, draw(integers(0, 4)) if array in LONG else 0


def _chosen(draw: Any, program: Program, *sources: tuple[str, ...]) -> list[str]:
    """Return the names of some parameters, more often than not of those that nodes use."""
    names = draw(sampled_from((*sources, *(program.used,) * 2 * bool(program.used))))
    return sorted(draw(sets(sampled_from(names), min_size=1, max_size=3)))


def _values(draw: Any, program: Program) -> dict[str, Any]:
    """Return values for some parameters of a launch, or none."""
    if not draw(integers(0, 3)):
        return {}
    chosen = _chosen(draw, program, NUMBERS[1:], NUMBERS, (*NUMBERS, *MEMORY, "v"))
    return {name: _given(draw, name) if name in MEMORY else draw(_small if name == "v" else _number) for name in chosen}


def _launches(draw: Any, program: Program, *, may_fail: bool) -> list[dict[str, Any]]:
    """Return the values of launches; some give again what the one before has given, and one value that is there already.

    Some fail, most often where much is behind, and the next one gives another number then.
    """
    found: list[dict[str, Any]] = []
    numbers = tuple(name for name in program.used if name in NUMBERS) or NUMBERS
    first = next(filter(None, program.numbers), numbers[0])
    ways = ("fault", "fault", "any", "any", "more") if may_fail else ("any", "any", "more")
    for _ in range(draw(sampled_from((2, 1, 3, 4)))):
        before = found[-1] if found else {}
        how = draw(sampled_from(ways))
        if FAULT in before.values():
            found.append({name: draw(_small) for name, value in before.items() if value == FAULT})
        elif how == "fault":
            found.append({draw(sampled_from((first, *numbers))): FAULT})
        else:
            found.append({**before, draw(sampled_from(numbers)): EQUAL} if how == "more" else _values(draw, program))
    return found


def _in_turn(draw: Any, program: Program) -> list[dict[str, Any]]:
    """Return the values of launches that each give another parameter of kernels: the first by Python, the others compiled."""
    names = draw(permutations((*program.of_kernels, *NUMBERS[: len(program.of_kernels) < 2])))
    return [{name: draw(_number)} for name in names]


@st.composite
def _actions(draw: Any, program: Program, kinds: tuple[str, ...] = ACTIONS, life: int | None = None, *given: str) -> Action:
    """Return an action of one of the kinds; an update changes, among others, defaults of parameters that were `given` values."""
    what = draw(sampled_from(kinds))
    life, i = draw(integers(0, MOST_LIVES - 1)) if life is None else life, draw(integers(0, len(program.parts) - 1))
    part = program.parts[i]
    if what == "launch":
        way = draw(sampled_from(WAYS))
        in_turn = way == "own" and program.of_kernels and draw(sampled_from((True, False)))
        return what, life, way, _in_turn(draw, program) if in_turn else _launches(draw, program, may_fail=way == "own")
    if what == "update":
        how = draw(sampled_from(("defaults", "defaults", "fields", "kinds"))) if isinstance(part, Step) else "defaults"
        changed = {} if how == "defaults" else {i: draw(parts(part.kind) if how == "fields" else _steps)}
        chosen = _chosen(draw, program, NUMBERS, (*NUMBERS, *MEMORY, "v"))
        names = given if given and draw(sampled_from((True, True, False))) else chosen
        defaults = {name: draw(_later[name]) for name in names}
        return what, life, changed, defaults, draw(sampled_from(FORMS)), how == "kinds" or draw(booleans())
    if what == "set":
        return (what, life, i, draw(parts(part.kind))) if isinstance(part, Step) else ("clone", life)
    if what in ("enable", "disable"):
        return (what, life, i) if isinstance(part, Step) else ("clone", life)
    if what == "write":
        return what, life, draw(sampled_from((*DEVICE, *HOST, *LONG))), draw(_small)
    return what, life


def _happening(draw: Any, program: Program, most: int) -> list[Action]:
    """Return actions; what a launch was given, and what it wrote, must survive a change that often follows it."""
    found = [draw(_actions(program))]
    for _ in range(draw(integers(1, most - 1))):
        before, *rest = found[-1]
        if before == "launch" and draw(sampled_from((True, False))):
            given = sorted({name for values in rest[2] for name in values})
            found.append(draw(_actions(program, CHANGES, rest[0], *given)))
        else:
            found.append(draw(_actions(program)))
    return found


@st.composite
def stories(draw: Any, most_parts: int, most_actions: int) -> Story:
    program = draw(programs(most_parts))
    plan = hg.PlanOptions(
        lanes=draw(sampled_from(("auto", 1, None))), join=draw(booleans()), pack=draw(booleans()),
        batch=draw(sampled_from(("auto", True, False))),
    )  # fmt: skip
    options = {"plan": plan, "debug": hg.DebugOptions(watch=not draw(integers(0, 4)))}
    happening = _happening(draw, program, most_actions)
    devices = draw(sampled_from(((), (), (), (0, 1, 0), (1, 1, 0))))
    return Story(program, options, draw(sampled_from(FORMS)), draw(sampled_from((True, True, True, False))), devices, happening)
