"""Picture: what a drawing shows, before any format. Every drawing is made from one.

Data flow: `Workflow` -> needed edges, folds, lanes, critical path and faults -> boxes, links and clusters -> dot, mermaid,
svg, html. Child graphs become clusters inside their parents; a stretch that repeats becomes one repetition with its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

from ..checks import Report, check_workflow
from ..errors import DeclarationError
from ..order import longest_path, reduced
from ..placement import device_of
from ..plan import Plan, Step
from ..planning import make_plan
from ..printed import human_count
from ..runtimes import target_of
from ..sharing import ALL, Between, Layout, Ranks, Sharing, as_layout
from ..target import Target
from ..timeline import Span, Timeline
from ..workflow import AnyNode, ConditionalNode, Workflow
from .fold import Repeat, find_repeats, signature
from .style import shortened

Edges = Literal["needed", "all", "labels"]
Critical = bool | Timeline | Mapping[str, float]

_UNNAMED = -1  # stands for the device that a graph is compiled for
_FOLD_FROM = 30  # nodes of one level from which on it is folded
_EXPAND_UP_TO = 60  # boxes of a child that is drawn inside its parent
_EXPAND_ALL = 600  # boxes from which on further children stay closed


@dataclass(frozen=True, slots=True)
class Fault:
    """What `check` says of a node.

    Attributes
    ----------
    code, severity, message, hint : str
    """

    code: str
    severity: str
    message: str
    hint: str = ""


@dataclass(slots=True)
class Box:
    """One drawn node.

    Attributes
    ----------
    id : str
        Unique in the picture and safe in every format: ``"n12"``.
    name : str
        What stands first; for a folded box the first and the last name.
    kind : str
    lines : tuple of str
        What stands below the name.
    members : tuple of str
        Full names of the nodes that it stands for.
    cluster : str
        The innermost cluster that it stands in; empty for none.
    repeats : int
        How many nodes of a stretch it stands for; 1 where it is not folded.
    lane : int or None
    critical : bool
    faults : tuple of Fault
    """

    id: str
    name: str
    kind: str
    lines: tuple[str, ...]
    members: tuple[str, ...]
    cluster: str = ""
    repeats: int = 1
    lane: int | None = None
    critical: bool = False
    faults: tuple[Fault, ...] = ()


@dataclass(slots=True)
class Link:
    """One drawn edge, from box or cluster to box or cluster.

    Attributes
    ----------
    source, target : str
        Ids.
    reasons : tuple of str
        Why, without repeats: ``"RAW x"``.
    count : int
        Edges that it stands for.
    style : {"edge", "next", "added", "fault"}
        ``"next"`` leads from one repetition to the next, ``"added"`` is a plan's own, ``"fault"`` joins two nodes that race.
    critical : bool
    faulty : bool
    label : str
        What is written at it.
    """

    source: str
    target: str
    reasons: tuple[str, ...] = ()
    count: int = 1
    style: Literal["edge", "next", "added", "fault"] = "edge"
    critical: bool = False
    faulty: bool = False
    label: str = ""


@dataclass(slots=True)
class Cluster:
    """A frame around boxes.

    Attributes
    ----------
    id : str
    label : str
    kind : {"child", "body", "repeat", "lane", "segment"}
    parent : str
        The cluster around it; empty for none.
    lane : int or None
    critical : bool
    faults : tuple of Fault
    members : tuple of str
        The nodes that the frame itself stands for.
    """

    id: str
    label: str
    kind: Literal["child", "body", "repeat", "lane", "segment"]
    parent: str = ""
    lane: int | None = None
    critical: bool = False
    faults: tuple[Fault, ...] = ()
    members: tuple[str, ...] = ()


@dataclass
class Picture:
    """What a drawing shows.

    Attributes
    ----------
    title, subtitle : str
    boxes : list of Box
        In order of declaration.
    links : list of Link
    clusters : list of Cluster
        Outer ones first.
    faults : tuple of Fault
        Those that name no node.
    """

    title: str
    subtitle: str
    boxes: list[Box] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    faults: tuple[Fault, ...] = ()

    @cached_property
    def first_box(self) -> dict[str, str]:
        """For each cluster the first box inside it, which edges lead to where they join boxes only."""
        return self._ends(self.boxes)

    @cached_property
    def last_box(self) -> dict[str, str]:
        """For each cluster the last box inside it, which edges leave from where they join boxes only."""
        return self._ends(reversed(self.boxes))

    def walk(self) -> Iterator[tuple[int, Box | Cluster | None]]:
        """Yield how deep each box and frame stands, and None behind all that a frame holds; frames without boxes are left out."""
        inside: dict[str, list[Box | Cluster]] = {}
        for box in self.boxes:
            inside.setdefault(box.cluster, []).append(box)
        for cluster in self.clusters:
            if cluster.id in self.first_box:
                inside.setdefault(cluster.parent, []).append(cluster)
        waiting: list[tuple[int, Box | Cluster | None]] = [(0, thing) for thing in reversed(inside.get("", ()))]
        while waiting:
            depth, thing = waiting.pop()
            yield depth, thing
            if isinstance(thing, Cluster):
                waiting.append((depth, None))
                waiting += [(depth + 1, inner) for inner in reversed(inside[thing.id])]

    def _ends(self, boxes: Iterable[Box]) -> dict[str, str]:
        inside: dict[str, str] = {}
        parents = {cluster.id: cluster.parent for cluster in self.clusters}
        for box in boxes:
            at = box.cluster
            while at and at not in inside:
                inside[at] = box.id
                at = parents[at]
        return inside


def as_direction(direction: str) -> str:
    """Return where edges lead in a drawing.

    Raises
    ------
    DeclarationError
        If it is neither ``"TB"``, to the bottom, nor ``"LR"``, to the right.
    """
    if direction not in ("TB", "LR"):
        raise DeclarationError(f"direction is 'TB', to the bottom, or 'LR', to the right (got {direction!r})")
    return direction


def draw(
    workflow: Workflow,
    *,
    fold: bool | Literal["auto"] = "auto",
    edges: Edges = "needed",
    lanes: bool | int | Plan = False,
    critical: Critical = False,
    faults: bool | Report = True,
    target: str | Target | None = None,
    ranks: int | Sequence[int] | None = None,
) -> Picture:
    """Return what a drawing of a workflow shows.

    Parameters
    ----------
    fold : bool or "auto"
        Draw stretches that repeat once, with their count; ``"auto"`` where a level has more than 30 nodes.
    edges : {"needed", "all", "labels"}
        Edges that no others imply, all, or those needed with the array and the hazard written at each.
    lanes : bool, int or Plan
        Gather nodes in the lanes of a plan: the one for `target`, one with at most that many lanes, or the one given. Frames say
        which nodes are in one graph, where the host has something to do between graphs.
    critical : bool, Timeline or mapping
        Mark the longest path: by nodes, as a timeline has it, or by durations of node names or kinds.
    faults : bool or Report
        Mark what `check` finds.
    target : str or Target, optional
        For `lanes`; by default the device that `compile` takes.
    ranks : int or sequence of int, optional
        Frame what each of so many processes does, with a device each or as many as said; what crosses stands between the frames.

    Raises
    ------
    DeclarationError
        If an option has no such value.
    """
    require_edges(edges)
    sharing = shared_out(workflow, ranks, lanes)
    if fold not in (True, False, "auto"):
        raise DeclarationError(f"fold is True, False or 'auto' (got {fold!r})")
    plan = lane_plan(workflow, lanes, target)
    path, found = critical_path(workflow, critical), found_faults(workflow, faults)
    return _Artist(workflow if sharing is None else sharing.workflow, fold, edges, plan, path, found, sharing).picture


def shared_out(workflow: Workflow, ranks: int | Sequence[int] | None, lanes: object) -> Sharing | None:
    """Return who does what, where ranks are to be shown; lanes are not shown then."""
    if ranks is None:
        return None
    if lanes is not False:
        raise DeclarationError(f"a drawing frames ranks or lanes: leave one of ranks={ranks!r} and lanes={lanes!r} out")
    return Sharing(workflow, as_layout(ranks), Between(lambda does, dtype: True))


def ranks_and_messages(sharing: Sharing) -> str:
    """Return what a subtitle says of ranks."""
    return f", {human_count(sharing.layout.size, 'rank')}, {human_count(len(sharing.all_messages), 'message')}"


def rank_label(layout: Layout, rank: int) -> str:
    """Return what stands at the frame of a rank."""
    return f"rank {rank} · device{'s' * (layout.counts[rank] > 1)} {layout.shown(rank)}"


def require_edges(edges: str) -> None:
    """Refuse what names no choice of edges."""
    if edges not in ("needed", "all", "labels"):
        raise DeclarationError(f"edges is 'needed', 'all' or 'labels' (got {edges!r})")


def lane_plan(workflow: Workflow, lanes: bool | int | Plan, target: str | Target | None) -> Plan | None:
    """Return the plan whose lanes are shown, if there are any."""
    if isinstance(lanes, Plan):
        return lanes
    if lanes is False or not workflow.order:
        return None
    return make_plan(workflow, target_of(target), lanes="auto" if lanes is True else lanes, pack=True)


def found_faults(workflow: Workflow, faults: bool | Report) -> list[tuple[Fault, tuple[str, ...]]]:
    """Return what `check` finds beyond information, or has found, with the nodes that it names."""
    report = faults if isinstance(faults, Report) else check_workflow(workflow) if faults else None
    return [
        (Fault(found.code, found.severity, found.message, found.hint or ""), tuple(found.nodes))
        for found in (report.diagnostics if report else ())
        if found.severity != "info"
    ]


def needed_edges(workflow: Workflow) -> list[list[tuple[int, str]]]:
    """Return for each node the predecessors that no others imply, each with its reason; all of them if there is a cycle."""
    order = workflow.order
    if len(order) != len(workflow.nodes):
        return [list(zip(s, r)) for s, r in zip(workflow.predecessors, workflow.reasons)]
    kept = reduced(order, workflow.predecessors)
    return [
        [(source, dict(zip(sources, reasons))[source]) for source in left]
        for left, sources, reasons in zip(kept, workflow.predecessors, workflow.reasons)
    ]


def weigh(workflow: Workflow, durations: Mapping[str, float] | None) -> list[float]:
    """Return each node's weight for the longest path: its duration by name, direction or kind; 1 where none are given."""
    if not durations:
        return [1.0] * len(workflow.nodes)
    found = []
    for node in workflow.nodes:
        keys = (node.name, *node.duration_keys)
        found.append(next((float(durations[key]) for key in keys if key in durations), 0.0))
    return found


def critical_path(workflow: Workflow, critical: Critical) -> list[str]:
    """Return the names on the longest path, first to last."""
    if critical is False:
        return []
    if isinstance(critical, Timeline):
        return _through(workflow, critical.critical_path)
    weights = weigh(workflow, None if critical is True else critical)
    return [workflow.nodes[i].name for i in longest_path(workflow.order, workflow.predecessors, weights)]


def _through(workflow: Workflow, spans: Sequence[Span]) -> list[str]:
    """Return the nodes on a path of spans: all of a chain, and of a batch the one that what follows on the path waits for."""
    names: list[str] = []
    for span in reversed(spans):
        if span.kind == "chain":
            names += reversed(span.members)
            continue
        at = workflow.index.get(names[-1], -1) if span.members and names else -1
        waited = {workflow.nodes[i].name for i in workflow.predecessors[at]} if at >= 0 else set()
        names.append(next((name for name in span.nodes if name in waited), span.nodes[0]))
    return names[::-1]


def details(node: AnyNode) -> tuple[str, ...]:
    """Return what stands below a node's name: what it does, to what, how much, and on which device if one is named."""
    device = device_of(node, _UNNAMED)
    return node.details if device in (None, _UNNAMED) else (*node.details, f"device {device}")


def _on_device(plan: Plan, lane: int) -> str:
    return f" · device {plan.lane_devices[lane]}" if len(plan.devices) > 1 else ""


class _Artist:
    """Makes one picture; `_level` draws one workflow and calls itself for its children."""

    def __init__(
        self, workflow: Workflow, fold: bool | Literal["auto"], edges: Edges, plan: Plan | None, path: Sequence[str],
        faults: list[tuple[Fault, tuple[str, ...]]], sharing: Sharing | None = None,
    ) -> None:  # fmt: skip
        self.fold, self.edges = fold, edges
        self.path = list(path)
        # What surrounds a node of the path is on it too.
        self.on_path = {part for name in path for part in _and_around(name)}
        self.lane_of = {} if plan is None else lanes_by_name(plan)
        self.lanes = {} if plan is None else _lane_labels(plan)
        self.segment_of = {} if plan is None else segments_by_name(plan)
        self.by_host = set() if plan is None else set(decided_by_host(plan))
        self.framed: set[str] = set()  # ids of the segments that have a frame
        self.ranks: Sequence[Ranks] = () if sharing is None else sharing.ranks
        self.faults: dict[str, list[Fault]] = {}
        for fault, names in faults:
            for name in names:
                self.faults.setdefault(name, []).append(fault)
        self.end_of: dict[str, str] = {}  # full node name -> box or cluster that stands for it
        count = sum(map(len, workflow.predecessors))
        subtitle = f"{human_count(len(workflow.nodes), 'node')}, {human_count(count, 'edge')}"
        if plan is not None:
            subtitle += f", {lanes_and_segments(plan)}"
        self.picture = Picture(workflow.name, subtitle, faults=tuple(fault for fault, names in faults if not names))
        if plan is not None:
            self._lane_frames("", "")
        if sharing is not None:
            self._rank_frames(sharing)
        self._level(workflow, "", "")
        self._mark_path()
        self._mark_pairs((fault, names) for fault, names in faults if len(names) > 1)

    def _lane_frames(self, prefix: str, cluster: str) -> None:
        """Frame the lanes of a workflow or of a child that has a plan of its own."""
        for lane, label in enumerate(self.lanes.get(prefix, ())):
            self.picture.clusters.append(Cluster(f"{cluster}lane{lane}", label, "lane", cluster, lane))

    def _rank_frames(self, sharing: Sharing) -> None:
        """Frame what each rank does."""
        self.picture.subtitle += ranks_and_messages(sharing)
        for rank in range(sharing.layout.size):
            self.picture.clusters.append(Cluster(f"rank{rank}", rank_label(sharing.layout, rank), "lane", lane=rank))

    def _level(self, workflow: Workflow, prefix: str, cluster: str) -> None:
        """Draw one workflow into a cluster."""
        nodes = workflow.nodes
        links = (
            [list(zip(s, r)) for s, r in zip(workflow.predecessors, workflow.reasons)]
            if self.edges == "all"
            else needed_edges(workflow)
        )
        repeats: tuple[Repeat, ...] = ()
        if self.fold is True or (self.fold == "auto" and len(nodes) > _FOLD_FROM):
            ranks = [None] * len(nodes) if prefix or not self.ranks else self.ranks
            tokens = [
                (signature(n), tuple(f.code for f in self.faults.get(prefix + n.name, ())), rank) for n, rank in zip(nodes, ranks)
            ]
            repeats = find_repeats(tokens, [[source for source, _ in sources] for sources in links])
        ends: list[str] = [""] * len(nodes)
        where: dict[int, tuple[Repeat, int]] = {}
        for repeat in repeats:
            for i in range(repeat.start, repeat.stop):
                where[i] = (repeat, (i - repeat.start) // repeat.period)
        frames: dict[Repeat, str] = {}
        for i in range(len(nodes)):
            if i not in where:
                ends[i] = self._node(workflow, (i,), prefix, cluster)
                continue
            repeat, turn = where[i]
            if turn:
                ends[i] = ends[i - repeat.period]
                self.end_of[prefix + nodes[i].name] = ends[i]
                continue
            if repeat.period > 1 and repeat not in frames and not self.lane_of and not self.ranks:
                frame = Cluster(self._new_cluster(), f"repeats {repeat.count} times", "repeat", parent=cluster)
                self.picture.clusters.append(frame)
                frames[repeat] = frame.id
            members = tuple(range(i, repeat.stop, repeat.period))
            ends[i] = self._node(workflow, members, prefix, frames.get(repeat, cluster))
        self._links(links, ends, where)

    def _links(
        self, links: Sequence[Sequence[tuple[int, str]]], ends: Sequence[str], where: Mapping[int, tuple[Repeat, int]]
    ) -> None:
        made: dict[tuple[str, str, str], Link] = {}
        for i, sources in enumerate(links):
            for source, reason in sources:
                turn, from_turn = where.get(i), where.get(source)
                carried = turn is not None and from_turn is not None and turn[0] == from_turn[0] and turn[1] != from_turn[1]
                style: Literal["next", "edge"] = "next" if carried else "edge"
                key = (ends[source], ends[i], style)
                link = made.get(key)
                if link is None:
                    made[key] = Link(ends[source], ends[i], (reason,), 1, style)
                else:
                    link.count += 1
                    if reason not in link.reasons and len(link.reasons) < 4:
                        link.reasons = (*link.reasons, reason)
        for link in made.values():
            if self.edges == "labels":
                shown = link.reasons if len(link.reasons) <= 2 else (*link.reasons[:2], "…")
                link.label = ", ".join(shortened(reason, 32) for reason in shown)
        self.picture.links += made.values()

    def _node(self, workflow: Workflow, members: tuple[int, ...], prefix: str, cluster: str) -> str:
        """Draw one node, or one that stands for several; return the id of its box or cluster."""
        nodes = [workflow.nodes[i] for i in members]
        node = nodes[0]
        full = [prefix + n.name for n in nodes]
        faults = tuple(dict.fromkeys(f for name in full for f in self.faults.get(name, ())))
        critical = any(name in self.on_path for name in full)
        lane = self.lane_of.get(full[0])
        if lane is not None and (not cluster or prefix in self.lanes):
            cluster += f"lane{lane}"
        if self.ranks and not prefix and isinstance(rank := self.ranks[members[0]], int) and rank != ALL:
            cluster = f"rank{rank}"
        if full[0] in self.segment_of:
            cluster = self._segment(self.segment_of[full[0]], cluster, lane)
        name = node.name if len(nodes) == 1 else f"{node.name} … {nodes[-1].name}"
        by_library = bool(self.ranks) and not prefix and node.derives  # one call on each rank
        held = () if by_library else zip(node.held, node.body_titles)
        bodies = [(f"{prefix}{path}/", title, body) for (path, body, _), title in held]
        if bodies and prefix.count("/") < 16 and self._expands(bodies):
            if self.lane_of and lane is None and not cluster:
                # The plan has inlined this child: its nodes stand in the lanes themselves.
                for inside, _, body in bodies:
                    self._level(body, inside, "")
                first = next(b.id for b in self.picture.boxes if b.members[0].startswith(f"{full[0]}/"))
                self.end_of[full[0]] = first
                return first
            label = f"{name} · {node.frame_label}" if node.frame_label else name
            label += " · by the host" if full[0] in self.by_host else ""
            if len(nodes) > 1:
                label += f" · ×{len(nodes)}"
            frame = Cluster(self._new_cluster(), label, "child", cluster, lane, critical, faults, tuple(full))
            self.picture.clusters.append(frame)
            for inside, title, body in bodies:
                inner = frame
                if title:
                    inner = Cluster(self._new_cluster(), f"{title}: {body.name}", "body", frame.id)
                    self.picture.clusters.append(inner)
                self._lane_frames(inside, inner.id)
                self._level(body, inside, inner.id)
            for each in full:
                self.end_of[each] = frame.id
            return frame.id
        lines = details(node)
        if len(nodes) > 1:
            last = details(nodes[-1])
            lines = tuple(a if a == b else f"{shortened(a, 36)} …" for a, b in zip(lines, last))
        box = Box(
            f"n{len(self.picture.boxes)}", name if not cluster.startswith("lane") else prefix + name, node.kind, lines,
            tuple(full), cluster, len(nodes), lane, critical, faults,
        )  # fmt: skip
        self.picture.boxes.append(box)
        for each in full:
            self.end_of[each] = box.id
        return box.id

    def _segment(self, segment: int, cluster: str, lane: int | None) -> str:
        """Return the frame of what a lane has in a segment."""
        frame = f"{cluster}segment{segment}"
        if frame not in self.framed:
            self.framed.add(frame)
            self.picture.clusters.append(Cluster(frame, f"segment {segment}", "segment", cluster, lane))
        return frame

    def _expands(self, bodies: Iterable[tuple[str, str, Workflow]]) -> bool:
        """Return whether children are small enough to be drawn inside; each needs a node that edges can lead to."""
        if len(self.picture.boxes) > _EXPAND_ALL:
            return False
        for _, _, body in bodies:
            if not body.nodes:
                return False
            if len(body.nodes) <= _EXPAND_UP_TO or self.fold is False:
                continue
            repeats = find_repeats([signature(n) for n in body.nodes], body.predecessors)
            if len(body.nodes) - sum(r.period * (r.count - 1) for r in repeats) > _EXPAND_UP_TO:
                return False
        return True

    def _new_cluster(self) -> str:
        return f"c{len(self.picture.clusters)}"

    def _mark_path(self) -> None:
        ends = [{self.end_of.get(part) for part in _and_around(name)} for name in self.path]
        joined = {(a, b) for before, after in pairwise(ends) for a in before - after for b in after - before}
        for link in self.picture.links:
            link.critical = (link.source, link.target) in joined

    def _mark_pairs(self, pairs: Iterable[tuple[Fault, tuple[str, ...]]]) -> None:
        """Mark the links between nodes that one fault names; join in red what has no link."""
        links: dict[tuple[str, str], list[Link]] = {}
        for link in self.picture.links:
            links.setdefault((link.source, link.target), []).append(link)
        for fault, names in pairs:
            around = list(zip(names, (*names[1:], names[0]))) if len(names) > 2 else [(names[0], names[1]), (names[1], names[0])]
            found = False
            for a, b in around:
                for link in links.get((self.end_of.get(a, ""), self.end_of.get(b, "")), ()):
                    link.faulty = found = True
            ends = [self.end_of.get(name) for name in names[:2]]
            if not found and len(names) == 2 and ends[0] and ends[1] and ends[0] != ends[1]:
                link = Link(ends[0], ends[1], (), 1, "fault", False, True, fault.code)
                links[ends[0], ends[1]] = [link]
                self.picture.links.append(link)


def lanes_by_name(plan: Plan, prefix: str = "") -> dict[str, int]:
    """Return each node's lane by its full name; nodes of children with a plan of their own have that plan's lanes."""
    found = {}
    for step in plan.steps:
        found.update({prefix + name: step.lane for name in (*step.origin, step.name)})
        for path, inner in _inner_plans(step):
            found.update(lanes_by_name(inner, f"{prefix}{path}"))
    return found


def segments_by_name(plan: Plan, prefix: str = "") -> dict[str, int]:
    """Return the number of each node's segment by its full name, of plans that the host cuts; its own steps are in none."""
    found = {} if plan.cut is None else {
        prefix + name: number
        for i, number in plan.cut.segment_of.items() for name in (*plan.steps[i].origin, plan.steps[i].name)
    }  # fmt: skip
    for step in plan.steps:
        for path, inner in _inner_plans(step):
            found.update(segments_by_name(inner, f"{prefix}{path}"))
    return found


def decided_by_host(plan: Plan, prefix: str = "") -> Iterator[str]:
    """Yield the full names of conditional nodes that leave it to the plan who decides, and that the host decides."""
    for step in plan.steps:
        if step.by_host and isinstance(step.node, ConditionalNode) and step.node.decide == "auto":
            yield prefix + step.name
        for path, inner in _inner_plans(step):
            yield from decided_by_host(inner, f"{prefix}{path}")


def lanes_and_segments(plan: Plan) -> str:
    """Return how many a plan has."""
    segments = 1 if plan.cut is None else len(plan.cut.plan.steps) - sum(step.by_host for step in plan.cut.plan.steps)
    return human_count(len(plan.lanes), "lane") + ("" if plan.cut is None else f", {human_count(segments, 'segment')}")


def _lane_labels(plan: Plan, prefix: str = "") -> dict[str, list[str]]:
    """Return what each lane is called, by the prefix of the names that stand in it; a child in one lane shows none."""
    labels = [f"lane {lane}{_on_device(plan, lane)}" for lane in range(len(plan.lanes))]
    found = {prefix: labels} if not prefix or len(labels) > 1 else {}
    for step in plan.steps:
        for path, inner in _inner_plans(step):
            found.update(_lane_labels(inner, f"{prefix}{path}"))
    return found


def _inner_plans(step: Step) -> list[tuple[str, Plan]]:
    children = [] if step.child is None else [(f"{step.name}/", step.child)]
    return children + [(f"{step.name}/{n}/", body) for n, body in enumerate(step.bodies)]


def _and_around(name: str) -> list[str]:
    """Return a full name with those of the nodes around it."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
