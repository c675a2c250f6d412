"""What may change in a workflow that has been compiled: nodes by name, and the rules that another node must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..arrays import Parameter
from ..checks import check_workflow
from ..errors import UpdateError
from ..kernels import Symbol
from ..update import explain_update
from ..workflow import AnyNode, ChildGraphNode, ConditionalNode, Level, Workflow

__all__ = [
    "changed_child",
    "conditional_around",
    "differing",
    "is_in",
    "node_at",
    "require_declared",
    "require_free",
    "require_ordered",
    "with_nodes",
]


def node_at(workflow: Workflow, name: str) -> AnyNode | None:
    """Return the node of a name such as ``"child/x"``."""
    level, inner = Level(workflow).at(name)
    return None if _conditional(level) else level.workflow.node(inner)


def conditional_around(workflow: Workflow, name: str) -> str:
    """Return the conditional node that a name such as ``"loop/0/x"`` lies in, or nothing."""
    return _conditional(Level(workflow).at(name)[0])


def _conditional(level: Level) -> str:
    """Return the outermost conditional node that a level lies in, or nothing."""
    if level.parent is None or level.node is None:
        return ""
    return _conditional(level.parent) or level.parent.name(level.node) * isinstance(level.node, ConditionalNode)


def is_in(name: str, nodes: Sequence[str]) -> bool:
    """Return whether a node is one of those named, or inside one."""
    return any(f"{name}/".startswith(f"{node}/") for node in nodes)


def with_nodes(workflow: Workflow, nodes: Mapping[str, AnyNode]) -> Workflow:
    """Return the workflow with nodes replaced; ``"child/x"`` is a node inside a child."""
    if not nodes:
        return workflow
    replaced = list(workflow.nodes)
    inside: dict[str, dict[str, AnyNode]] = {}
    for name, node in nodes.items():
        head, _, rest = name.partition("/")
        if rest:
            inside.setdefault(head, {})[rest] = node
        else:
            replaced[workflow.index[name]] = node
    for name, changed in inside.items():
        child = replaced[workflow.index[name]]
        assert isinstance(child, ChildGraphNode)
        replaced[workflow.index[name]] = child.changed(workflow=with_nodes(child.workflow, changed))
    return replace(workflow, nodes=tuple(replaced))


def require_free(name: str, node: AnyNode | None, fields: Mapping[str, Any]) -> None:
    """Refuse fields that are fixed when the graph is compiled."""
    for field in ("name", "after", "workflow", "device"):
        if field in fields:
            raise UpdateError(f"node {name!r}: {field} is fixed when the graph is compiled", node=name, field=field)
    fixed = [field for field in ("mode", "bodies", "bind") if field in fields and isinstance(node, ConditionalNode)]
    if fixed:
        raise UpdateError(
            f"node {name!r}: {fixed[0]} of a conditional node is fixed when the graph is compiled", node=name, field=fixed[0]
        )


def require_declared(name: str, workflow: Workflow, new: AnyNode, fields: Mapping[str, Any]) -> None:
    """Refuse parameters that the workflow of a node does not have."""
    for parameter in new.parameters:
        if workflow.parameters.get(parameter.name) is not parameter:
            raise UpdateError(
                f"node {name!r}: parameter {parameter.name!r} is not of the graph that was compiled",
                node=name,
                field=next(iter(fields)),
            )


def changed_child(name: str, known: ChildGraphNode, fields: Mapping[str, Any]) -> ChildGraphNode:
    """Return a child that binds the same names otherwise."""
    if "/" in name:
        raise UpdateError(f"node {name!r}: how a child inside a child is bound is fixed", node=name, field="bind")
    child = known.changed(**fields)
    assert isinstance(child, ChildGraphNode)
    if child.bind.keys() != known.bind.keys():
        raise UpdateError(
            f"node {name!r}: which of the child's names are bound is fixed when the graph is compiled; they are"
            f" {', '.join(map(repr, known.bind)) or 'none'}",
            node=name,
            field="bind",
        )
    return child


def require_ordered(workflow: Workflow, new: AnyNode, field: str, device: int) -> None:
    """Refuse accesses that the existing edges do not order."""
    name = new.name
    for access in new.accesses:
        root = access.view.root
        known = workflow.parameters if isinstance(root, Parameter) else workflow.arrays
        if not isinstance(root, Symbol) and known.get(root.name) is not root:
            raise UpdateError(f"node {name!r}: array {root.name!r} is not of the graph that was compiled", node=name, field=field)
    nodes = list(workflow.nodes)
    nodes[workflow.index[name]] = new
    report = check_workflow(replace(workflow, nodes=tuple(nodes), infer=False), device=device)
    own = [d for d in report.errors if any(f"{known}/".startswith(f"{name}/") for known in d.nodes)]
    faults = [d for d in own if d.code != "HG409"]  # bounds are nothing that edges could order
    if faults:
        raise UpdateError(
            f"node {name!r}: with {field}= it would access memory that the graph's edges do not order: {faults[0].message};"
            " declare it in the graph and compile again",
            node=name,
            field=field,
        )


def differing(workflow: Workflow, new: Workflow) -> list[AnyNode]:
    """Return the nodes of another workflow that differ from this one's, with this one's arrays and parameters.

    Raises
    ------
    UpdateError
        If something differs that cannot change in place; names the first node and field.
    """
    changes = explain_update(workflow, new).changes
    blocking = next((change for change in changes if not change.in_place), None)
    if blocking is not None:
        raise UpdateError(
            f"graph {workflow.name!r} cannot take {new.name!r} in place: {str(blocking).split('  ', 1)[1].strip()};"
            " call update(graph, rebuild=True) to build it afresh",
            node=blocking.node,
            field=blocking.field,
        )
    names = dict.fromkeys(change.node for change in changes if change.node is not None)
    return [new.nodes[new.index[name]].translated(workflow.arrays, workflow.parameters) for name in names]
