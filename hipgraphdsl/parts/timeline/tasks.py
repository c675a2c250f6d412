"""Tasks: the work of one process in a simulated launch, with dependencies.

Data flow: `Workflow` and `Plan` -> nodes in order, with children and expanded conditional nodes replaced by their contents -> a
`Task` for each, with dependencies from the plan and the launching thread -> tasks that share a launch merged into one. The bodies
of an expanded conditional node follow the task that reads its condition, a *look*; each pass of a loop repeats the first pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...errors import DeclarationError
from ...nodes import Node, node_of
from ...nodes.facets import Branch
from ...nodes.workflow import Level, Workflow
from ...order import successors
from ...placement import device_of, is_host
from ...plan.inlining import FlatNode, flattened
from ...plan.launches import kind_of, names_of, titled, together
from ...plan.options import Batch, PlanOptions
from ...plan.planning import make_plan
from ...plan.steps import Cut, Plan, Step
from ...target import Target
from ..ranks.sharing import Message
from .assumptions import Conditions, Runs, Times, missing, placed_on
from .timeline import engine_on

MOST_SPANS: Final = 1_000_000
"""Maximum number of spans of a simulation with expanded conditional nodes."""


class Task(NamedTuple):
    """A future span, or a launch that other tasks wait for."""

    name: str
    node: Node
    deps: tuple[int, ...]
    duration: float
    engine: str
    lane: int
    segment: int = 0
    ranks: tuple[int, ...] = ()
    nbytes: int = 0
    members: tuple[str, ...] = ()
    kind: str = ""  # for a launch of several nodes
    passes: tuple[int, ...] = ()  # for each enclosing loop, outermost first, the number of its pass, from 0
    look: int = -1  # for a loop the number of the look at its condition, from 0
    origin: str = ""  # the node's name, if the task's name contains the pass or the look

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its members, or its own name if it has none."""
        return self.members or (self.name,)

    @property
    def is_launch(self) -> bool:
        """Whether it is a launch, which has no span."""
        return self.node is _LAUNCH


_LAUNCH: Final = node_of("empty", name="launch")


@dataclass(frozen=True)
class Meeting:
    """Placeholder for the function of a node that sends and receives."""

    messages: tuple[Message, ...]
    __name__ = "exchange"

    def __call__(self, *given: Any) -> None:
        """Do nothing."""


def met(task: Task) -> tuple[Message, ...] | None:
    """Return the messages that a task of one rank sends and receives; None for any other task."""
    return task.node.callback.messages if isinstance(task.node.callback, Meeting) else None


class Shared(NamedTuple):
    """Nodes that share one launch."""

    kind: str
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """The title of the launch."""
        return titled(self.kind, self.names)


def shared(workflow: Workflow, device: int, target: Target, batch: Batch) -> list[Shared]:
    """Return the nodes of a workflow that share launches when it is compiled for a target."""
    if isinstance(batch, str) and batch == "auto" and not target.costs.batched_us:
        return []
    inline = "child_order" in target.quirks
    plan = make_plan(workflow, target, PlanOptions(inline=inline, batch=batch, programmatic=False), device=device)
    return [Shared(kind_of(plan, run[0]), names_of(plan, run)) for run in together(plan)]


class Assumed(NamedTuple):
    """Assumptions common to all processes."""

    times: Times
    conditions: Conditions
    limits: Mapping[str, int]  # engines that have a limit
    devices: Sequence[int]  # the devices that all processes use
    share: Callable[[Workflow, int], list[Shared]]  # return the nodes of a workflow that share launches on a device


def tasks_of(workflow: Workflow, assumed: Assumed, device: int = 0, spans: int = 0) -> list[Task]:
    """Return the tasks of a workflow in one process.

    Nodes that name no device run on `device`; other processes have used `spans` of `MOST_SPANS`. A DeclarationError is raised if
    a node has no duration or one that it cannot have, or if there are too many passes.
    """
    times = assumed.times
    plan = make_plan(workflow, Target.named("cpu"), PlanOptions(lanes=None, pack=False), device=device)
    builder = _Builder(assumed, device, spans)
    flats = builder.flats(Level(workflow))
    nodes = {flat.name: flat.node for flat in flats}
    several = [one for one in assumed.share(workflow, device) if nodes.keys() >= {*one.names}]
    builder.told = {name for one in several if times.named(one.title, nodes[one.names[0]]) is not None for name in one.names}
    builder.add(plan, flats, _Place())
    return _joined([_labelled(task) for task in builder.tasks], several, times)


def title(name: str, passes: Sequence[int], look: int = -1) -> str:
    """Return a name with the number of its pass or its look at a condition: ``"loop/0/x (pass 1)"``."""
    said = [f"pass {'.'.join(map(str, passes))}"] if passes else []
    said += [f"look {look}"] if look >= 0 else []
    return f"{name} ({', '.join(said)})" if said else name


def _labelled(task: Task) -> Task:
    if not task.passes and task.look < 0:
        return task
    return task._replace(name=title(task.name, task.passes, task.look), origin=task.name)


class _Place(NamedTuple):
    """The context of a plan's nodes."""

    prefix: str = ""  # prefix of the nodes' full names, which names of the plan's steps lack
    host: bool = True  # whether the host launches the plan; else it is a body inside a graph
    passes: tuple[int, ...] = ()
    begin: tuple[int, ...] = ()  # tasks that a body follows; if the host launches the body, it has waited for them
    lane: int | None = None  # the lane of all tasks of a body; None for the outer plan, whose nodes have their own


class _Made(NamedTuple):
    """The tasks of a node, or of a body."""

    first: int
    stop: int  # one past the last
    ends: tuple[int, ...]  # its last tasks: it has ended when all of them have
    thread: tuple[int, ...]
    """Tasks that the launching thread has waited for afterwards; empty if it only enqueues work on a stream and continues."""


class _Builder:
    """Append the tasks of one process to a list; the tasks of a body follow the look at its condition."""

    def __init__(self, assumed: Assumed, device: int, spans: int) -> None:
        self.tasks: list[Task] = []
        """In order of declaration; the launches of segments follow the tasks of their plan."""
        self.told: set[str] = set()
        """Nodes that need no duration of their own, because the launch that they share has one."""
        self._assumed = assumed
        self._device = device
        self._others = spans
        self._launches = 0
        self._segments = 0

    @property
    def _spans(self) -> int:
        return len(self.tasks) - self._launches

    def flats(self, level: Level) -> list[FlatNode]:
        """Return the nodes of a level, with children that have no duration replaced by their nodes."""
        return flattened(level, lambda name, child: self._assumed.times.of(name, child) is None)

    def add(self, plan: Plan, flats: Sequence[FlatNode], place: _Place) -> _Made:
        """Add the nodes of a plan."""
        first, segments, begin = len(self.tasks), self._segments, place.begin
        cut = plan.cut if place.host else None
        if cut is not None:
            self._segments += sum(step.child is not None for step in cut.plan.steps)
        elif begin and place.host:  # a body that the host launches as one graph
            self._segments += 1
        steps = {place.prefix + step.name: step for step in plan.steps}
        made: list[_Made] = []
        for flat in flats:
            deps = tuple(dict.fromkeys(end for d in flat.deps for end in made[d].ends)) or begin
            here = place
            if place.lane is None:
                step = steps.get(_known(flat.name, steps))
                here = place._replace(lane=step.lane if step is not None else 0)
            runs = self._assumed.conditions.of(flat.name)
            if runs is not None and flat.node.branch is not None:
                made.append(self._add_conditional(flat, flat.node.branch, runs, steps[flat.name], deps, here))
            else:
                made.append(self._add_node(flat, deps, here))
        ends = _ends(range(len(flats)), flats, made) or begin
        groups = None if cut is None else _groups(plan, cut, [flat.name.removeprefix(place.prefix) for flat in flats])
        thread = begin
        if cut is not None and groups is not None:
            thread = self._add_launches(cut, groups, flats, made, begin, segments)
        elif cut is None and self._segments > segments:
            self._put_into(segments + 1, first, len(self.tasks))
        return _Made(first, len(self.tasks), ends, thread)

    def _add_node(self, flat: FlatNode, deps: tuple[int, ...], place: _Place) -> _Made:
        assumed, name, node = self._assumed, flat.name, flat.node
        if node.held:
            assumed.conditions.require_none_inside(name)
        meets = isinstance(node.callback, Meeting)
        duration = 0.0 if meets else assumed.times.of(name, node)
        if duration is None:
            if name not in self.told:
                raise missing(name, node)
            duration = 0.0
        engine = placed_on(node.engine, assumed.limits)
        if len(assumed.devices) > 1:
            engine = engine_on(engine, device_of(node, self._device, flat.level), assumed.devices)
        between = node.calls == "between"
        waits = not between or any(is_host(view.root, flat.level) for view in node.addresses)
        i, lane = len(self.tasks), place.lane or 0
        self.tasks.append(Task(name, node, deps, duration, engine, lane, nbytes=node.copied_bytes, passes=place.passes))
        return _Made(i, i + 1, (i,), (i,) if waits else ())

    def _add_conditional(
        self, flat: FlatNode, branch: Branch, runs: Runs, step: Step, deps: tuple[int, ...], place: _Place
    ) -> _Made:
        """Add the looks and passes of an expanded conditional node; `step` is its step in the plan."""
        if self._assumed.times.named(flat.name, flat.node) is not None:
            raise DeclarationError(
                f"simulate: node {flat.name!r} has a duration and a condition, by which the nodes inside take their own"
                " durations; leave one of the two out",
                node=flat.name,
            )
        host = place.host and step.by_host
        first, loops, passes = len(self.tasks), branch.mode == "while", place.passes
        engine, took, lane = "host" if host else "", self._assumed.times.of_look(), place.lane or 0

        def look(deps: tuple[int, ...], number: int) -> tuple[int, ...]:
            self.tasks.append(Task(flat.name, flat.node, deps, took, engine, lane, passes=passes, look=number))
            return (len(self.tasks) - 1,)

        at = look(deps, 0 if loops else -1)
        if not runs.passes:
            return _Made(first, len(self.tasks), at, at)
        body, level = step.bodies[runs.body], [*flat.level.inner(flat.node)][runs.body]
        flats, spans, segments = self.flats(level), self._spans, self._segments
        for number in range(runs.passes):
            self._segments = segments  # each pass launches the same graphs
            one = self.add(body, flats, _Place(level.prefix, host, (*passes, number) if loops else passes, at, lane))
            if not loops:
                return one._replace(first=first)
            more = (runs.passes - 1) * max(self._spans - spans, 1) + runs.passes // branch.check_every
            if not number and self._others + self._spans + more > MOST_SPANS:
                raise DeclarationError(
                    f"simulate: {runs.passes} passes of {flat.name!r} make more than {MOST_SPANS:,} spans; give fewer, or a"
                    " duration in place of the condition",
                    node=flat.name,
                )
            at = one.ends
            if (number + 1) % branch.check_every == 0:
                at = look(at, (number + 1) // branch.check_every)
            elif len(at) > 1:
                at = self._add_launch(at)
        return _Made(first, len(self.tasks), at, at)

    def _add_launches(
        self,
        cut: Cut,
        groups: Sequence[Sequence[int]],
        flats: Sequence[FlatNode],
        made: Sequence[_Made],
        begin: tuple[int, ...],
        segments: int,
    ) -> tuple[int, ...]:
        """Make tasks of a cut plan wait for the launching thread; return the tasks that the thread waited for last.

        `groups` has the nodes of each step of the cut; `segments` is the number of segments before those of this plan.
        """
        segment_of = cut.segment_of
        before = begin  # tasks that the thread waited for last
        ends: list[tuple[int, ...]] = []  # for each group its last tasks
        for step, members, group in zip(cut.plan.steps, cut.members, groups):
            sources = tuple(end for source in step.deps for end in ends[source])
            if step.by_host:
                (only,) = group
                one = made[only]
                self._follow(one.first, (*sources, *before))
                self.tasks[one.first] = self.tasks[one.first]._replace(engine="host")
                before = one.thread or before
                ends.append(one.ends)
                continue
            own = set(group)
            launch = self._add_launch((*sources, *before))
            for i in group:
                if not own.intersection(flats[i].deps):
                    self._follow(made[i].first, launch)
                self._put_into(segments + segment_of[members[0]], made[i].first, made[i].stop)
            ends.append(_ends(group, flats, made))
        return before

    def _add_launch(self, deps: Iterable[int]) -> tuple[int, ...]:
        """Add a task for the launch of a graph, or for the start of a pass without a look; return its index."""
        self.tasks.append(Task("", _LAUNCH, tuple(dict.fromkeys(deps)), 0.0, "", 0))
        self._launches += 1
        return (len(self.tasks) - 1,)

    def _follow(self, i: int, others: Iterable[int]) -> None:
        """Add dependencies to a task."""
        self.tasks[i] = self.tasks[i]._replace(deps=tuple(dict.fromkeys((*self.tasks[i].deps, *others))))

    def _put_into(self, segment: int, first: int, stop: int) -> None:
        """Put tasks into a segment."""
        for i in range(first, stop):
            self.tasks[i] = self.tasks[i]._replace(segment=segment)


def _known(name: str, names: Container[str]) -> str:
    """Return the first of a full name and the names of its enclosing nodes, innermost first, that is in `names`; else ``""``."""
    while name and name not in names:
        name = name.rpartition("/")[0]
    return name


def _ends(nodes: Sequence[int], flats: Sequence[FlatNode], made: Sequence[_Made]) -> tuple[int, ...]:
    """Return the last tasks of some nodes: when they have ended, all of the nodes have."""
    followed = {d for i in nodes for d in flats[i].deps}
    return tuple(end for i in nodes if i not in followed for end in made[i].ends)


def _groups(plan: Plan, cut: Cut, names: Sequence[str]) -> list[list[int]] | None:
    """Return the nodes of each step of a cut, as indices into `names`; None if a child with a duration of its own is cut."""
    # Step name -> its group; a node's own name, or that of a child graph around it, is the name of a step.
    inside = {plan.steps[i].name: number for number, members in enumerate(cut.members) for i in members}
    groups: list[list[int]] = [[] for _ in cut.members]
    for i, name in enumerate(names):
        found = _known(name, inside)
        if not found:  # it is unknown when each part of it runs
            return None
        groups[inside[found]].append(i)
    return groups


def _joined(tasks: list[Task], shared: Sequence[Shared], times: Times) -> list[Task]:
    """Replace the tasks of each shared launch by one task."""
    at = {task.name: i for i, task in enumerate(tasks)}
    stand_in = list(range(len(tasks)))
    launches: dict[int, Task] = {}
    empty = successors([task.deps if task.node.idle else () for task in tasks])
    for one in shared:
        own = [at[name] for name in one.names]
        first, each = tasks[min(own)], [tasks[i].duration for i in own]
        duration = times.named(one.title, first.node)
        if duration is None:
            duration = max(each) if one.kind == "batch" else math.fsum(each)
        deps = _outside(tasks, own, empty)
        launches[min(own)] = first._replace(name=one.title, deps=deps, duration=duration, members=one.names, kind=one.kind)
        for i in own:
            stand_in[i] = min(own)
    kept = [i for i, to in enumerate(stand_in) if to == i]
    place = dict(zip(kept, range(len(kept))))
    made = [launches.get(i, tasks[i]) for i in kept]
    return [task._replace(deps=tuple(dict.fromkeys(place[stand_in[d]] for d in task.deps))) for task in made]


def _outside(tasks: Sequence[Task], own: Sequence[int], empty: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the dependencies of a launch; `empty` has for each task the empty nodes that wait for it.

    An empty node that both follows the launch and precedes it runs inside it: its other dependencies become the launch's.
    """
    behind, reached = list(own), set(own)
    for i in behind:  # grows during iteration
        more = [after for after in empty[i] if after not in reached]
        reached.update(more)
        behind += more
    inside, seen, deps = list(own), set(own), []
    for i in inside:  # grows during iteration
        for d in tasks[i].deps:
            if d not in reached:
                deps.append(d)
            elif d not in seen:
                seen.add(d)
                inside.append(d)
    return tuple(deps)
