"""Structure of the graph: cycles, ignored codes, and declarations that are unused or incomplete (HG1xx)."""

from __future__ import annotations

from difflib import get_close_matches

from ..arrays import AllocArray, ExternalArray
from ..nodes import UnboundCallback
from ..nodes.workflow import Workflow
from ..order import find_cycle
from .catalogue import CATALOGUE
from .levels import CheckedLevel


def check_cycle(scope: CheckedLevel) -> bool:
    """Report a cycle node by node and return whether there is one."""
    workflow = scope.workflow
    if workflow.order or not workflow.nodes:
        return False
    cycle = [workflow.nodes[i] for i in find_cycle(workflow.predecessors)]
    path = " -> ".join(scope.name(node) for node in [*cycle, cycle[0]])
    scope.found("HG101", f"graph {workflow.name!r} has a cycle: {path}", *cycle, hint="remove one of these edges")
    return True


def check_ignores(scope: CheckedLevel) -> None:
    """Report ignored codes that do not exist, and those without a reason."""
    for node in scope.workflow.nodes:
        for code, reason in (node.ignore or {}).items():
            if code not in CATALOGUE:
                close = get_close_matches(code, CATALOGUE, 3)
                scope.found(
                    "HG102",
                    f"{scope.name(node)!r} ignores {code!r}, which is not the code of a diagnostic",
                    node,
                    hint=f"codes like it are {', '.join(close)}" if close else "codes are HG101 to HG808, as check() prints them",
                )
            elif not reason.strip():
                scope.found(
                    "HG103",
                    f"{scope.name(node)!r} ignores {code} without a reason",
                    node,
                    hint=f'write ignore={{"{code}": "why it is right here"}}',
                )


def check_use(scope: CheckedLevel) -> None:
    """Report empty graphs, unused declarations, and callbacks, arrays and semaphores that are not supplied."""
    workflow = scope.workflow
    if not workflow.nodes:
        scope.found("HG104", f"graph {scope.prefix + workflow.name!r} has no nodes, so a launch does nothing")
    defaults = (workflow.default_view(parameter) for parameter in workflow.parameters.values())
    unused = _unused(workflow, {view.root for view in defaults if view is not None})
    for _, node in scope.having("semaphore_used", "called", "callback"):
        semaphore = node.semaphore_used
        if semaphore is not None and semaphore.handle is None:
            name = semaphore.name
            scope.found(
                "HG107",
                f"{scope.name(node)!r} uses semaphore {name!r}, which has no handle",
                node,
                arrays=[name],
                hint=f"give hg.Semaphore({name!r}, handle)",
            )
        elif isinstance(node.callback, UnboundCallback):
            scope.found(
                "HG107",
                f"{scope.name(node)!r} calls {node.callback.path!r}, which is not supplied",
                node,
                hint=f"from_json(text, callbacks={{{node.callback.path!r}: ...}})",
            )
    for name, array in workflow.arrays.items():
        if isinstance(array, ExternalArray) and array.obj is None and not array.pointer:
            scope.found(
                "HG107",
                f"external array {name!r} is not supplied",
                arrays=[name],
                hint=f"from_json(text, arrays={{{name!r}: ...}})",
            )
        if array in unused:
            scope.found(
                "HG105",
                f"{array.kind} array {name!r} ({array.nbytes} bytes) is used by no node and is no parameter's default",
                arrays=[name],
                hint="remove it, unless launches bind a parameter to it, or set and update give it to a node",
            )
    for name, parameter in workflow.parameters.items():
        if parameter in unused:
            scope.found("HG106", f"parameter {name!r} is used by no node", arrays=[name], hint="remove it")


def _unused(workflow: Workflow, used: set[object]) -> set[object]:
    """Return the arrays, without those of alloc nodes, and the parameters that no node uses and that are not in `used`.

    Nodes are looked through only until all are found: by their accesses first, which are at hand.
    """
    unused: set[object] = {array for array in workflow.arrays.values() if not isinstance(array, AllocArray)}
    unused.update(workflow.parameters.values())
    unused -= used
    for node in workflow.nodes:
        if not unused:
            break
        unused.difference_update([access.view.root for access in node.accesses])
    for node in workflow.nodes:
        if not unused:
            break
        unused.difference_update(node.parameters)
        unused.difference_update([view.root for view in node.addresses])
    return unused
