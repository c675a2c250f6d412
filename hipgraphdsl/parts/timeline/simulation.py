"""Simulation: predict when each node runs, by list scheduling over engines, links between ranks, and the launching thread.

Data flow: assumptions on nodes and engines (`assumptions`) -> the `tasks` of each process -> the tasks of all processes, with the
messages and collectives between them -> start and stop times.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ...errors import DeclarationError
from ...nodes import node_of
from ...nodes.workflow import Workflow
from ...order import successors
from ...plan.launches import titled
from ...plan.options import Batch
from ...target import Target
from ..ranks.links import Link
from ..ranks.partition import partition
from ..ranks.sharing import Message, Sharing
from .assumptions import Conditions, Durations, Times, engine_limits
from .tasks import Assumed, Meeting, Task, met, shared, tasks_of, title
from .timeline import Span, Timeline


def simulate(
    workflow: Workflow,
    durations: Durations,
    engines: Mapping[str, int] | None = None,
    *,
    sharing: Sharing | None = None,
    link: Link | None = None,
    target: Target | None = None,
    batch: Batch = "auto",
    conditions: Mapping[str, int | bool] | None = None,
) -> Timeline:
    """Predict when each node runs, by list scheduling: a free engine takes the first ready node in topological order.

    Parameters
    ----------
    durations, engines, batch, conditions
        As for `Graph.simulate`. The first duration found applies: by name, by direction of a copy (``"H2D"``, ``"D2H"``,
        ``"D2D"``, ``"H2H"``) or by kind. Empty nodes, events, allocations, semaphores and memory operations take no time unless
        a duration is given, and a child graph without a duration is expanded. Copies inside a device and memsets use the kernel
        engine unless their own is given; host nodes have no limit unless ``"host"`` is given. Each device, and the host of each
        rank, has that many engines of its own.
    sharing : Sharing, optional
        Which rank does which nodes. Each rank's part is simulated as that rank would compile it.
    link : Link, optional
        The connection between ranks; required if there are several, and durations are then microseconds.
    target : Target, optional
        The target whose plan decides which nodes share a launch. With ``batch="auto"``, each node is a launch of its own if
        there is no target, or if the saving of a batch on it has not been measured.

    Notes
    -----
    Work of the host between graphs, that is eager nodes and conditional nodes that the host decides, uses the engine ``"host"``.
    One thread does it, so these steps run one after another and delay the launch of later graphs; but an eager node without host
    arrays is called at once, and its duration is that of the work which it enqueues on the stream. A graph begins when the graphs
    that it follows have ended.

    A message is one span, on the engine ``"link@0->1"``: it begins when both sender and receiver have reached it, and messages
    in one direction between two ranks run one after another. A collective begins when all ranks have reached it. Neither slows
    down other messages, copies or kernels, and bytes on a device are sent from there.

    An expanded conditional node has a span for each look at its condition, whose duration is ``"condition"`` in `durations`, or
    0, and the spans of the bodies that run, one pass after another. If the host decides, a look is a step of the host.

    Raises
    ------
    DeclarationError
        If an engine, or a key of `durations` or `conditions`, is unknown, a duration is missing or not a finite number from 0, a
        condition is invalid for its node, passes make more than `tasks.MOST_SPANS` spans (counting all ranks, and a message once
        for each of its two ranks), there is a cycle, or there are several ranks and no link.
    """
    limits, times = engine_limits(engines), Times(durations)
    share = partial(shared, target=target or Target.named("cpu"), batch=batch)
    parts = [workflow]
    if sharing is not None:
        workflow, ranks = sharing.workflow, range(sharing.layout.size)
        parts = [partition(sharing, rank, lambda messages, _: Meeting(messages)).workflow for rank in ranks]
    known = Conditions(conditions, workflow.name, parts)
    assumed = Assumed(times, known, limits, workflow.devices_with(0), share)
    tasks = tasks_of(workflow, assumed) if sharing is None else _of_ranks(sharing, parts, link, assumed)
    times.require_used(workflow.name, [workflow, *parts], known)
    limits |= {} if sharing is None else {"link": 1}
    limits |= {task.engine: limits[kind] for task in tasks if (kind := task.engine.partition("@")[0]) in limits}
    spans, deps = _without_launches(tasks, *_schedule(tasks, limits))
    used = {span.engine for span in spans}
    counts = tuple((name, count) for name, count in limits.items() if name in used)
    return Timeline(workflow.name, "units" if link is None else "us", spans, deps, counts)


class _Crossing(NamedTuple):
    """One transmission of a message or a collective: in a loop, one per pass."""

    sharing: Sharing  # of the workflow or body that it belongs to
    message: Message
    passes: tuple[int, ...]  # as in `Task`

    @property
    def name(self) -> str:
        """The full name, including the pass."""
        return title(self.sharing.prefix + self.message.name, self.passes)


def _crossings(sharing: Sharing, conditions: Conditions, passes: tuple[int, ...] = ()) -> Iterator[_Crossing]:
    """Yield the messages and collectives between ranks, in the order that is common to all ranks."""
    for i in sharing.workflow.order if sharing.bodies else sharing.messages:
        for message in sharing.messages.get(i, ()):
            yield _Crossing(sharing, message, passes)
        bodies, node = sharing.bodies.get(i, ()), sharing.workflow.nodes[i]
        runs = conditions.of(sharing.prefix + node.name) if bodies else None
        loops = node.branch is not None and node.branch.mode == "while"
        if runs is not None and runs.passes and bodies[runs.body].all_messages:
            for number in range(runs.passes):
                yield from _crossings(bodies[runs.body], conditions, (*passes, number) if loops else passes)


def _of_ranks(sharing: Sharing, workflows: Sequence[Workflow], link: Link | None, assumed: Assumed) -> list[Task]:
    """Return the tasks of all ranks, followed by the messages and collectives between them."""
    layout = sharing.layout
    parts: list[list[Task]] = []
    spans = 0
    for workflow, first in zip(workflows, layout.firsts):
        parts.append(tasks_of(workflow, assumed, first, spans))
        spans += sum(not task.is_launch for task in parts[-1])
    crossings = list(_crossings(sharing, assumed.conditions))
    own = [(rank, i) for rank, tasks in enumerate(parts) for i, task in enumerate(tasks) if met(task) is None]
    place = {at: n for n, at in enumerate(own)}
    number = {(one.message.number, one.passes): at for at, one in enumerate(crossings)}
    names = [one.name for one in crossings]
    alike = Counter([*(name for rank, i in own for name in parts[rank][i].nodes), *names])

    def ended(rank: int, deps: Sequence[int]) -> tuple[int, ...]:
        """Return the indices, in the combined list, of the tasks that a task of a rank waits for."""
        found: list[int] = []
        for d in deps:
            task = parts[rank][d]
            messages = met(task)
            found += [place[rank, d]] if messages is None else [len(own) + number[m.number, task.passes] for m in messages]
        return tuple(found)

    waits: list[dict[int, None]] = [{} for _ in crossings]
    for rank, tasks in enumerate(parts):
        for task in tasks:
            for message in met(task) or ():
                waits[number[message.number, task.passes]].update(dict.fromkeys(ended(rank, task.deps)))
    made = []
    for rank, i in own:
        task = parts[rank][i]
        members = tuple(f"{name} (rank {rank})" if alike[name] > 1 else name for name in task.nodes)
        if task.members:
            task = task._replace(members=members)
        name = titled(task.kind, members) if task.members else members[0]
        several = layout.size > 1 and task.engine in ("host", "H2H")
        engine = f"{task.engine}@{layout.firsts[rank]}" if several else task.engine
        made.append(task._replace(name=name, deps=ended(rank, task.deps), engine=engine, ranks=(rank,)))
    for one, name, deps in zip(crossings, names, waits):
        task = _crossing(one, tuple(deps), link, assumed.times)
        made.append(task._replace(name=f"{name} (to rank {one.message.target})" if alike[name] > 1 else name))
    return made


def _crossing(one: _Crossing, deps: tuple[int, ...], link: Link | None, times: Times) -> Task:
    """Return the task of a message or a collective."""
    sharing, message = one.sharing, one.message
    name = sharing.prefix + message.name
    if link is None:
        raise DeclarationError(
            f"simulate: {name!r} crosses between ranks; say what joins them: link=hg.Link(latency_us=..., gb_s=...)", node=name
        )
    size, whole = sharing.layout.size, message.together
    node = sharing.workflow.node(message.name) if message.moves else None
    node = node_of("empty", name=message.name) if node is None else node
    cost = times.named(name, node)
    if cost is None:
        cost = link.message_us(message.nbytes) if whole is None else link.collective_us(whole.does, whole.part_bytes, size)
    ends = (message.source, message.target) if whole is None else tuple(range(size))
    engine = f"link@{ends[0]}->{ends[1]}" if whole is None else "collective"
    nbytes = message.nbytes if whole is None else whole.part_bytes
    origin = name if one.passes else ""
    return Task(one.name, node, deps, cost, engine, 0, ranks=ends, nbytes=nbytes, passes=one.passes, origin=origin)


def _without_launches(
    tasks: Sequence[Task], spans: tuple[Span, ...], deps: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Span, ...], tuple[tuple[int, ...], ...]]:
    """Remove the spans of launches; a span that waits for a launch waits for the launch's last dependency to end instead."""
    longest = {i: max(deps[i], key=lambda d: (spans[d].stop, -d), default=-1) for i, task in enumerate(tasks) if task.is_launch}
    if not longest:
        return spans, deps
    kept = [i for i in range(len(tasks)) if i not in longest]
    place = {-1: -1, **{i: n for n, i in enumerate(kept)}}

    def found(sources: tuple[int, ...]) -> tuple[int, ...]:
        ended: dict[int, None] = {}
        for source in sources:
            while source in longest:
                source = longest[source]
            ended[place[source]] = None
        return tuple(i for i in ended if i >= 0)

    return tuple(spans[i] for i in kept), tuple(found(deps[i]) for i in kept)


def _schedule(tasks: Sequence[Task], limits: Mapping[str, int]) -> tuple[tuple[Span, ...], tuple[tuple[int, ...], ...]]:
    """Run the tasks in simulated time. Ties go to the lower position, so the result is always the same."""
    followers = successors([task.deps for task in tasks])
    missing = [len(task.deps) for task in tasks]
    starts = [0.0] * len(tasks)
    stops = [0.0] * len(tasks)
    free = dict(limits)
    waiting: dict[str, list[int]] = {name: [] for name in limits}
    changed: set[str] = set()  # engines that have become free or have more ready tasks
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
        if not running or running[0][0] > now:  # all tasks that end now have ended: engines take ready tasks
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
             task.nbytes, task.segment, task.ranks, task.members, task.origin)
        for task, start, stop in zip(tasks, starts, stops)
    )  # fmt: skip
    return spans, tuple(task.deps for task in tasks)
