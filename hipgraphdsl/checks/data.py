"""What memory holds and what it stands for: copies onto themselves, unwritten arrays, and defaults (HG404, HG405, HG410)."""

from __future__ import annotations

from ..arrays import Access, AllocArray, Array, ArrayView, DeviceArray, Parameter, Region, array_by_default, lacking, require_fit
from ..errors import DeclarationError, listed
from ..nodes import Node
from .levels import CheckedLevel


def check_copies(scope: CheckedLevel) -> None:
    """Report copies whose source and destination overlap."""
    for _, node in scope.having("copied"):
        for dst, src in node.copied:
            if dst.root is src.root or scope.place(dst.root)[0] == scope.place(src.root)[0]:
                _check_copy(scope, node, dst, src)


def _check_copy(scope: CheckedLevel, node: Node, dst: ArrayView, src: ArrayView) -> None:
    """Report a copy within one address space whose source and destination overlap."""
    (_, to), (_, origin) = scope.placed(Access(dst, "write")), scope.placed(Access(src, "read"))
    if to.overlaps(origin):
        _, offset = scope.place(dst.root)
        start, stop = max(to.start, origin.start), min(to.stop, origin.stop)
        common = Region(start, stop, stop - start).shifted(-offset)
        scope.found(
            "HG405",
            f"{scope.name(node)!r} copies {src.name!r} to {dst.name!r}, and both hold {dst.root.name!r} {common}",
            node,
            arrays=[dst.root.name, src.root.name],
            hint="copy through another array, or let a kernel move the values",
        )


def check_unwritten(scope: CheckedLevel) -> None:
    """Report reads of device arrays that have no initial values and that nothing has written before."""
    untouched = {array for array in scope.workflow.arrays.values() if type(array) is DeviceArray}
    for i in scope.workflow.order:
        if not untouched:
            break
        node = scope.workflow.nodes[i]
        for access in node.accesses:
            root = access.view.root
            if root in untouched:
                untouched.remove(root)
                if root.initial is None and access.mode == "read" and exposed(node, access):
                    _report_unwritten(scope, node, root)


def _report_unwritten(scope: CheckedLevel, node: Node, array: DeviceArray) -> None:
    """Report an array that is read first and has no initial values, unless the child graph binds it to another array."""
    if array.name not in scope.bind:
        scope.found(
            "HG404",
            f"{scope.name(node)!r} reads {array.name!r}, which has no initial values and is not written before",
            node,
            arrays=[array.name],
            hint=f"it is zero at the first launch; write({array.name!r}, values) before it, or give initial values",
        )


def exposed(node: Node, access: Access) -> bool:
    """Return whether the node definitely reads values that were there before it.

    An update that is only inferred (`T*` of a kernel, an array in `args` of a callback) may be a plain write, and a
    child graph may write before it reads.
    """
    if node.derives or node.held:
        return access.mode == "read" and not any(a.mode != "read" and a.view.root is access.view.root for a in node.accesses)
    if access.mode == "read":
        return True
    return node.launched is not None and any(arg is access for arg in node.launched.args)


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
