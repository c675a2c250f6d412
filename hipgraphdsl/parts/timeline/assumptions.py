"""Assumptions of a simulation: engines, durations of nodes, and values of conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ...arrays import as_dict, as_int, int_from
from ...arrays.coercion import as_time
from ...errors import DeclarationError, listed
from ...nodes import Node, all_kinds
from ...nodes.facets import Branch
from ...nodes.workflow import Level, Workflow

Durations = Mapping[str, float] | Callable[[Node], float]

DIRECTIONS: Final = ("H2D", "D2H", "D2D", "H2H")
"""Directions of copies, which are valid keys of durations."""

ENGINES = (*DIRECTIONS, "copy", "kernel", "memset", "host")
"""Engines that `simulate` knows. If ``"copy"`` is given, it replaces ``"H2D"`` and ``"D2H"`` unless they are given too."""

LOOK: Final = "condition"
"""The key of durations for the time that it takes to read a condition."""

_DEFAULT_ENGINES = {"H2D": 1, "D2H": 1, "kernel": 1}
_TAKEN_BY = {"H2D": "copy", "D2H": "copy", "D2D": "kernel", "memset": "kernel"}  # fallback if an engine has no limit; else "host"


def engine_limits(engines: Mapping[str, int] | None) -> dict[str, int]:
    """Return the limit of each engine that has one; raise a DeclarationError for unknown engines and invalid counts."""
    limits = dict(_DEFAULT_ENGINES)
    given = as_dict(engines, "simulate: engines")
    if "copy" in given:
        for direction in ("H2D", "D2H"):
            del limits[direction]
    for name, count in given.items():
        if name not in ENGINES:
            raise DeclarationError(f"simulate: there is no engine {name!r}; engines are {', '.join(map(repr, ENGINES))}")
        limits[name] = int_from(1, count, f"simulate: engines[{name!r}] is how many there are, an int from 1")
    return limits


def placed_on(engine: str, limits: Mapping[str, int]) -> str:
    """Return the engine that does a node's work: its own if that has a limit, else the fallback."""
    return engine if engine in limits or not engine else _TAKEN_BY.get(engine, "host")


class Times:
    """Durations of nodes by full name."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._found: dict[str, float | None] = {}

    def of(self, name: str, node: Node) -> float | None:
        """Return the duration of a node; None if it has none."""
        if name not in self._found:
            self._found[name] = _duration(name, node, self._durations)
        return self._found[name]

    def named(self, name: str, node: Node) -> float | None:
        """Return the duration that is given by a node's own name; None if there is none."""
        return self.of(name, node) if isinstance(self._durations, Mapping) and name in self._durations else None

    def of_look(self) -> float:
        """Return the duration of reading a condition."""
        given = self._durations.get(LOOK, 0.0) if isinstance(self._durations, Mapping) else 0.0
        return as_time(given, f"simulate: durations[{LOOK!r}]")

    def require_used(self, graph: str, workflows: Sequence[Workflow], conditions: Conditions) -> None:
        """Raise a DeclarationError for keys that match nothing simulated; nodes in bodies that do not run may be keys too."""
        known = {*DIRECTIONS, *all_kinds(), LOOK, *self._found}
        left = [key for key in self._durations if key not in known] if isinstance(self._durations, Mapping) else []
        idle = {name for workflow in workflows for name, _ in _named(Level(workflow)) if conditions.hold(name)} if left else set()
        for key in left:
            if key not in idle:
                raise DeclarationError(
                    f"simulate: durations has {key!r}, which is neither a node of graph {graph!r} nor a kind or direction;"
                    f" directions are {', '.join(map(repr, DIRECTIONS))}, kinds {', '.join(map(repr, all_kinds()))}",
                    node=str(key),
                )


class Runs(NamedTuple):
    """What an expanded conditional node runs: the index of the body and the number of passes, 0 if no body runs."""

    body: int
    passes: int


class Conditions:
    """What conditional nodes run, by full name; nodes that have an entry are expanded.

    A value is for ``while`` the number of times that the body runs, for ``switch`` the index of the body, for ``if`` whether the
    first body runs; it is the same in each pass of an enclosing loop. A DeclarationError is raised if a name is not that of a
    conditional node, in the graph or inside children and bodies, or if a value is invalid for the node's mode.
    """

    def __init__(self, given: Mapping[str, int | bool] | None, graph: str, workflows: Sequence[Workflow]) -> None:
        values = as_dict(given, "simulate: conditions")
        found = (entry for workflow in workflows for entry in _named(Level(workflow))) if values else ()
        nodes = {name: (node.branch, len(node.held)) for name, node in found if node.branch is not None}
        for name in values:
            if name not in nodes:
                raise DeclarationError(
                    f"simulate: conditions has {name!r}, which is no conditional node of graph {graph!r}; its conditional nodes"
                    f" are {listed(nodes)}",
                    node=str(name),
                )
        self._runs = {name: _runs(name, *nodes[name], value) for name, value in values.items()}

    def of(self, name: str) -> Runs | None:
        """Return what a conditional node runs; None if it is not expanded."""
        return self._runs.get(name)

    def hold(self, name: str) -> bool:
        """Return whether a node is inside an expanded conditional node, in a body that runs or in another."""
        return any(name.startswith(f"{outer}/") for outer in self._runs)

    def require_none_inside(self, name: str) -> None:
        """Raise a DeclarationError if a condition is given for a node inside `name`, which is not expanded."""
        inside = next((key for key in self._runs if key.startswith(f"{name}/")), None)
        if inside is not None:
            raise DeclarationError(
                f"simulate: conditions has {inside!r}, which is inside {name!r}, and that is one span; leave its duration out,"
                f" and if it is a conditional node give conditions[{name!r}] too",
                node=inside,
            )


def _runs(name: str, node: Branch, bodies: int, value: Any) -> Runs:
    """Return the body and the number of passes for the value of a condition; `bodies` is how many bodies there are."""
    number = int(value) if isinstance(value, (bool, np.bool_)) and node.mode == "if" else as_int(value)
    if node.mode == "while" and number is not None and number >= 0 and number % node.check_every == 0:
        return Runs(0, number)
    if node.mode == "switch" and number is not None and number >= 0:
        return Runs(number, int(number < bodies))
    if node.mode == "if" and number in (0, 1):
        return Runs(1 - number, int(1 - number < bodies))
    every = f"; its body runs {node.check_every} times between two looks at the condition, so give a multiple of that"
    wanted = {
        "while": f"how often the loop's body runs, an int from 0{every if node.check_every > 1 else ''}",
        "switch": "the number of the body that runs, an int from 0; one beyond the last body means none",
        "if": "whether the first body runs, True or False",
    }
    raise DeclarationError(f"simulate: conditions[{name!r}] is {wanted[node.mode]} (got {value!r})", node=name)


def _named(level: Level) -> Iterator[tuple[str, Node]]:
    """Yield all nodes of a level and of nested levels with their full names, except nodes inside collectives."""
    for node in level.workflow.nodes:
        yield level.name(node), node
        for inner in () if node.derives else level.inner(node):
            yield from _named(inner)


def _duration(name: str, node: Node, durations: Durations) -> float | None:
    if isinstance(durations, Mapping):
        key = next((key for key in (name, *node.duration_keys) if key in durations), None)
        if key is not None:
            return as_time(durations[key], f"simulate: durations[{key!r}]", name)
    elif not callable(durations):
        raise DeclarationError(f"simulate: durations is a mapping or a function of a node (got {durations!r})")
    elif (value := durations(node)) is not None:
        return as_time(value, f"simulate: the duration of node {name!r}", name)
    return None if node.work else 0.0


def missing(name: str, node: Node) -> DeclarationError:
    """Return the error for a node without a duration."""
    keys = " or ".join(f"durations[{key!r}]" for key in dict.fromkeys((name, *node.duration_keys)))
    keys += f", or conditions[{name!r}]" if node.branch is not None else ""
    return DeclarationError(f"simulate: node {name!r} ({node.kind}) has no duration; give {keys}", node=name)
