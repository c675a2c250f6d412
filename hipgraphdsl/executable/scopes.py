"""Bind the names of a workflow in one Executable's scopes, and list the kernels and symbols that its nodes need."""

from __future__ import annotations

from ..arrays import AllocArray, Parameter, require_fit
from ..backends import Environment
from ..kernels import Kernel, Module, Symbol
from ..nodes import element_value
from ..nodes.workflow import Level, Workflow
from .memory import Memory
from .parameters import Parameters


def fill(top: Environment, workflow: Workflow, memory: Memory, parameters: Parameters) -> None:
    """Bind each name of a workflow and of its children to memory, to a value, or to the parent's binding."""
    for scope, level in top.levels(workflow):
        bind, prefix = level.bind, scope.prefix
        for name, array in level.workflow.arrays.items():
            if name in bind:
                scope.bound_from[array] = bind[name]
            elif not isinstance(array, AllocArray):
                scope.addresses[array] = memory.allocate(prefix + name, array, prefix)
        for name, parameter in level.workflow.parameters.items():
            if name in bind:
                scope.bound_from[parameter] = bind[name]
            else:
                _add_parameter(prefix + name, scope, parameter, level, parameters)


def _add_parameter(name: str, scope: Environment, parameter: Parameter, level: Level, parameters: Parameters) -> None:
    default = parameter.default
    parameters.table[name] = (scope, parameter)
    if parameter.copy:
        parameters.make_own(name, scope, parameter)
    if default is None:
        parameters.missing.add(name)
    elif not parameter.shape:
        scope.values[parameter] = element_value(default, parameter.dtype, f"parameter {name!r}")
    elif not parameter.copy:
        named = level.workflow.default_array(parameter)
        if named is None:
            scope.addresses[parameter] = parameters.address_for(name, parameter, default)
            return
        require_fit(name, parameter, named)
        if named.name in level.bind:
            scope.defaults[parameter] = named
        else:
            parameters.defaults[name] = scope.addresses[parameter] = scope.addresses[named]
            parameters.standing = {**parameters.standing, name: named}


def modules_of(workflow: Workflow) -> dict[Module, tuple[list[str], list[str]]]:
    """Return the kernels and symbols that the workflow needs of each module."""
    found: dict[Module, tuple[list[str], list[str]]] = {}
    for document in workflow.documents:
        for use in document.used:
            if isinstance(use, Kernel) or not use.hidden:
                names = found.setdefault(use.module, ([], []))[isinstance(use, Symbol)]
                if use.name not in names:
                    names.append(use.name)
    return found
