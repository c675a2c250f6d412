"""Changes to a compiled workflow: compute the next state from the current state and a request.

This module modifies nothing. Invalid changes are refused here, before the graph on the device is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..arrays import ArrayView, Parameter
from ..backends import Environment
from ..checks import check_workflow
from ..checks.levels import launch_key
from ..checks.limits import launch_faults
from ..errors import DeclarationError, UpdateError, listed, node_error
from ..kernels import Kernel, Symbol
from ..nodes import Node
from ..nodes.workflow import NODES, Level, Workflow
from ..plan.steps import Step
from ..plan.suited import suits_copy_kernel
from ..plan.temporaries import alloc_roots
from ..target import Target
from ..update import explain_update
from .state import Change, Name, State, within
from .uses import uses_alike


class Changes:
    """Computes the changes that a compiled graph supports."""

    def __init__(self, target: Target, scope: Environment) -> None:
        self._target = target
        self._scope = scope

    def with_fields(self, state: State, node: str | Node, fields: Mapping[str, Any]) -> Change:
        """Return the change that sets fields of a node; see `Executable.set`."""
        name = _name_of(node, "set")
        found, indices = self._find(state, name, "set")
        step = found.plan.step(indices[0]) if name in found.plan.index else None
        known = _node_at(found.workflow, name) if step is None else step.node
        require_free(name, known, fields)
        if known is not None and known.is_child:
            child = _changed_child(name, known, fields)
            _require_declared(name, found.workflow, child, fields)
            self._require_same_places(found, {}, [child])
            if child.accesses != known.accesses:
                _require_ordered(found, child, "bind")
            return self._replaced(found, {}, [child])
        step = step or found.plan.step(indices[0])
        for outer in step.path:
            if outer.derives:
                why = f"it follows from the fields of {outer.name!r}, and {outer.fixed}"
                raise _refused(name, why, next(iter(fields), None))
        try:
            new = step.node.changed(**fields)
        except DeclarationError as error:
            raise error.inside(name) from None
        _require_declared(name, step.path[-1].held[0][1] if step.path else found.workflow, new, fields)
        changes = {step.index: step._replace(node=new)}
        self._require_same_places(found, changes, [])
        if new.accesses != step.node.accesses:
            field = next(iter(fields))
            if step.path:
                raise _refused(name, "what a node inside a child accesses is fixed; set it in the child and compile again", field)
            _require_ordered(found, new, field)
        return self._replaced(found, changes, [])

    def with_workflow(self, state: State, new: Workflow) -> Change:
        """Return the change that adopts the nodes of another workflow in place; see `Executable.update`."""
        changes, children = {}, []
        for node in _differing(state.workflow, new):
            if node.is_child:
                children.append(state.workflow.nodes[state.workflow.index[node.name]].changed(bind=node.held[0][2]))
            else:
                index = state.plan.index[node.name]
                changes[index] = state.plan.steps[index]._replace(node=node)
        self._require_same_places(state, changes, children)
        return self._replaced(state, changes, children)

    def enabled(self, state: State, node: str | Node, *, enabled: bool) -> Change:
        """Return the change that enables or disables a node, or all nodes of a child."""
        action = "enable" if enabled else "disable"
        name = _name_of(node, action)
        found, indices = self._find(state, name, action)
        for i in indices:
            step = found.plan.steps[i]
            require_switchable(step.name, step.node, enabled=enabled)
        plan, off, children = found.plan, found.disabled, found.children_off
        switched = tuple([i for i in indices if (i in off) == enabled])
        if not enabled and name not in plan.index:
            children |= {name}
        elif enabled and children:  # a child with an enabled node is not disabled as a whole
            children = frozenset(c for c in children if not within(c, name) and not within(name, c))
        disabled = off.difference(switched) if enabled else off.union(switched)
        made = found.with_disabled(disabled, children)
        return Change(made, tuple(sorted({*switched, *made.steps_since(found)})))

    def _find(self, state: State, name: str, action: str) -> tuple[State, list[int]]:
        """Return a state that has steps for a name, and their indices: one step, or those of an inlined child."""
        index = state.plan.index.get(name)
        if index is not None:
            return state, [index]
        if _node_at(state.workflow, name) is None:
            outer = _conditional(Level(state.workflow).at(name)[0])
            if outer:
                raise UpdateError(
                    f"{action}: node {name!r} is in a body of conditional node {outer!r}, whose nodes are fixed when the"
                    " graph is compiled; give it a parameter, or let it read the value from memory",
                    node=name,
                )
            names = listed(state.plan.index, 20)
            raise UpdateError(f"{action}: graph {state.workflow.name!r} has no node {name!r}; its nodes are {names}", node=name)
        packed = () if state.plan.packing is None else state.plan.packing.nodes
        inside = [known for known in packed if within(known, name)]
        if inside and (inside[0] == name or action != "set"):
            raise UpdateError(
                f"{action}: node {inside[0]!r} makes or returns memory that others use, which is fixed when the graph is"
                " compiled",
                node=inside[0],
            )
        if "/" in name and not state.options.inline:
            return self._find(state.replanned(self._target, replace(state.options, inline=True)), name, action)
        return state, [i for known, i in state.plan.index.items() if within(known, name)]

    def _replaced(self, state: State, changes: Mapping[int, Step], children: Sequence[Node]) -> Change:
        plan = state.plan
        steps: dict[int, Step] = {}
        nodes: dict[str, Node] = {}
        kernels: list[Kernel] = []
        same_uses = not children
        for i, step in changes.items():
            before, node = plan.step(i).node, step.node
            self._require_within_limits(step, before)
            steps[i] = step._replace(by_kernel=False) if step.by_kernel and not suits_copy_kernel(node, self._target) else step
            nodes[step.name] = node
            if not uses_alike(before, node):
                same_uses = False
                kernels += node.kernels
        names: list[Name] = []
        affected = list(steps)
        by_name: dict[str, Node] = {}
        for child in children:
            by_name[child.name] = child
            nodes[child.name] = child
            _, workflow, bind = child.held[0]
            known = {**workflow.arrays, **workflow.parameters}
            table = self._scope.children[child.name].bound_from
            names += [(table, known[name], value) for name, value in bind.items()]
        for i, step in enumerate(plan.steps) if children else ():
            if step.node.is_child and step.name in by_name:
                steps[i] = step._replace(node=by_name[step.node.name])
                affected.append(i)
            elif step.path and step.path[0].name in by_name and i not in steps:
                affected.append(i)
        repack = self._packs_otherwise(state, changes, children)
        made = state.changed(_with_nodes(state.workflow, nodes), steps, same_uses=same_uses)
        if repack:
            made = made.replanned(self._target, made.options)
        return Change(made, tuple(affected), tuple(names), kernels=tuple(kernels))

    def _require_within_limits(self, step: Step, before: Node) -> None:
        """Refuse a kernel launch that exceeds a device limit which the launch that it replaces did not exceed."""
        new, old = step.node.launched, before.launched
        if new is None or old is None or launch_key(new) == launch_key(old):
            return
        for code, message, hint in launch_faults(new, self._target, _fixed_extent):
            known = (before for before, _, _ in launch_faults(old, self._target, _fixed_extent))
            if code not in (new.ignore or ()) and code not in known:
                raise node_error(step.name, f"{message} ({code}); {hint}")

    def _packs_otherwise(self, state: State, changes: Mapping[int, Step], children: Sequence[Node]) -> bool:
        """Return whether the packing may change: it depends on which steps use arrays of alloc nodes."""
        plan = state.plan
        if not state.options.pack or not (plan.has_allocs or plan.packing is not None):
            return False
        return bool(children) or any(alloc_roots(step.node) != alloc_roots(plan.step(i).node) for i, step in changes.items())

    def _require_same_places(self, state: State, changes: Mapping[int, Step], children: Sequence[Node]) -> None:
        """Refuse changes that would move a node to another device: each device has its own lanes and loaded functions."""
        if len(state.plan.devices) == 1:
            return
        root = self._scope
        moved = []
        for i, step in changes.items():
            scope = root.inside(step.path)
            moved.append((step.name, "", scope.device_of(state.plan.steps[i].node), scope.device_of(step.node)))
        for child in children:
            outer = {inner.name: view for inner, view in root.children[child.name].bound_from.items()}
            for name, view in child.held[0][2].items():
                if isinstance(view, ArrayView):
                    moved.append((child.name, f" for {name!r}", root.owner(outer[name]), root.owner(view)))
        for name, what, before, after in moved:
            if before != after:
                raise _refused(
                    name,
                    f"what it is given{what} would move it from device {before} to device {after}; the device of a node is fixed"
                    " when the graph is compiled",
                )


def _fixed_extent(axis: Any) -> int | None:
    """Return the extent of a grid or block axis; None for a parameter, whose value a launch gives."""
    return None if isinstance(axis, Parameter) else int(axis)


def _refused(name: str, why: str, field: str | None = None) -> UpdateError:
    return UpdateError(f"node {name!r}: {why}", node=name, field=field)


def _name_of(node: Any, action: str) -> str:
    if isinstance(node, str):
        return node
    if not isinstance(node, Node):
        raise DeclarationError(f"{action}: node is the name of a node, or the declared node itself (got {node!r})")
    return node.name


def _node_at(workflow: Workflow, name: str) -> Node | None:
    level, inner = Level(workflow).at(name)
    return None if _conditional(level) else level.workflow.node(inner)


def _conditional(level: Level) -> str:
    """Return the name of the outermost conditional node that contains a level, or an empty string."""
    if level.parent is None or level.node is None:
        return ""
    outer = _conditional(level.parent)
    if not outer and level.node.branch is not None:
        return level.parent.name(level.node)
    return outer


def _with_nodes(workflow: Workflow, nodes: Mapping[str, Node]) -> Workflow:
    """Return the workflow with nodes replaced; ``"child/x"`` is a node inside a child."""
    if not nodes:
        return workflow
    replaced: dict[int, Node] = {}
    inside: dict[int, dict[str, Node]] = {}
    for name, node in nodes.items():
        head, _, rest = name.partition("/")
        at = workflow.index[head]
        if rest:
            inside.setdefault(at, {})[rest] = node
        else:
            replaced[at] = node
    for at, changed in inside.items():
        child = replaced.get(at, workflow.nodes[at])
        replaced[at] = child.changed(**child.holding([_with_nodes(child.held[0][1], changed)]))
    made: Workflow = NODES.replaced(workflow, replaced)
    return made


def with_defaults(workflow: Workflow, defaults: Mapping[str, Any]) -> Workflow:
    """Return the workflow with other defaults of parameters."""
    changed = {name: replace(workflow.parameters[name], default=default) for name, default in defaults.items()}
    parameters = {**workflow.parameters, **changed}
    uses = (any(parameter.name in changed for parameter in node.parameters) for node in workflow.nodes)
    nodes = (node.translated(workflow.arrays, parameters) if used else node for node, used in zip(workflow.nodes, uses))
    return replace(workflow, parameters=parameters, nodes=tuple(nodes))


def require_free(name: str, node: Node | None, fields: Mapping[str, Any]) -> None:
    """Refuse fields that are fixed when the graph is compiled."""
    for field in ("name", "after", "workflow", "device"):
        if field in fields:
            raise _refused(name, f"{field} is fixed when the graph is compiled", field)
    for field in ("mode", "bodies", "bind"):
        if field in fields and node is not None and node.branch is not None:
            raise _refused(name, f"{field} of a conditional node is fixed when the graph is compiled", field)


def require_switchable(name: str, node: Node, *, enabled: bool) -> None:
    """Refuse to enable or disable a node that is always enabled."""
    if node.made is not None or node.freed is not None:
        why = "are always enabled" if enabled else "cannot be disabled"
        raise _refused(name, f"nodes of kind {node.kind} {why}, because others use the memory")


def _require_declared(name: str, workflow: Workflow, new: Node, fields: Mapping[str, Any]) -> None:
    for parameter in new.parameters:
        if workflow.parameters.get(parameter.name) is not parameter:
            raise _refused(name, f"parameter {parameter.name!r} is not of the graph that was compiled", next(iter(fields)))


def _changed_child(name: str, known: Node, fields: Mapping[str, Any]) -> Node:
    if "/" in name:
        raise _refused(name, "how a child inside a child is bound is fixed", "bind")
    child = known.changed(**fields)
    bound = known.held[0][2]
    if child.held[0][2].keys() != bound.keys():
        why = f"which of the child's names are bound is fixed when the graph is compiled; they are {listed(bound)}"
        raise _refused(name, why, "bind")
    return child


def _require_ordered(state: State, new: Node, field: str) -> None:
    """Refuse accesses that the existing edges do not order."""
    name, workflow = new.name, state.workflow
    for access in new.accesses:
        root = access.view.root
        known = workflow.parameters if isinstance(root, Parameter) else workflow.arrays
        if not isinstance(root, Symbol) and known.get(root.name) is not root:
            raise _refused(name, f"array {root.name!r} is not of the graph that was compiled", field)
    declared = replace(NODES.replaced(workflow, {workflow.index[name]: new}), infer=False)
    report = check_workflow(declared, device=state.plan.device, errors_only=True)
    own = [d for d in report.errors if any(within(known, name) for known in d.nodes)]
    faults = [d for d in own if d.code not in ("HG409", "HG410")]  # these are about bounds and defaults, not about order
    if faults:
        raise _refused(
            name,
            f"with {field}= it would access memory that the graph's edges do not order: {faults[0].message}; declare it in the"
            " graph and compile again",
            field,
        )


def _differing(workflow: Workflow, new: Workflow) -> list[Node]:
    """Return another workflow's differing nodes, translated to this one's arrays; refuse what cannot change in place."""
    changes = explain_update(workflow, new).changes
    blocking = next((change for change in changes if not change.in_place), None)
    if blocking is not None:
        raise UpdateError(
            f"graph {workflow.name!r} cannot be updated in place: {blocking.what};"
            " call update(graph, rebuild=True) to rebuild it",
            node=blocking.node,
            field=blocking.field,
        )
    names = dict.fromkeys(change.node for change in changes if change.node is not None)
    return [new.nodes[new.index[name]].translated(workflow.arrays, workflow.parameters) for name in names]
