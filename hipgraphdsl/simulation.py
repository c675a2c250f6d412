"""Simulation: when each node would run, by list scheduling over engines, links between ranks, and the thread that launches."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from .arrays import Array, as_dict
from .errors import DeclarationError
from .inlining import flattened
from .launches import kind_of, names_of, titled, together
from .links import Link
from .nodes import EagerNode, EmptyNode
from .partition import partition
from .placement import device_of, devices_of
from .plan import Cut, Plan
from .planning import Batch, make_plan
from .sharing import Message, Sharing
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
    ranks: tuple[int, ...] = ()
    nbytes: int = 0
    members: tuple[str, ...] = ()
    kind: str = ""
    """Of the launch that does several nodes."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that it is of."""
        return self.members or (self.name,)


class _Shared(NamedTuple):
    """Nodes that one launch does."""

    kind: str
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the launch is called."""
        return titled(self.kind, self.names)


_Share = Callable[[Workflow, int], list[_Shared]]
"""Takes a workflow and a device."""


def simulate(
    workflow: Workflow,
    durations: Durations,
    engines: Mapping[str, int] | None = None,
    *,
    unit: Literal["us", "units"] = "units",
    sharing: Sharing | None = None,
    link: Link | None = None,
    target: Target | None = None,
    batch: Batch = "auto",
) -> Timeline:
    """Predict when each node runs, by list scheduling: a free engine takes the first ready node in topological order.

    Parameters
    ----------
    workflow : Workflow
    durations : mapping or callable
        Time of each node: by name, by direction of a copy (``"H2D"``, ``"D2H"``, ``"D2D"``, ``"H2H"``) or by kind
        (``"kernel"``, ``"memcpy"``, ``"memset"``, ``"host"``, ...), the first that is there; or a function of the node.
        Empty nodes, events, allocations, semaphores and memory operations take no time unless they are named. A child
        graph that is not named is expanded. What crosses between ranks takes what `link` says unless it is named.
    engines : mapping, optional
        How many there are of each of `ENGINES`, added to one each of ``"H2D"``, ``"D2H"`` and ``"kernel"``. Copies
        inside a device and memsets use the kernel engine where theirs is not given; host nodes have no limit unless
        ``"host"`` is given. Each device, and the host of each rank, has as many of its own.
    unit : {"us", "units"}
        What the durations are.
    sharing : Sharing, optional
        Who of several ranks does what. Each rank's part is simulated as that rank would compile it.
    link : Link, optional
        What joins the ranks; needed where there are several, and the durations are microseconds then.
    target : Target, optional
        Whose plan says which nodes share a launch.
    batch : bool or "auto"
        As for `make_plan`. The nodes of a batch are taken to run at once, so that it takes as long as the longest; a chain takes
        as long as all of its nodes. The launch may also be given a duration, by the name of its span. With ``"auto"`` and no
        target, and where what a batch saves has not been measured, each node is a launch of its own.

    Notes
    -----
    What the host does between graphs, eager nodes and the conditional nodes that it decides, is of the engine ``"host"``. One
    thread does it, so these steps follow each other, and graphs that are launched later begin later; but an eager node that is
    given no host array is called at once, and its time is that of the work which it puts on the stream. A graph begins when the
    graphs that it follows have ended.

    A message is one span, of the engine ``"link@0->1"``: it begins when the sender and the receiver have come to it, and those of
    one direction between two ranks follow each other. A collective begins when all ranks have come to it. Neither slows down
    other messages, copies or kernels, and bytes that lie on a device leave from there.

    Raises
    ------
    DeclarationError
        If an engine or a duration's key is not known, a duration is missing or no finite number from 0, there is a cycle, or
        there are several ranks and no link.
    """
    limits = _limits(engines)
    times = _Times(durations)
    share = partial(_shared, target=target or Target.named("cpu"), batch=batch)
    if sharing is None:
        tasks = _tasks(workflow, times, limits, devices_of(workflow, 0), share)
    else:
        tasks = _of_ranks(sharing, link, times, limits, share)
    times.require_used(workflow)
    limits |= {task.engine: limits[kind] for task in tasks if (kind := task.engine.partition("@")[0]) in limits}
    spans, deps = _without_launches(*_schedule(tasks, limits), sum(task.node is not _LAUNCH for task in tasks))
    used = {span.engine for span in spans}
    counts = tuple((name, count) for name, count in limits.items() if name in used)
    return Timeline(workflow.name, unit if link is None else "us", spans, deps, counts)


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


class _Times:
    """How long each node takes, by full name."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._found: dict[str, float | None] = {}

    def of(self, name: str, node: AnyNode) -> float | None:
        """Return the duration of a node; None where there is none."""
        if name not in self._found:
            self._found[name] = _duration(name, node, self._durations)
        return self._found[name]

    def named(self, name: str, node: AnyNode) -> float | None:
        """Return the duration that is given by a node's own name; None where there is none."""
        if isinstance(self._durations, Mapping) and name in self._durations:
            return self.of(name, node)
        return None

    def require_used(self, workflow: Workflow) -> None:
        """Refuse keys that stand for nothing."""
        kinds = {*ENGINES, *KINDS}
        for key in self._durations if isinstance(self._durations, Mapping) else ():
            if key not in self._found and key not in kinds:
                raise DeclarationError(
                    f"simulate: durations has {key!r}, which is neither a node of graph {workflow.name!r} nor a kind"
                    " or direction",
                    node=str(key),
                )


def _shared(workflow: Workflow, device: int, target: Target, batch: Batch) -> list[_Shared]:
    """Return the nodes of a workflow that share launches where it is compiled for a target."""
    if isinstance(batch, str) and batch == "auto" and not target.costs.batched_us:
        return []
    inline = "child_order" in target.quirks
    plan = make_plan(workflow, target, inline=inline, pack=True, batch=batch, programmatic=False, device=device)
    return [_Shared(kind_of(plan, run.start), names_of(plan, run)) for run in together(plan)]


def _tasks(
    workflow: Workflow, times: _Times, limits: Mapping[str, int], devices: Sequence[int], share: _Share, device: int = 0
) -> list[_Task]:
    """Return what a workflow does in one process.

    Parameters
    ----------
    devices : sequence of int
        Those that all processes use.
    share : callable
        Says which nodes share a launch.
    device : int
        That of nodes which name none.
    """
    plan = make_plan(workflow, Target.named("cpu"), lanes=None, device=device)
    lanes = {step.name: step.lane for step in plan.steps}
    tasks: list[_Task] = []

    def lane_of(name: str) -> int:
        """Return the lane of a step, or of the child graph node that contains it."""
        while name and name not in lanes:
            name = name.rpartition("/")[0]
        return lanes.get(name, 0)

    flats = flattened(workflow, lambda name, child: times.of(name, child) is None)
    nodes = {flat.name: flat.node for flat in flats}
    shared = [one for one in share(workflow, device) if nodes.keys() >= {*one.names}]
    told = {name for one in shared if times.named(one.title, nodes[one.names[0]]) is not None for name in one.names}
    for flat in flats:
        name, node = flat.name, flat.node
        meets = isinstance(node, EagerNode) and isinstance(node.fn, _Meeting)
        duration = 0.0 if meets else times.of(name, node)
        if duration is None:
            duration = 0.0 if name in told else _missing(name, node)
        engine = _placed(node.engine, limits)
        if len(devices) > 1:
            engine = engine_on(engine, device_of(node, device, flat.level), devices)
        waits = not isinstance(node, EagerNode) or any(_on_host(flat.level.resolve(view.root)[1]) for view in node.addresses)
        tasks.append(_Task(name, node, flat.deps, duration, engine, lane_of(name), waits=waits, nbytes=node.copied_bytes))
    return _joined(tasks if plan.cut is None else _launched(tasks, plan, plan.cut), shared, times)


def _joined(tasks: list[_Task], shared: Sequence[_Shared], times: _Times) -> list[_Task]:
    """Return tasks with one in place of those of each launch."""
    at = {task.name: i for i, task in enumerate(tasks)}
    stand_in = list(range(len(tasks)))
    launches: dict[int, _Task] = {}
    for one in shared:
        own = [at[name] for name in one.names]
        first, each = tasks[min(own)], [tasks[i].duration for i in own]
        duration = times.named(one.title, first.node)
        if len({tasks[i].segment for i in own}) > 1:  # the host has something to do between them
            if duration is not None:
                _missing(first.name, first.node)
            continue
        if duration is None:
            duration = max(each) if one.kind == "batch" else math.fsum(each)
        deps = tuple(d for i in own for d in tasks[i].deps if d not in own)
        launches[min(own)] = first._replace(name=one.title, deps=deps, duration=duration, members=one.names, kind=one.kind)
        for i in own:
            stand_in[i] = min(own)
    kept = [i for i, to in enumerate(stand_in) if to == i]
    place = dict(zip(kept, range(len(kept))))
    made = [launches.get(i, tasks[i]) for i in kept]
    return [task._replace(deps=tuple(dict.fromkeys(place[stand_in[d]] for d in task.deps))) for task in made]


@dataclass(frozen=True)
class _Meeting:
    """Stands for the function of a node that sends and receives."""

    messages: tuple[Message, ...]
    __name__ = "exchange"

    def __call__(self, *given: Any) -> None:
        """Do nothing."""


def _of_ranks(sharing: Sharing, link: Link | None, times: _Times, limits: dict[str, int], share: _Share) -> list[_Task]:
    """Return what all ranks do, and what crosses between them; the launches of segments stand behind all others."""
    layout, messages, devices = sharing.layout, sharing.outer_messages, devices_of(sharing.workflow, 0)
    parts = []
    for rank, first in enumerate(layout.firsts):
        part = partition(sharing, rank, lambda messages, direct: _Meeting(messages))
        parts.append(_tasks(part.workflow, times, limits, devices, share, first))
    own = [(rank, i) for rank, tasks in enumerate(parts) for i, task in enumerate(tasks) if _met(task) is None]
    own.sort(key=lambda at: parts[at[0]][at[1]].node is _LAUNCH)
    count = sum(parts[rank][i].node is not _LAUNCH for rank, i in own)
    place = {at: n if n < count else n + len(messages) for n, at in enumerate(own)}
    number = {message.number: at for at, message in enumerate(messages)}
    alike = Counter(
        [*(name for rank, i in own[:count] for name in parts[rank][i].nodes), *(message.name for message in messages)]
    )

    def ended(rank: int, deps: Sequence[int]) -> Sequence[int]:
        """Return the places of what a task of a rank waits for."""
        found = (
            (place[rank, d],) if (met := _met(parts[rank][d])) is None else (count + number[m.number] for m in met) for d in deps
        )
        return tuple(at for places in found for at in places)

    waits: list[dict[int, None]] = [{} for _ in messages]
    for rank, tasks in enumerate(parts):
        for task in tasks:
            for message in _met(task) or ():
                waits[number[message.number]].update(dict.fromkeys(ended(rank, task.deps)))
    made = []
    for rank, i in own:
        task = parts[rank][i]
        names = tuple(f"{name} (rank {rank})" if alike[name] > 1 else name for name in task.nodes)
        if task.members:
            task = task._replace(members=names)
        name = titled(task.kind, names) if task.members else names[0]
        several = layout.size > 1 and task.engine in ("host", "H2H")
        engine = f"{task.engine}@{layout.firsts[rank]}" if several else task.engine
        made.append(task._replace(name=name, deps=tuple(ended(rank, task.deps)), engine=engine, ranks=(rank,)))
    between = []
    for message, deps in zip(messages, waits):
        task = _crossing(message, tuple(deps), sharing, link, times)
        between.append(task._replace(name=f"{task.name} (to rank {message.target})") if alike[task.name] > 1 else task)
    limits["link"] = 1
    return [*made[:count], *between, *made[count:]]


def _met(task: _Task) -> tuple[Message, ...] | None:
    """Return the messages that a task of one rank sends and receives."""
    return task.node.fn.messages if isinstance(task.node, EagerNode) and isinstance(task.node.fn, _Meeting) else None


def _crossing(message: Message, deps: tuple[int, ...], sharing: Sharing, link: Link | None, times: _Times) -> _Task:
    """Return what stands for a message or a collective."""
    if link is None:
        raise DeclarationError(
            f"simulate: {message.name!r} crosses between ranks; say what joins them: link=hg.Link(latency_us=..., gb_s=...)",
            node=message.name,
        )
    size, whole = sharing.layout.size, message.together
    node = sharing.workflow.node(message.name) if message.moves else None
    node = EmptyNode(name=message.name) if node is None else node
    duration = times.named(message.name, node)
    if whole is not None:
        cost = link.collective_us(whole.does, whole.part_bytes, size) if duration is None else duration
        return _Task(message.name, node, deps, cost, "collective", 0, ranks=tuple(range(size)), nbytes=whole.part_bytes)
    cost = link.message_us(message.nbytes) if duration is None else duration
    ends = (message.source, message.target)
    return _Task(message.name, node, deps, cost, f"link@{ends[0]}->{ends[1]}", 0, ranks=ends, nbytes=message.nbytes)


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
    changed: set[str] = set()  # engines that have become free, or have more to do
    running: list[tuple[float, int]] = []

    def begin(i: int, now: float) -> None:
        starts[i], stops[i] = now, now + tasks[i].duration
        heapq.heappush(running, (stops[i], i))

    def admit(i: int, now: float) -> None:
        engine = tasks[i].engine
        if engine in waiting and tasks[i].duration > 0:
            heapq.heappush(waiting[engine], i)
            changed.add(engine)
        else:
            begin(i, now)

    for i, count in enumerate(missing):
        if not count:
            admit(i, 0.0)
    now = 0.0
    while True:
        if not running or running[0][0] > now:  # everything that ends now has ended: engines take what is ready
            for engine in changed:
                ready = waiting[engine]
                while ready and free[engine]:
                    free[engine] -= 1
                    begin(heapq.heappop(ready), now)
            changed.clear()
            if not running:
                break
        now, i = heapq.heappop(running)
        task = tasks[i]
        if task.engine in waiting and task.duration > 0:
            free[task.engine] += 1
            changed.add(task.engine)
        for follower in followers[i]:
            missing[follower] -= 1
            if not missing[follower]:
                admit(follower, now)
    spans = tuple(
        Span(task.name, start, stop, task.engine, task.lane, task.kind or task.node.kind,
             task.nbytes, task.segment, task.ranks, task.members)
        for task, start, stop in zip(tasks, starts, stops)
    )  # fmt: skip
    return spans, tuple(task.deps for task in tasks)
