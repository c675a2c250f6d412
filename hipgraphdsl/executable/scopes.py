"""What the names of a workflow stand for in one Executable: scopes, and the code that its nodes call."""

from __future__ import annotations

from ..arrays import AllocArray, Array
from ..backends import Scope
from ..kernels import Module, Symbol
from ..nodes import element_value
from ..workflow import Level, Workflow
from .memory import Memory
from .parameters import Parameters, require_alike


def fill(top: Scope, workflow: Workflow, memory: Memory, parameters: Parameters) -> None:
    """Give each name of a workflow and of its children a meaning: memory, a value, or what the parent binds it to."""
    for scope, level in top.levels(workflow):
        _fill(scope, level, memory, parameters)


def _fill(scope: Scope, level: Level, memory: Memory, parameters: Parameters) -> None:
    prefix, workflow, bind = scope.prefix, level.workflow, level.bind
    for name, array in workflow.arrays.items():
        if name in bind:
            scope.bound_from[array] = bind[name]
        elif not isinstance(array, AllocArray):
            scope.addresses[array] = memory.allocate(prefix + name, array, prefix)
    for name, parameter in workflow.parameters.items():
        if name in bind:
            scope.bound_from[parameter] = bind[name]
            continue
        parameters.table[prefix + name] = (scope, parameter)
        if parameter.copy:
            parameters.make_own(prefix + name, scope, parameter)
            if parameter.default is None:
                parameters.missing.add(prefix + name)
        elif parameter.shape and parameter.default is not None:
            default = parameter.default
            wanted = default.name if isinstance(default, Array) else default
            named = workflow.arrays.get(wanted) if isinstance(wanted, str) else None
            if named is None:
                scope.addresses[parameter] = parameters.address_for(prefix + name, parameter, default)
            else:  # of this very workflow, which may be a child with the array bound
                require_alike(prefix + name, parameter, named)
                parameters.defaults[prefix + name] = scope.addresses[parameter] = scope.address(named.as_view())
        elif parameter.default is None:
            parameters.missing.add(prefix + name)
        else:
            scope.values[parameter] = element_value(parameter.default, parameter.dtype, f"parameter {prefix + name!r}")


def modules_of(workflow: Workflow) -> dict[Module, tuple[list[str], list[str]]]:
    """Return the kernels and symbols that the workflow needs of each module."""
    found: dict[Module, tuple[list[str], list[str]]] = {}

    for node in (node for document in workflow.documents for node in document.nodes):
        for kernel in node.kernels:
            names, _ = found.setdefault(kernel.module, ([], []))
            if kernel.name not in names:
                names.append(kernel.name)
        for access in node.own_accesses:
            root = access.view.root
            if isinstance(root, Symbol) and not root.hidden:
                _, symbols = found.setdefault(root.module, ([], []))
                if root.name not in symbols:
                    symbols.append(root.name)
    return found
