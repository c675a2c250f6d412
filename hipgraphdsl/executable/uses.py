"""What the nodes of one Executable use of its parameters: the steps that depend on each, and what nodes need of its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ..arrays import Array, Need, lacking
from ..backends import Environment
from ..backends.environment import Owned, named
from ..errors import DeclarationError
from ..nodes import Node
from ..nodes.workflow import Workflow
from ..plan.steps import Plan

if TYPE_CHECKING:
    from .aliases import Aliases


def uses_alike(before: Node, after: Node) -> bool:
    """Return whether a node uses the same memory and parameters as one of its kind that it replaces, and is judged alike."""
    if before.kernels != after.kernels or before.parameters != after.parameters or before.ignore != after.ignore:
        return False
    return before.accesses == after.accesses and before.addresses == after.addresses


class Uses:
    """What the nodes of a workflow use, with names resolved in one Executable; computed at first access."""

    def __init__(self, workflow: Workflow, plan: Plan, scope: Environment) -> None:
        self._workflow = workflow
        self._plan = plan
        self.scope = scope
        self.apart: set[tuple[int, ...]] = set()
        """Combinations of addresses, of all array parameters, that were found safe: a cache of `Parameters.require_safe`."""
        self._aliases: tuple[list[Owned], Aliases] | None = None
        """The last result of `aliases`, after the parameters that stood for their defaults then."""

    @cached_property
    def _with_defaults(self) -> list[Owned]:
        return [(scope, parameter) for scope in self.scope.all_inside() for parameter in scope.defaults]

    @property
    def _by_default(self) -> list[Owned]:
        """The parameters that now stand for arrays which a parent binds."""
        return [(scope, parameter) for scope, parameter in self._with_defaults if parameter not in scope.addresses]

    @property
    def aliases(self) -> Aliases:
        """The memory that nodes access, under which names; computed only when memory has to be checked."""
        from .aliases import Aliases

        now = self._by_default
        if self._aliases is None or self._aliases[0] != now:
            self._aliases = now, Aliases(self.scope, self._workflow)
        return self._aliases[1]

    @cached_property
    def _devices(self) -> Mapping[str, Mapping[int, str]]:
        from ..placement import reaching  # only with several devices

        return reaching(self._workflow, self.scope.shared.device)

    def devices_of(self, root: Owned) -> Mapping[int, str]:
        """Return the devices whose code accesses the memory of an array parameter, each with the first such node."""
        behind = [found for found in self._by_default if found[0].behind(found[1])[:2] == root]
        found: dict[int, str] = {}
        for scope, parameter in (root, *behind):
            for device, node in self._devices.get(scope.prefix + parameter.name, {}).items():
                found.setdefault(device, node)
        return found

    # -- parameters ----------------------------------------------------------------------------------------------------

    @cached_property
    def steps_by_parameter(self) -> Mapping[Owned, list[int]]:
        """The steps that depend on each parameter, in ascending order."""
        found: dict[Owned, list[int]] = {}
        for step in self._plan.steps:
            node, holds = step.node, type(step.node).held is not Node.held
            if not (step.path or node.parameters or holds):
                continue  # as most nodes
            scope = self.scope.inside(step.path) if step.path else self.scope
            used: list[Owned] = [*scope.parameters_of(node)]
            if holds:
                used += _parameters_inside(scope, node)
            for root in dict.fromkeys(used):
                found.setdefault(root, []).append(step.index)
        return found

    @cached_property
    def _needs(self) -> Mapping[Owned, tuple[Mapping[Need, str], str]]:
        """What nodes need of the memory that each array parameter stands for, and the prefix of the nodes' names."""
        return {
            (scope, parameter): (level.workflow.needs[parameter], scope.prefix)
            for scope, level in self.scope.levels(self._workflow)
            for parameter in level.workflow.parameters.values()
            if parameter in level.workflow.needs
        }

    def require_usable(self, root: Owned, array: Array) -> None:
        """Refuse an array, bound to an array parameter, that a node which is given the parameter could not be given directly."""
        needs, prefix = self._needs.get(root, ({}, ""))
        for need, who in needs.items():
            if fault := lacking(array.as_view(), need):
                raise DeclarationError(
                    f"parameter {named(root)} is bound to memory that {prefix + who!r} cannot use: {fault}",
                    node=prefix + who,
                    array=root[0].prefix + root[1].name,
                )


def _parameters_inside(scope: Environment, node: Node) -> Iterator[Owned]:
    """Yield the parameters that the workflows which a node holds depend on."""
    for name, document, _ in node.held:
        for at, level in scope.children[name].levels(document):
            for inner in level.workflow.nodes:
                yield from at.parameters_of(inner)
