"""The declared state of one Executable: its workflow, plan, steps, the disabled ones, and every change to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..arrays import ArrayView, Parameter
from ..backends import Scope, SharedHandles
from ..errors import HipError, UpdateError
from ..nodes import KernelNode
from ..plan import Plan, Step, suits_copy_kernel
from ..temporaries import alloc_roots
from ..watch import planned
from ..workflow import AnyNode, ChildGraphNode, Workflow
from .built import Built
from .changes import (
    changed_child,
    conditional_around,
    differing,
    is_in,
    node_at,
    require_declared,
    require_free,
    require_ordered,
    with_nodes,
)
from .compiled import CompiledPath
from .devices import Home
from .locking import Locking
from .parameters import Parameters, same
from .stats import Stats

__all__ = ["Arrangement"]


class Arrangement:
    """The declared state of an Executable; applies each change to the built program, or leaves both unchanged.

    Nothing here locks: the caller sees to it that one thread changes or launches at a time.

    Attributes
    ----------
    workflow : Workflow
        With the changes that were made since it was compiled.
    plan : Plan
    steps : list of Step
        The plan's, with the same changes.
    disabled : set of int
        Steps that only order.
    options : dict
        Of `watch.planned`.
    """

    def __init__(
        self,
        workflow: Workflow,
        plan: Plan,
        options: Mapping[str, Any],
        home: Home,
        shared: SharedHandles,
        parameters: Parameters,
        locking: Locking,
        built: Built,
        compiled: CompiledPath,
        stats: Stats,
    ) -> None:
        self.workflow = workflow
        self.plan = plan
        self.steps: list[Step] = list(plan.steps)
        self.disabled: set[int] = set()
        self.options = dict(options)
        self._home = home
        self._target = home.runtime.target
        self._shared = shared
        self._parameters = parameters
        self._locking = locking
        self._built = built
        self._compiled = compiled
        self._stats = stats

    # -- planning and building -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Build for the first time, unless the first launch must give a value that the build needs."""
        self._parameters.reach(self.steps, self._built.scope)
        self._watch()
        self._locking.require(self.workflow, self._built.scope)
        if not self._parameters.missing:
            self.rebuild()

    def _watch(self) -> None:
        """Check the memory of array parameters against all memory that the nodes access, now and at each launch."""
        self._parameters.watch(self.workflow, self._built.scope)
        self._parameters.require_safe(self._parameters.given())

    def planned(self, **options: Any) -> tuple[Plan, frozenset[int]]:
        """Return the workflow's plan made with other options, and which of its steps are disabled."""
        plan = planned(self.workflow, self._target, **{**self.options, **options}, device=self._home.device)
        off = self.names_off()
        return plan, frozenset(step.index for step in plan.steps if is_in(step.name, off))

    def rebuild(self) -> None:
        """Build again from the current steps."""
        changed = any(a is not b for a, b in zip(self.steps, self.plan.steps))
        plan = replace(self.plan, steps=tuple(self.steps)) if changed else self.plan
        first = self._built.program is None
        self._built.build(plan, frozenset(self.disabled))
        self.plan, self.steps = plan, list(plan.steps)
        if not first:  # building has waited for launches in flight
            self._parameters.forget_replaced()

    def _replan(self, **options: Any) -> None:
        """Plan and build again: with each child's nodes inlined (``inline=True``), or with other uses of memory."""
        before = (self.plan, self.steps, self.disabled, self._parameters.users, self.options)
        known = {step.name: step.node for step in self.steps}
        plan, disabled = self.planned(**options)
        self.options = {**self.options, **options}
        self.plan, self.disabled = plan, set(disabled)
        self.steps = [
            step._replace(node=known[step.name]) if known.get(step.name, step.node) is not step.node else step
            for step in plan.steps
        ]
        self._parameters.reach(self.steps, self._built.scope)
        try:
            if self._built.program is not None:
                self.rebuild()
        except BaseException:
            self.plan, self.steps, self.disabled, self._parameters.users, self.options = before
            raise
        stats = self._stats
        stats.nodes, stats.edges, stats.lanes = len(self.plan.steps), self.plan.edges, len(self.plan.lanes)

    # -- values of parameters --------------------------------------------------------------------------------------------

    def prepare(self, params: Mapping[str, Any]) -> None:
        """Bind parameters, and build or update what a launch needs; on failure nothing is changed."""
        parameters, built = self._parameters, self._built
        values = parameters.checked(params)
        copied = {name: values.pop(name) for name in [*values] if name in parameters.own}
        if copied:
            built.wait()  # launches in flight still read the memory that they were given
        parameters.require_safe({name: value for name, value in values.items() if parameters.table[name][1].shape})
        before = {name: parameters.current(name) for name in values}
        changed = [name for name, value in values.items() if not same(before[name], value)]
        first = built.program is None
        try:
            done = built.set_compiled({name: values[name] for name in changed}) if built.sound else {}
            for name in changed:
                parameters.bind(name, values[name])
                if name not in done:
                    self._compiled.note_value(name)
            if any(parameters.table[name][1].shape for name in changed):
                self._locking.require(self.workflow, built.scope)
            if built.sound:
                self.apply(changed, done)
            else:
                self.rebuild()
                parameters.missing = set()
        except BaseException:
            for name in changed:
                parameters.bind(name, before[name])
                self._compiled.note_value(name)
            if first:  # the built program holds values that are rolled back
                program = built.take_out()
                built.bind_compiled()
                if program is not None:
                    program.close()
            else:
                self._restore(lambda: self.apply(changed))
            raise
        parameters.copy(copied)

    def apply(self, names: Sequence[str], done: Mapping[str, frozenset[int]] = MappingProxyType({})) -> None:
        """Set the nodes that depend on changed parameters, except those in `done`, which are set already."""
        program = self._built.program
        assert program is not None
        found: dict[int, None] = {}
        for name in names:
            less = done.get(name, ())
            found.update((i, None) for i in self._parameters.steps_of(name) if i not in less and i not in self.disabled)
        operations = [(i, program.resolve(self.steps[i])) for i in found]  # resolve all of them before any is set
        if not all(self._built.change(i, operation) for i, operation in operations):
            self.rebuild()

    def _restore(self, undo: Callable[[], None] | None = None) -> None:
        """Roll back a failed change, by a new build where needed; if that fails too, the next launch builds."""
        for attempt in filter(None, (None if self._built.torn else undo, self.rebuild)):
            try:
                attempt()
                return
            except HipError:  # the first error is raised
                self._built.torn = True

    def names_off(self) -> list[str]:
        """Return the names of the disabled steps."""
        return [self.steps[i].name for i in self.disabled]

    def follow(self, given: Sequence[str], off: Sequence[str]) -> None:
        """Build a new Executable with the bound parameters and disabled steps that it has taken over."""
        self.disabled = {step.index for step in self.steps if step.name in off}
        self._watch()
        self._locking.require(self.workflow, self._built.scope)
        if self._built.program is None:
            if not self._parameters.missing:
                self.rebuild()
        elif self.disabled:
            self.rebuild()
        else:
            self.apply(given)

    # -- the compiled call path ------------------------------------------------------------------------------------------

    def take_back(self) -> None:
        """Take over the launches and values of the compiled call path since the last call."""
        self._built.take_back()
        for name, value in self._compiled.take_back().items():
            if not same(self._parameters.current(name), value):
                scope, parameter = self._parameters.table[name]
                scope.values[parameter] = value
                self._built.outdate(self._compiled.steps_of(name))

    def offer(self) -> None:
        """Tell the compiled call path which parameters it may set."""
        built = self._built
        built.limit()
        if built.program is not None and not built.torn:
            self._compiled.resume(built.refreshed, self._settable)

    def _settable(self) -> dict[str, tuple[Scope, Parameter, list[int]]]:
        """Return the parameters that the compiled call path can set, each with the steps that use it."""
        if self._home.several and "update_device" in self._target.quirks:
            return {}
        found = {}
        for name, (scope, parameter) in self._parameters.table.items():
            indices = [i for i in self._parameters.steps_of(name) if i not in self.disabled]
            if indices and not parameter.shape:
                found[name] = (scope, parameter, indices)
        return found

    # -- other nodes -----------------------------------------------------------------------------------------------------

    def set(self, name: str, fields: Mapping[str, Any]) -> None:
        """Change fields of a node; see `Executable.set`."""
        indices = self._indices(name, "set")
        known = node_at(self.workflow, name)
        require_free(name, known, fields)
        if isinstance(known, ChildGraphNode):
            child = changed_child(name, known, fields)
            require_declared(name, self.workflow, child, fields)
            self._require_same_devices({}, [child])
            if child.accesses != known.accesses:
                require_ordered(self.workflow, child, "bind", self._home.device)
            self._replace({}, [child])
            return
        step = self.steps[indices[0]]
        new = step.node.changed(**fields)
        require_declared(name, step.path[-1].workflow if step.path else self.workflow, new, fields)
        changes = {step.index: step._replace(node=new)}
        self._require_same_devices(changes, [])
        if new.accesses != step.node.accesses:
            field = next(iter(fields))
            if step.path:
                raise UpdateError(
                    f"node {name!r}: what a node inside a child accesses is fixed; set it in the child and compile again",
                    node=name,
                    field=field,
                )
            require_ordered(self.workflow, new, field, self._home.device)
        self._replace(changes)

    def adopt(self, new: Workflow) -> None:
        """Take over the nodes of another workflow in place; see `Executable.update`."""
        changes, children = {}, []
        for node in differing(self.workflow, new):
            if isinstance(node, ChildGraphNode):
                known = self.workflow.nodes[self.workflow.index[node.name]]
                child = known.changed(bind=node.bind)
                assert isinstance(child, ChildGraphNode)
                children.append(child)
            else:
                index = self.plan.index[node.name]
                changes[index] = self.steps[index]._replace(node=node)
        if changes or children:
            self._replace(changes, children)

    def _replace(self, changes: Mapping[int, Step], children: Sequence[ChildGraphNode] = ()) -> None:
        """Replace steps and the bindings of children; on failure nothing is changed."""
        self._require_same_devices(changes, children)
        self._compiled.withdraw()
        parameters, scope = self._parameters, self._built.scope
        steps, workflow, users = list(self.steps), self.workflow, parameters.users
        uses_others = any(set(steps[i].node.parameters) != set(step.node.parameters) for i, step in changes.items())
        scopes = [(scope.children[child.name], child) for child in children]
        bound = [inner.bound_from for inner, _ in scopes]
        names = {child.name: child for child in children}
        begun = False
        try:
            for i, step in changes.items():
                by_kernel = step.by_kernel and suits_copy_kernel(step.node, self._target)
                self.steps[i] = step if by_kernel == step.by_kernel else step._replace(by_kernel=by_kernel)
            for inner, child in scopes:
                known = {**child.workflow.arrays, **child.workflow.parameters}
                inner.bound_from = {known[name]: value for name, value in child.bind.items()}
            affected = {i: self.steps[i] for i in changes}
            for i, step in enumerate(self.steps):
                if not step.path and step.node.name in names:
                    affected[i] = self.steps[i] = step._replace(node=names[step.node.name])
                elif step.path and step.path[0].name in names:
                    affected[i] = step
            if uses_others or children:
                parameters.reach(self.steps, scope)
            self.workflow = with_nodes(workflow, {**names, **{step.name: step.node for step in changes.values()}})
            self._watch()
            self._locking.require(self.workflow, scope)
            program = self._built.program
            if program is not None:
                self._load_kernels([step.node for step in changes.values()])
            if self._packs_otherwise(steps, changes, children):
                self._replan()
                return
            if program is None:
                return
            operations = [(i, program.resolve(step)) for i, step in affected.items() if i not in self.disabled]
            begun = True
            for i, step in affected.items():
                program.steps[i] = step
            if not all(self._built.change(i, made) for i, made in operations):
                self.rebuild()
        except BaseException:
            self.steps, self.workflow, parameters.users = steps, workflow, users
            for (inner, _), outer in zip(scopes, bound):
                inner.bound_from = outer
            parameters.watch(workflow, scope)
            if begun:
                self._restore()
            raise

    def _require_same_devices(self, changes: Mapping[int, Step], children: Sequence[ChildGraphNode]) -> None:
        """Refuse nodes that would move to another device, which has its own lanes and functions."""
        if len(self.plan.devices) == 1:
            return
        root = self._built.scope
        moved = []
        for i, step in changes.items():
            scope = root.inside(step.path)
            moved.append((step.name, "", scope.device_of(self.steps[i].node), scope.device_of(step.node)))
        for child in children:
            known = root.children[child.name].bound_from
            outer = {inner.name: view for inner, view in known.items()}
            for name, view in child.bind.items():
                if isinstance(view, ArrayView):
                    moved.append((child.name, f" for {name!r}", root.owner(outer[name]), root.owner(view)))
        for name, what, before, after in moved:
            if before != after:
                raise UpdateError(
                    f"node {name!r}: what it is given{what} would move it from device {before} to device {after}; the device of a"
                    " node is fixed when the graph is compiled",
                    node=name,
                )

    def _packs_otherwise(self, before: list[Step], changes: Mapping[int, Step], children: Sequence[ChildGraphNode]) -> bool:
        """Return whether the steps that use arrays of alloc nodes change; which arrays share memory depends on them."""
        if not self.options["pack"] or not (self.plan.has_allocs or self.plan.packing is not None):
            return False
        return bool(children) or any(alloc_roots(step.node) != alloc_roots(before[i].node) for i, step in changes.items())

    def _load_kernels(self, nodes: Sequence[AnyNode]) -> None:
        for node in nodes:
            if isinstance(node, KernelNode):
                self._shared.load({node.kernel.module: ([node.kernel.name], list(node.kernel.module.symbols))})

    # -- disabled nodes --------------------------------------------------------------------------------------------------

    def enable(self, name: str, enabled: bool) -> None:
        """Enable or disable a node, or all nodes of a child."""
        indices = self._indices(name, "enable" if enabled else "disable")
        for step in (self.steps[i] for i in indices):
            if step.node.kind in ("alloc", "free"):
                raise UpdateError(
                    f"node {step.name!r}: nodes of kind {step.node.kind} cannot be disabled, because others use the memory",
                    node=step.name,
                )
        self._compiled.withdraw()
        indices = [i for i in indices if (i in self.disabled) == enabled]
        if self._built.program is not None:
            self._built.refreshed(indices)  # their parameters may change while they are disabled
        before = self.disabled
        self.disabled = before.difference(indices) if enabled else before.union(indices)
        built, program = self._built, self._built.program
        if program is None:
            return
        done: list[int] = []

        def undo() -> None:
            assert built.program is not None
            for i in done:
                built.program.enable(i, not enabled)

        try:
            for i in indices:
                in_place = built.enable(i, enabled)
                if in_place:
                    done.append(i)
                # A node may have been set while it was disabled.
                if not in_place or (enabled and not built.change(i, program.resolve(self.steps[i]))):
                    self.rebuild()
                    break
        except BaseException:
            self.disabled = before
            self._restore(undo)
            raise

    # -- names -----------------------------------------------------------------------------------------------------------

    def _indices(self, name: str, action: str) -> list[int]:
        """Return the steps of a name: one, or those of an inlined child."""
        index = self.plan.index.get(name)
        if index is not None:
            return [index]
        if node_at(self.workflow, name) is None:
            outer = conditional_around(self.workflow, name)
            if outer:
                raise UpdateError(
                    f"{action}: node {name!r} stands in a body of conditional node {outer!r}, whose nodes are fixed when the"
                    " graph is compiled; give it a parameter, or let it read the value from memory",
                    node=name,
                )
            names = ", ".join(map(repr, list(self.plan.index)[:20])) or "none"
            raise UpdateError(f"{action}: graph {self.workflow.name!r} has no node {name!r}; its nodes are {names}", node=name)
        planned = () if self.plan.packing is None else self.plan.packing.nodes
        inside = [known for known in planned if f"{known}/".startswith(f"{name}/")]
        if inside and (inside[0] == name or action != "set"):
            raise UpdateError(
                f"{action}: node {inside[0]!r} makes or returns memory that others use, which is fixed when the graph is"
                " compiled",
                node=inside[0],
            )
        if "/" in name and not self.options["inline"]:
            self._replan(inline=True)
            return self._indices(name, action)
        return [i for known, i in self.plan.index.items() if known.startswith(f"{name}/")]
