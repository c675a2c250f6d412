"""The state of an Executable's graph between two changes, and the change from one state to the next: plain data."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..kernels import Kernel
from ..nodes.workflow import Workflow
from ..plan.options import PlanOptions
from ..plan.planning import make_plan
from ..plan.steps import Plan, Step
from ..target import Target
from .uses import Uses

_log = logging.getLogger("hipgraphdsl")

_FALLS_BACK: Final = 16
"""Number of pieces from which AMD's runtime may use its older executor; a graph has at most one piece per node."""

Planned = tuple[Plan, str, PlanOptions]
"""A plan, the backend that lowers it, and the plan's options."""

Name = tuple[dict[Any, Any], Any, Any]
"""A table of a scope, a name in it, and the new value of that name; None removes the name."""


def plan_for(
    workflow: Workflow, target: Target, backend: str, device: int, note: str, options: PlanOptions, *, watch: bool = False,
    shared: bool = False,
) -> Planned:  # fmt: skip
    """Return the plan of a workflow with notes on its choices, the backend that lowers it, and the options that made it.

    `shared` says that temporaries lie in memory that others use too, between its launches.
    """
    notes = [note] if note else []
    if (
        "several_devices_crash" in target.quirks
        and len(workflow.devices_with(device)) > 1
        and backend not in ("serial", "streams")
    ):
        why = f"{target.name} runs kernels of a graph over several devices on the wrong one"
        _log.warning("graph %r: backend %r is 'streams', because %s", workflow.name, backend, why)
        notes.insert(0, f'backend="{backend}" became "streams", because {why}.')
        backend = "streams"
    merges = backend in ("explicit", "capture") and not watch
    options = options.changed(
        inline=options.inline or watch or backend != "explicit" or "child_order" in target.quirks,
        # Launches of one graph never overlap, but launches issued on streams may: each then needs memory of its own.
        pack=(options.pack and "all") if shared else options.pack and backend != "streams",
        batch=merges and options.batch,
        programmatic=merges and options.programmatic,
    )
    plan = _planned(workflow, target, options, watch=watch, device=device)
    if backend == "explicit" and "child_fallback_crash" in target.quirks and len(plan.steps) >= _FALLS_BACK:
        child = next((step for step in plan.steps if step.node.calls == "capture" or _is_cooperative(step)), None)
        if child is not None:
            why = f"{target.name} may crash on so many nodes with child graphs among them, as {child.name!r} would be"
            _log.info("graph %r: backend 'explicit' is 'capture', because %s", workflow.name, why)
            notes.append(f'backend="explicit" became "capture", because {why}.')
            backend = "capture"
    return replace(plan, notes=(*plan.notes, *notes)) if notes else plan, backend, options


def _planned(workflow: Workflow, target: Target, options: PlanOptions, *, watch: bool, device: int) -> Plan:
    plan = make_plan(workflow, target, options, device=device)
    if not watch:
        return plan
    from ..plan.watch import watched

    return watched(plan, target)


def _is_cooperative(step: Step) -> bool:
    return step.node.launched is not None and step.node.launched.cooperative


class State(NamedTuple):
    """The state of an Executable's graph."""

    workflow: Workflow
    """The workflow with the changes to nodes made since it was compiled; the plan's steps include them too."""
    plan: Plan
    disabled: frozenset[int]
    """Indices of disabled steps, which do nothing but keep their predecessors and successors ordered."""
    options: PlanOptions
    """What the plan was made with."""
    uses: Uses
    children_off: frozenset[str] = frozenset()
    """Children that were disabled as a whole and are no longer steps, because they were inlined."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    """Defaults of parameters that updates have changed; `workflow` has those that it was compiled with."""
    replans: int = 0
    """How many times the plan was made again, so that its steps are others; all other changes keep their indices and lanes."""

    @property
    def names_off(self) -> list[str]:
        """The names of the disabled children and steps."""
        return [*self.children_off, *(self.plan.steps[i].name for i in self.disabled)]

    def replanned(self, target: Target, options: PlanOptions, *, watch: bool | None = None) -> State:
        """Return the state with a plan made with these options and the same nodes disabled; `watch` None: watched as before."""
        watch = self.plan.watch is not None if watch is None else watch
        plan = _planned(self.workflow, target, options, watch=watch, device=self.plan.device)
        uses = Uses(self.workflow, plan, self.uses.scope)
        made = self._replace(plan=plan, options=options, uses=uses, replans=self.replans + 1)
        return made.without(self.names_off)

    def on_streams(self, target: Target) -> State:
        """Return the state with a plan that can be issued on streams, in which only nodes that share a launch now share one."""
        plan = self.plan
        if plan.batches and plan.packing is None and not any(step.child or step.bodies for step in plan.steps):
            return self
        shared = _together(plan)
        options = replace(self.options, inline=True, pack=False)
        if shared:
            made = self.replanned(target, options, watch=False)
            if _together(made.plan) <= shared:
                return made
        return self.replanned(target, replace(options, batch=False), watch=False)

    def without(self, names: list[str]) -> State:
        """Return the state with exactly these nodes, and all nodes inside them, disabled."""
        off = (step.index for step in self.plan.steps if any(within(step.name, name) for name in names))
        children = (name for name in names if any(step.name.startswith(f"{name}/") for step in self.plan.steps))
        return self.with_disabled(frozenset(off), frozenset(children))

    def with_disabled(self, disabled: frozenset[int], children_off: frozenset[str]) -> State:
        """Return the state with exactly these steps disabled."""
        return self._replace(disabled=disabled, children_off=children_off)

    def steps_since(self, before: State) -> list[int]:
        """Return the steps that differ from those of another state of the same plan."""
        if self.plan is before.plan:
            return []
        return [new.index for old, new in zip(before.plan.steps, self.plan.steps) if new is not old]

    def changed(self, workflow: Workflow, steps: Mapping[int, Step], *, same_uses: bool) -> State:
        """Return the state with another workflow of the same shape, and the steps that differ; `same_uses` as of `uses_alike`."""
        plan = self.plan.with_steps(steps)
        uses = self.uses if same_uses else Uses(workflow, plan, self.uses.scope)
        return self._replace(workflow=workflow, plan=plan, uses=uses)


class Change(NamedTuple):
    """The next state of a graph, and how it differs from the current one."""

    state: State
    steps: tuple[int, ...] = ()
    """Steps that may do something else, or that are enabled or disabled; ignored if the plan was made again."""
    names: tuple[Name, ...] = ()
    """New values of names: parameter values and bindings of children."""
    values: Mapping[str, Any] = MappingProxyType({})
    """The parameter values among `names`, by launch keyword."""
    kernels: tuple[Kernel, ...] = ()
    """Kernels of changed nodes, which may not have been loaded yet."""


def _together(plan: Plan) -> set[tuple[str, ...]]:
    from ..plan.launches import names_of, together

    return {names_of(plan, run) for run in together(plan)}


def within(name: str, outer: str) -> bool:
    """Return whether a node's name is `outer`, or names a node inside `outer`."""
    return f"{name}/".startswith(f"{outer}/")


def put(names: Iterable[Name]) -> None:
    """Assign the new values to the names."""
    for table, key, value in names:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
