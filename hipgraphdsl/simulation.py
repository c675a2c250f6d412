"""Simulation: when each node would run, by list scheduling over engines, and over the thread that launches."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from .arrays import Array, as_dict
from .errors import DeclarationError
from .inlining import flattened
from .nodes import EagerNode, EmptyNode
from .placement import device_of, devices_of
from .plan import Cut, Plan, make_plan
from .target import Target
from .timeline import Span, Timeline, engine_on
from .workflow import KINDS, AnyNode, Workflow

Durations = Mapping[str, float] | Callable[[AnyNode], float]

ENGINES = ("H2D", "D2H", "D2D", "H2H", "copy", "kernel", "memset", "host")
"""Engines that `simulate` knows. ``"copy"`` takes both directions where it is given and they are not."""

_DEFAULT_ENGINES = {"H2D": 1, "D2H": 1, "kernel": 1}


class _Task(NamedTuple):
    name: str
    node: AnyNode
    deps: tuple[int, ...]
    duration: float
    engine: str
    lane: int
    segment: int = 0
    waits: bool = True
    """Whether the host waits until what it follows has finished; else it puts work on a stream and goes on."""


def simulate(
    workflow: Workflow,
    durations: Durations,
    engines: Mapping[str, int] | None = None,
    *,
    unit: Literal["us", "units"] = "units",
) -> Timeline:
    """Predict when each node runs, by list scheduling: a free engine takes the first ready node in topological order.

    Parameters
    ----------
    workflow : Workflow
    durations : mapping or callable
        Time of each node: by name, by direction of a copy (``"H2D"``, ``"D2H"``, ``"D2D"``, ``"H2H"``) or by kind
        (``"kernel"``, ``"memcpy"``, ``"memset"``, ``"host"``, ...), the first that is there; or a function of the node.
        Empty nodes, events, allocations, semaphores and memory operations take no time unless they are named. A child
        graph that is not named is expanded.
    engines : mapping, optional
        How many there are of each of `ENGINES`, added to one each of ``"H2D"``, ``"D2H"`` and ``"kernel"``. Copies
        inside a device and memsets use the kernel engine where theirs is not given; host nodes have no limit unless
        ``"host"`` is given. Each device has as many of its own.
    unit : {"us", "units"}
        What the durations are.

    Notes
    -----
    What the host does between graphs, eager nodes and the conditional nodes that it decides, is of the engine ``"host"``. One
    thread does it, so these steps follow each other, and graphs that are launched later begin later; but an eager node that is
    given no host array is called at once, and its time is that of the work which it puts on the stream. A graph begins when the
    graphs that it follows have ended.

    Raises
    ------
    DeclarationError
        If an engine or a duration's key is not known, a duration is missing or no finite number from 0, or there is a
        cycle.
    """
    limits = _limits(engines)
    tasks = _tasks(workflow, durations, limits)
    limits |= {task.engine: limits[kind] for task in tasks if (kind := task.engine.partition("@")[0]) in limits}
    spans, deps = _without_launches(*_schedule(tasks, limits), sum(task.node is not _LAUNCH for task in tasks))
    used = {span.engine for span in spans}
    counts = tuple((name, count) for name, count in limits.items() if name in used)
    return Timeline(workflow.name, unit, spans, deps, counts)


def _limits(engines: Mapping[str, int] | None) -> dict[str, int]:
    limits = dict(_DEFAULT_ENGINES)
    given = as_dict(engines, "simulate: engines")
    if "copy" in given:
        for direction in ("H2D", "D2H"):
            del limits[direction]
    for name, count in given.items():
        if name not in ENGINES:
            raise DeclarationError(f"simulate: there is no engine {name!r}; engines are {', '.join(map(repr, ENGINES))}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise DeclarationError(f"simulate: engines[{name!r}] is how many there are, an int from 1 (got {count!r})")
        limits[name] = count
    return limits


def _placed(engine: str, limits: Mapping[str, int]) -> str:
    """Return the engine that really takes a node's work."""
    if engine in limits or not engine:
        return engine
    if engine in ("H2D", "D2H"):
        return "copy"
    if engine in ("D2D", "memset"):
        return "kernel"
    return "host"


def _tasks(workflow: Workflow, durations: Durations, limits: Mapping[str, int]) -> list[_Task]:
    plan = make_plan(workflow, Target.named("cpu"), lanes=None)
    lanes = {step.name: step.lane for step in plan.steps}
    devices = devices_of(workflow, 0)
    tasks: list[_Task] = []
    found: dict[str, float | None] = {}

    def duration_of(name: str, node: AnyNode) -> float | None:
        if name not in found:
            found[name] = _duration(name, node, durations)
        return found[name]

    def lane_of(name: str) -> int:
        """Return the lane of a step, or of the child graph node that contains it."""
        while name and name not in lanes:
            name = name.rpartition("/")[0]
        return lanes.get(name, 0)

    for flat in flattened(workflow, lambda name, child: duration_of(name, child) is None):
        name, node = flat.name, flat.node
        duration = duration_of(name, node)
        if duration is None:
            duration = _missing(name, node)
        engine = _placed(node.engine, limits)
        if len(devices) > 1:
            engine = engine_on(engine, device_of(node, 0, flat.level), devices)
        waits = not isinstance(node, EagerNode) or any(_on_host(flat.level.resolve(view.root)[1]) for view in node.addresses)
        tasks.append(_Task(name, node, flat.deps, duration, engine, lane_of(name), waits=waits))
    if isinstance(durations, Mapping):
        kinds = {*ENGINES, *KINDS}
        for key in durations:
            if key not in found and key not in kinds:
                raise DeclarationError(
                    f"simulate: durations has {key!r}, which is neither a node of graph {workflow.name!r} nor a kind"
                    " or direction",
                    node=str(key),
                )
    return tasks if plan.cut is None else _launched(tasks, plan, plan.cut)


def _on_host(root: object) -> bool:
    return isinstance(root, Array) and root.on_host


_LAUNCH: Final = EmptyNode(name="launch")
"""The node of tasks that stand for the launch of a segment; they are no spans."""


def _launched(tasks: list[_Task], plan: Plan, cut: Cut) -> list[_Task]:
    """Return tasks as the thread that launches lets them begin; the launches of segments stand behind all others."""
    found = {task.name: i for i, task in enumerate(tasks)}
    inside: dict[str, int] = {}  # of a step that the tasks of its nodes stand for, or of a child that stands for steps, the group
    for number, members in enumerate(cut.members):
        for i in members:
            inside[plan.steps[i].name] = number
    groups: list[list[int]] = [[] for _ in cut.members]
    for name, i in found.items():
        while name and name not in inside:
            name = name.rpartition("/")[0]
        if not name:  # a child with a duration of its own that the host cuts: which part of it runs when is not known
            return tasks
        groups[inside[name]].append(i)
    segment_of = cut.segment_of
    made = list(tasks)
    before: tuple[int, ...] = ()  # what the thread has done last
    ends: list[tuple[int, ...]] = []  # for each group what finishes it
    for step, members, group in zip(cut.plan.steps, cut.members, groups):
        sources = tuple(end for source in step.deps for end in ends[source])
        if step.by_host:
            (i,) = group
            made[i] = tasks[i]._replace(deps=tuple(dict.fromkeys((*tasks[i].deps, *sources, *before))), engine="host")
            before = (i,) if tasks[i].waits else before
            ends.append((i,))
            continue
        own = set(group)
        launch = len(made)
        made.append(_Task("", _LAUNCH, tuple(dict.fromkeys((*sources, *before))), 0.0, "", 0))
        for i in group:
            deps = tasks[i].deps if own.intersection(tasks[i].deps) else (*tasks[i].deps, launch)
            made[i] = tasks[i]._replace(deps=deps, segment=segment_of[members[0]])
        followed = {d for i in group for d in tasks[i].deps}
        ends.append(tuple(i for i in group if i not in followed))
    return made


def _without_launches(
    spans: tuple[Span, ...], deps: tuple[tuple[int, ...], ...], count: int
) -> tuple[tuple[Span, ...], tuple[tuple[int, ...], ...]]:
    """Return the first spans alone; what waits for the launch of a segment waits for what that waited for longest."""
    longest = {i: max(deps[i], key=lambda d: (spans[d].stop, -d), default=-1) for i in range(count, len(spans))}
    kept = tuple(
        tuple(dict.fromkeys(d for source in sources if (d := longest.get(source, source)) >= 0)) for sources in deps[:count]
    )
    return spans[:count], kept


def _duration(name: str, node: AnyNode, durations: Durations) -> float | None:
    value: Any = None
    where = f"durations[{name!r}]"
    if isinstance(durations, Mapping):
        for key in (name, *node.duration_keys):
            if key in durations:
                value, where = durations[key], f"durations[{key!r}]"
                break
        else:
            return None if node.work else 0.0
    elif callable(durations):
        value = durations(node)
        where = f"the duration of node {name!r}"
        if value is None:
            return None if node.work else 0.0
    else:
        raise DeclarationError(f"simulate: durations is a mapping or a function of a node (got {durations!r})")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, (bool, str)) or not 0 <= number < math.inf:
        raise DeclarationError(f"simulate: {where} is a time, a finite number from 0 (got {value!r})", node=name)
    return number


def _missing(name: str, node: AnyNode) -> float:
    keys = dict.fromkeys((name, *node.duration_keys))
    raise DeclarationError(
        f"simulate: node {name!r} ({node.kind}) has no duration; give durations[{'] or durations['.join(map(repr, keys))}]",
        node=name,
    )


def _schedule(tasks: Sequence[_Task], limits: Mapping[str, int]) -> tuple[tuple[Span, ...], tuple[tuple[int, ...], ...]]:
    """Run the tasks in simulated time. Ties go to the lower position, so the result is always the same."""
    followers: list[list[int]] = [[] for _ in tasks]
    missing = [len(task.deps) for task in tasks]
    for i, task in enumerate(tasks):
        for source in task.deps:
            followers[source].append(i)
    starts = [0.0] * len(tasks)
    stops = [0.0] * len(tasks)
    free = dict(limits)
    waiting: dict[str, list[int]] = {name: [] for name in limits}
    running: list[tuple[float, int]] = []

    def begin(i: int, now: float) -> None:
        starts[i], stops[i] = now, now + tasks[i].duration
        heapq.heappush(running, (stops[i], i))

    def admit(i: int, now: float) -> None:
        engine = tasks[i].engine
        if engine in waiting and tasks[i].duration > 0:
            heapq.heappush(waiting[engine], i)
        else:
            begin(i, now)

    for i, count in enumerate(missing):
        if not count:
            admit(i, 0.0)
    now = 0.0
    while True:
        if not running or running[0][0] > now:  # everything that ends now has ended: engines take what is ready
            for engine, ready in waiting.items():
                while ready and free[engine]:
                    free[engine] -= 1
                    begin(heapq.heappop(ready), now)
            if not running:
                break
        now, i = heapq.heappop(running)
        task = tasks[i]
        if task.engine in waiting and task.duration > 0:
            free[task.engine] += 1
        for follower in followers[i]:
            missing[follower] -= 1
            if not missing[follower]:
                admit(follower, now)
    spans = tuple(
        Span(task.name, start, stop, task.engine, task.lane, task.node.kind,
             task.node.copied_bytes, task.segment)
        for task, start, stop in zip(tasks, starts, stops)
    )  # fmt: skip
    return spans, tuple(task.deps for task in tasks)
