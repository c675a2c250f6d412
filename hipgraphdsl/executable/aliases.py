"""The memory that the nodes of one Executable access, and under which names.

An array parameter may be bound to memory that nodes also access under another name. The graph's edges do not cover such aliases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from ..arrays import AllocArray, Array, Parameter, Region
from ..backends import Environment
from ..backends.environment import Owned, named
from ..checks.levels import CheckedLevel
from ..checks.races import racing_pairs
from ..errors import DeclarationError
from ..nodes import Node
from ..nodes.workflow import Workflow


class Use(NamedTuple):
    """One access of one node; `region` is in bytes of the root."""

    node: Node
    name: str
    mode: str
    region: Region


class _Level:
    """One workflow of the Executable: which of its nodes access each root array, directly or through a child."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.uses: dict[Owned, list[tuple[int, Use]]] = {}

    @cached_property
    def checked(self) -> CheckedLevel:
        """The workflow as its checks see it."""
        return CheckedLevel(self.workflow)


class _Places:
    """The address ranges of arrays, sorted, to find those that overlap an interval."""

    def __init__(self, places: Mapping[Owned, int]) -> None:
        self._roots = list(places)
        self._starts = np.fromiter(places.values(), np.uint64, len(places))
        self._stops = self._starts + np.fromiter((root.nbytes for _, root in places), np.uint64, len(places))

    def meeting(self, start: int, stop: int) -> dict[Owned, int]:
        met = np.flatnonzero((self._starts < stop) & (self._stops > start))
        return {self._roots[k]: int(self._starts[k]) for k in met}


class Aliases:
    """What nodes access, by array and parameter, with names resolved in one Executable; computed at first access.

    Only the workflow's edges count as order: backends and lanes may add more order, but need not.
    """

    def __init__(self, scope: Environment, workflow: Workflow) -> None:
        self._scope = scope
        self._workflow = workflow

    @cached_property
    def _arrays(self) -> _Places:
        return _Places(
            {
                (inner, root): address
                for inner in self._scope.all_inside()
                for root, address in inner.addresses.items()
                if isinstance(root, Array) and not isinstance(root, AllocArray)  # launches allocate these
            }
        )

    @cached_property
    def _levels(self) -> list[_Level]:
        """Every workflow with its nodes' accesses, the outermost first; computed only when memory has to be checked."""
        levels: list[_Level] = []
        self._add(self._scope, self._workflow, levels)
        return levels

    def _add(self, scope: Environment, workflow: Workflow, levels: list[_Level]) -> _Level:
        level = _Level(workflow)
        levels.append(level)
        for i, node in enumerate(workflow.nodes):
            for name, document, _ in node.held:
                for root, uses in self._add(scope.children[name], document, levels).uses.items():
                    level.uses.setdefault(root, []).extend((i, use) for _, use in uses)
            for access in node.own_accesses:
                owner, root, offset = scope.behind(access.view.root)
                use = Use(node, scope.prefix + node.name, access.mode, access.bytes.shifted(offset))
                level.uses.setdefault((owner, root), []).append((i, use))
        return level

    def by_root(self) -> Iterator[tuple[Owned, list[Use]]]:
        """Yield each array and parameter that nodes access, with its uses."""
        return ((root, [use for _, use in uses]) for root, uses in self._levels[0].uses.items())

    def require_ordered(self, given: Iterable[Owned], bound: Mapping[Owned, int]) -> None:
        """Refuse memory of given parameters that unordered nodes also access under another name, one of them writing.

        `bound` has the addresses of all array parameters, including the given ones.
        """
        parameters = _Places(bound)
        for root in given:
            start, stop = bound[root], bound[root] + root[1].nbytes
            met = {**self._arrays.meeting(start, stop), **parameters.meeting(start, stop)}
            if len(met) > 1:
                for level in self._levels:
                    self._judge(level, root, met)

    def _judge(self, level: _Level, root: Owned, met: Mapping[Owned, int]) -> None:
        """Refuse unordered nodes of one workflow that access the same bytes through a parameter and through another name."""
        touched: dict[int, list[tuple[Owned, Use, Region]]] = {}
        for other, start in met.items():
            for i, use in level.uses.get(other, ()):
                touched.setdefault(i, []).append((other, use, use.region.shifted(start)))
        if root not in level.uses:
            return
        for i, found in touched.items():
            _require_no_copy_onto_itself(level.workflow.nodes[i], root, found)
        given = {i: [(use.mode, None, region) for _, use, region in found] for i, found in touched.items()}
        nodes = level.workflow.nodes
        for i, j in map(sorted, racing_pairs(level.checked, given)[0]):
            for (one, first, here), (two, second, there) in product(touched[i], touched[j]):
                if one == two or root not in (one, two) or first.mode == second.mode == "read" or not here.overlaps(there):
                    continue
                if not any("HG203" in (use.node.ignore or ()) for use in (first, second)):
                    other = two if one == root else one
                    raise DeclarationError(
                        f"parameter {named(root)} is bound to memory that is {_kind(other)} {named(other)} too: {first.name!r}"
                        f" {_verb(first)} {named(one)} {first.region} and {second.name!r} {_verb(second)} {named(two)}"
                        f" {second.region}, and no path orders them; bind other memory, or add after=[{nodes[i].name!r}] to"
                        f" {nodes[j].name!r}",
                        node=second.name,
                        array=root[0].prefix + root[1].name,
                    )


def _require_no_copy_onto_itself(node: Node, root: Owned, touched: Sequence[tuple[Owned, Use, Region]]) -> None:
    """Refuse a copy whose source and destination overlap because of what a parameter is bound to; HG405 of `check`."""
    if not node.copied or "HG405" in (node.ignore or ()):
        return
    for (one, first, here), (two, second, there) in combinations(touched, 2):
        if one != two and root in (one, two) and "write" in (first.mode, second.mode) and here.overlaps(there):
            other = two if one == root else one
            raise DeclarationError(
                f"parameter {named(root)} is bound to memory that is {_kind(other)} {named(other)} too: {first.name!r} copies"
                f" between {named(one)} {first.region} and {named(two)} {second.region}, which overlap; bind other memory",
                node=first.name,
                array=root[0].prefix + root[1].name,
            )


def _kind(root: Owned) -> str:
    return "parameter" if isinstance(root[1], Parameter) else "array"


def _verb(use: Use) -> str:
    return "reads" if use.mode == "read" else "writes"
