"""What array parameters stand for by default (HG410)."""

from __future__ import annotations

from ..arrays import AllocArray, Array, Parameter, array_by_default, lacking, require_fit
from ..errors import DeclarationError, listed
from .levels import CheckedLevel


def check_standing(scope: CheckedLevel) -> None:
    """Report array parameters whose default is no array, does not fit, or is memory that one of their nodes cannot use.

    Declarations refuse most of these; they do not see an array that is declared after the nodes, or bound by a parent.
    """
    for name, parameter in scope.workflow.parameters.items():
        if name not in scope.bind and parameter.shape and not parameter.copy and parameter.default is not None:
            _check_default(scope, parameter)


def _check_default(scope: CheckedLevel, parameter: Parameter) -> None:
    name = scope.prefix + parameter.name
    users = {node.name: node for node in scope.workflow.nodes if parameter in node.parameters}
    try:
        array = array_by_default(parameter, scope.workflow.arrays, name)
        if array is None:
            arrays = listed(scope.workflow.arrays)
            message = f"parameter {name!r} stands by default for array {parameter.default!r}, which is not declared"
            scope.found("HG410", message, *users.values(), arrays=[name], hint=f"name one of the graph's arrays: {arrays}")
            return
        require_fit(name, parameter, array)
        root = scope.resolve(array)[1]
        if isinstance(root, AllocArray):
            require_fit(name, parameter, root)
    except DeclarationError as error:
        hint = "give another default, or none"
        scope.found("HG410", str(error), *users.values(), arrays=[name], hint=hint)
        return
    for need, who in scope.workflow.needs.get(parameter, {}).items() if isinstance(root, Array) else ():
        if fault := lacking(root.as_view(), need):
            scope.found(
                "HG410",
                f"parameter {name!r} stands by default for {root.kind} array {root.name!r}, which {scope.prefix + who!r} cannot"
                f" use: {fault}",
                *(node for inner, node in users.items() if inner == who.partition("/")[0]),
                names=[scope.prefix + who],
                arrays=[name, root.name],
                hint=f"give {parameter.name!r} another default, or none",
            )
