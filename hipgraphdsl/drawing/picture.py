"""Picture: the format-independent content of a drawing. Every format is rendered from one.

Data flow: `Workflow` -> needed edges, folds, lanes, critical path and faults -> boxes, links and clusters -> dot, mermaid,
svg, html. Child graphs become clusters inside their parents; a repeating stretch is drawn once, with its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ..arrays.coercion import as_time
from ..checks import Diagnostic, Report, check_workflow
from ..errors import DeclarationError
from ..export.fold import Repeat, find_repeats, signature
from ..nodes import Node
from ..nodes.workflow import Workflow
from ..order import longest_path, reduced
from ..parts import load
from ..placement import device_of
from ..plan.options import PlanOptions
from ..plan.planning import make_plan
from ..plan.steps import Plan
from ..printed import human_count
from ..runtimes import target_of
from ..target import Target
from .style import shortened

if TYPE_CHECKING:
    from .. import Timeline

Edges = Literal["needed", "all", "labels"]
Critical: TypeAlias = "bool | Timeline | Mapping[str, float]"

_UNNAMED = -1  # represents the device that a graph is compiled for
_FOLD_FROM = 30  # minimum number of nodes of a level to be folded
_EXPAND_UP_TO = 60  # maximum number of boxes of a child to be drawn inside its parent
_EXPAND_ALL = 600  # beyond this many boxes, further children stay closed


@dataclass(slots=True)
class Box:
    """One drawn node."""

    id: str  # unique in the picture and safe in every format: "n12"
    name: str  # the first line; for a folded box the first and the last name
    kind: str
    lines: tuple[str, ...]  # the lines below the name
    members: tuple[str, ...]  # full names of the nodes that it represents; for a folded box one per repetition
    cluster: str = ""  # the innermost enclosing cluster; empty for none
    critical: bool = False
    faults: tuple[Diagnostic, ...] = ()

    @property
    def repeats(self) -> int:
        """How many nodes of a stretch it represents."""
        return len(self.members)


@dataclass(slots=True)
class Link:
    """One drawn edge between boxes or clusters, for all edges between the two."""

    source: str
    target: str
    style: Literal["edge", "next", "fault"] = "edge"  # "next" leads to the next repetition, "fault" joins two racing nodes
    label: str = ""
    critical: bool = False
    faulty: bool = False


@dataclass(slots=True)
class Cluster:
    """A frame around boxes."""

    id: str
    label: str
    kind: Literal["child", "body", "repeat", "lane", "segment"]
    parent: str = ""  # the enclosing cluster; empty for none
    lane: int = 0  # number of the lane or rank that it frames
    critical: bool = False
    faults: tuple[Diagnostic, ...] = ()


@dataclass
class Picture:
    """The content of a drawing."""

    title: str
    subtitle: str
    boxes: list[Box] = field(default_factory=list)  # in order of declaration
    links: list[Link] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)  # outer ones first
    faults: tuple[Diagnostic, ...] = ()  # faults without a node

    @cached_property
    def first_box(self) -> dict[str, str]:
        """For each cluster its first box, the target of its incoming edges in formats whose edges join boxes only."""
        return self._ends(self.boxes)

    @cached_property
    def last_box(self) -> dict[str, str]:
        """For each cluster its last box, the source of its outgoing edges in formats whose edges join boxes only."""
        return self._ends(reversed(self.boxes))

    def walk(self) -> Iterator[tuple[int, Box | Cluster | None]]:
        """Yield each box and cluster with its depth, and None at the end of each cluster; clusters without boxes are skipped."""
        inside: dict[str, list[Box | Cluster]] = {}
        for box in self.boxes:
            inside.setdefault(box.cluster, []).append(box)
        for cluster in self.clusters:
            if cluster.id in self.first_box:
                inside.setdefault(cluster.parent, []).append(cluster)
        return _held(inside, "", 0)

    def _ends(self, boxes: Iterable[Box]) -> dict[str, str]:
        inside: dict[str, str] = {}
        parents = {cluster.id: cluster.parent for cluster in self.clusters}
        for box in boxes:
            at = box.cluster
            while at and at not in inside:
                inside[at] = box.id
                at = parents[at]
        return inside


def _held(inside: Mapping[str, Sequence[Box | Cluster]], cluster: str, depth: int) -> Iterator[tuple[int, Box | Cluster | None]]:
    for thing in inside.get(cluster, ()):
        yield depth, thing
        if isinstance(thing, Cluster):
            yield from _held(inside, thing.id, depth + 1)
            yield depth, None


def as_direction(direction: str) -> str:
    """Return the direction of edges in a drawing; refuse any other value."""
    if direction not in ("TB", "LR"):
        raise DeclarationError(f"direction is 'TB', to the bottom, or 'LR', to the right (got {direction!r})")
    return direction


def codes(faults: Iterable[Diagnostic]) -> list[str]:
    """Return the distinct codes of faults."""
    return list(dict.fromkeys(fault.code for fault in faults))


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
    """Return the picture of a workflow.

    Parameters
    ----------
    fold : bool or "auto"
        Draw repeating stretches once, with their count; ``"auto"`` does so for levels with more than 30 nodes.
    edges : {"needed", "all", "labels"}
        Edges that no others imply, all edges, or the former labelled with array and hazard.
    lanes : bool, int or Plan
        Group nodes by the lanes of a plan: the one for `target`, one with at most that many lanes, or the given one. If the
        host acts between graphs, frames show which nodes are in one graph.
    critical : bool, Timeline or mapping
        Mark the longest path: by number of nodes, by a timeline, or by durations per node name or kind.
    faults : bool or Report
        Mark the findings of `check`.
    target : str or Target, optional
        For `lanes`; by default the device that `compile` uses.
    ranks : int or sequence of int, optional
        Frame the work of each rank (process), given their number (one device each) or device counts; messages are in between.

    Raises
    ------
    DeclarationError
        If an option has an invalid value.
    """
    if fold not in (True, False, "auto"):
        raise DeclarationError(f"fold is True, False or 'auto' (got {fold!r})")
    return _Artist(shown(workflow, edges, lanes, critical, faults, target, ranks), fold, edges).picture


class Shown(NamedTuple):
    """What a drawing shows of a workflow besides its nodes and edges."""

    workflow: Workflow
    sharing: Any  # a `Sharing`: the work of each rank, if ranks are framed
    plan: Plan | None  # the plan whose lanes are shown
    path: list[str]  # names on the critical path, first to last
    faults: list[Diagnostic]


def shown(
    workflow: Workflow, edges: str, lanes: bool | int | Plan, critical: Critical, faults: bool | Report,
    target: str | Target | None, ranks: int | Sequence[int] | None,
) -> Shown:  # fmt: skip
    """Resolve the options of `draw`; refuse invalid ones, and lanes together with ranks."""
    if edges not in ("needed", "all", "labels"):
        raise DeclarationError(f"edges is 'needed', 'all' or 'labels' (got {edges!r})")
    sharing = None
    if ranks is not None:
        if lanes is not False:
            raise DeclarationError(f"a drawing frames ranks or lanes: leave one of ranks={ranks!r} and lanes={lanes!r} out")
        sharing = load("ranks").shared_for_drawing(workflow, ranks)
        workflow = sharing.workflow
    if target is not None:
        Target.named(target)  # refuse an unknown target even if no lanes are drawn
    plan = lane_plan(workflow, lanes, target)
    return Shown(workflow, sharing, plan, critical_path(workflow, critical), found_faults(workflow, faults))


def size_of(workflow: Workflow) -> str:
    """Return the text of a subtitle about a workflow."""
    return f"{human_count(len(workflow.nodes), 'node')}, {human_count(sum(map(len, workflow.predecessors)), 'edge')}"


def ranks_and_messages(sharing: Any) -> str:
    """Return the text of a subtitle about ranks."""
    return f", {human_count(sharing.layout.size, 'rank')}, {human_count(len(sharing.all_messages), 'message')}"


def rank_label(layout: Any, rank: int) -> str:
    """Return the label of a rank's frame."""
    return f"rank {rank} · device{'s' * (layout.counts[rank] > 1)} {layout.shown(rank)}"


def lane_plan(workflow: Workflow, lanes: bool | int | Plan, target: str | Target | None) -> Plan | None:
    """Return the plan whose lanes are shown, or None."""
    if isinstance(lanes, Plan):
        return lanes
    if lanes is False or not workflow.order:
        return None
    return make_plan(workflow, target_of(target), PlanOptions.of(None, "auto" if lanes is True else lanes))


def found_faults(workflow: Workflow, faults: bool | Report) -> list[Diagnostic]:
    """Return the findings of `check`, or of the given report, above severity "info"."""
    if not isinstance(faults, (bool, Report)):
        raise DeclarationError(f"faults is True, False or the report of check() (got {faults!r})")
    report = faults if isinstance(faults, Report) else check_workflow(workflow) if faults else ()
    return [found for found in report if found.severity != "info"]


def needed_edges(workflow: Workflow) -> Sequence[Sequence[int]]:
    """Return for each node the predecessors that no others imply; all predecessors if there is a cycle."""
    order, sources = workflow.order, workflow.predecessors
    return reduced(order, sources) if len(order) == len(sources) else sources


def critical_path(workflow: Workflow, critical: Critical) -> list[str]:
    """Return the names on the longest path, first to last: by durations of names, directions or kinds, else 1 per node."""
    if critical is False:
        return []
    spans = getattr(critical, "critical_path", None)  # of a Timeline
    if spans is not None:
        return _through(workflow, spans)
    if critical is not True and not isinstance(critical, Mapping):
        raise DeclarationError(
            f"critical is True, False, a Timeline, or durations by the names or kinds of nodes (got {critical!r})"
        )
    given = {} if critical is True else critical
    known = {key: as_time(value, f"critical[{key!r}]") for key, value in given.items()}
    weights = [
        next((known[key] for key in (node.name, *node.duration_keys) if key in known), 0.0 if known else 1.0)
        for node in workflow.nodes
    ]
    return [workflow.nodes[i].name for i in longest_path(workflow.order, workflow.predecessors, weights)]


def _through(workflow: Workflow, spans: Sequence[Any]) -> list[str]:
    """Return the nodes on a path of spans: all nodes of a chain; of a batch, the node that the next one on the path waits for."""
    names: list[str] = []
    for span in reversed(spans):
        if span.kind == "chain":
            names += reversed(span.members)
            continue
        at = workflow.index.get(names[-1], -1) if span.members and names else -1
        waited = {workflow.nodes[i].name for i in workflow.predecessors[at]} if at >= 0 else set()
        names.append(next((name for name in span.nodes if name in waited), span.nodes[0]))
    return names[::-1]


def details(node: Node) -> tuple[str, ...]:
    """Return the lines below a node's name: what it does, to what, how much, and on which device if one is declared."""
    device = device_of(node, _UNNAMED)
    return node.details if device in (None, _UNNAMED) else (*node.details, f"device {device}")


class Planned:
    """What drawings show of a plan, by full node names; empty without a plan."""

    def __init__(self, plan: Plan | None) -> None:
        self.lane_of: dict[str, int] = {}
        """Nodes of a child with its own plan have the lanes of that plan."""
        self.segment_of: dict[str, int] = {}
        """For plans that the host splits into segments; steps of the host are in no segment."""
        self.by_host: set[str] = set()
        """Conditional nodes with ``decide="auto"`` that the plan assigns to the host."""
        self.labels: dict[str, list[str]] = {}
        """Labels of the lanes, by the prefix of the node names in them; a child with a single lane shows none."""
        self.counts = ""
        """Text with the number of lanes and segments."""
        if plan is None:
            return
        self._add(plan, "")
        self.counts = human_count(len(plan.lanes), "lane")
        if plan.cut is not None:
            self.counts += f", {human_count(sum(not step.by_host for step in plan.cut.plan.steps), 'segment')}"

    def _add(self, plan: Plan, prefix: str) -> None:
        several = len(plan.devices) > 1
        labels = [f"lane {lane}" + (f" · device {plan.lane_devices[lane]}" if several else "") for lane in range(len(plan.lanes))]
        if not prefix or len(labels) > 1:
            self.labels[prefix] = labels
        segment_of = {} if plan.cut is None else plan.cut.segment_of
        for i, step in enumerate(plan.steps):
            names = [prefix + name for name in (*step.origin, step.name)]
            self.lane_of.update(dict.fromkeys(names, step.lane))
            if i in segment_of:
                self.segment_of.update(dict.fromkeys(names, segment_of[i]))
            if step.by_host and step.node.branch is not None and step.node.branch.decide == "auto":
                self.by_host.add(names[-1])
            if step.child is not None:
                self._add(step.child, f"{names[-1]}/")
            for n, body in enumerate(step.bodies):
                self._add(body, f"{names[-1]}/{n}/")


class _Artist:
    """Builds one picture; `_level` draws one workflow and recurses into its children."""

    def __init__(self, shown: Shown, fold: bool | Literal["auto"], edges: Edges) -> None:
        workflow, sharing, plan, path, faults = shown
        self.fold, self.edges = fold, edges
        # Nodes that enclose a node of the path are on the path too.
        self.on_path = {part for name in path for part in _and_around(name)}
        self.planned = Planned(plan)
        self.ranks: Sequence[int | tuple[int, int]] = () if sharing is None else sharing.ranks
        self.faults: dict[str, list[Diagnostic]] = {}
        for fault in faults:
            for name in fault.nodes:
                self.faults.setdefault(name, []).append(fault)
        self.framed: set[str] = set()  # ids of the segments that already have a frame
        self.end_of: dict[str, str] = {}  # full node name -> the box or cluster that represents it
        subtitle = size_of(workflow) + (f", {self.planned.counts}" if plan is not None else "")
        self.picture = Picture(workflow.name, subtitle, faults=tuple(fault for fault in faults if not fault.nodes))
        self._lane_frames("", "")
        if sharing is not None:
            self.picture.subtitle += ranks_and_messages(sharing)
            labels = [rank_label(sharing.layout, rank) for rank in range(sharing.layout.size)]
            self.picture.clusters += [Cluster(f"rank{rank}", label, "lane", lane=rank) for rank, label in enumerate(labels)]
        self._level(workflow, "", "")
        self._mark_path(path)
        self._mark_pairs(fault for fault in faults if len(fault.nodes) > 1)

    def _lane_frames(self, prefix: str, cluster: str) -> None:
        """Add frames for the lanes of a workflow, or of a child with its own plan."""
        for lane, label in enumerate(self.planned.labels.get(prefix, ())):
            self.picture.clusters.append(Cluster(f"{cluster}lane{lane}", label, "lane", cluster, lane))

    def _frame(self, label: str, kind: Literal["child", "body", "repeat"], parent: str, **more: Any) -> str:
        """Add a frame, and return its id."""
        found = Cluster(f"c{len(self.picture.clusters)}", label, kind, parent, **more)
        self.picture.clusters.append(found)
        return found.id

    def _level(self, workflow: Workflow, prefix: str, cluster: str) -> None:
        """Draw one workflow into a cluster."""
        nodes = workflow.nodes
        links = workflow.predecessors if self.edges == "all" else needed_edges(workflow)
        repeats: tuple[Repeat, ...] = ()
        if self.fold is True or (self.fold == "auto" and len(nodes) > _FOLD_FROM):
            ranks = [None] * len(nodes) if prefix or not self.ranks else self.ranks
            tokens = [
                (signature(n), tuple(f.code for f in self.faults.get(prefix + n.name, ())), rank) for n, rank in zip(nodes, ranks)
            ]
            repeats = find_repeats(tokens, links)
        ends: list[str] = [""] * len(nodes)
        where = {i: (repeat, (i - repeat.start) // repeat.period) for repeat in repeats for i in range(repeat.start, repeat.stop)}
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
            if repeat.period > 1 and repeat not in frames and not self.planned.lane_of and not self.ranks:
                frames[repeat] = self._frame(f"repeats {repeat.count} times", "repeat", cluster)
            members = tuple(range(i, repeat.stop, repeat.period))
            ends[i] = self._node(workflow, members, prefix, frames.get(repeat, cluster))
        self._links(workflow, links, ends, where)

    def _links(
        self, workflow: Workflow, links: Sequence[Sequence[int]], ends: Sequence[str], where: Mapping[int, tuple[Repeat, int]]
    ) -> None:
        made: dict[tuple[str, str, Literal["next", "edge"]], dict[str, None]] = {}
        """Links with the reasons of all edges that they represent."""
        for i, sources in enumerate(links):
            reasons = dict(zip(workflow.predecessors[i], workflow.reasons[i]))
            for source in sources:
                turn, from_turn = where.get(i), where.get(source)
                carried = turn is not None and from_turn is not None and turn[0] == from_turn[0] and turn[1] != from_turn[1]
                made.setdefault((ends[source], ends[i], "next" if carried else "edge"), {})[str(reasons[source])] = None
        for key, said in made.items():
            shown = [shortened(reason, 32) for reason in said] if self.edges == "labels" else []
            self.picture.links.append(Link(*key, ", ".join(shown if len(shown) <= 2 else (*shown[:2], "…"))))

    def _node(self, workflow: Workflow, members: tuple[int, ...], prefix: str, cluster: str) -> str:
        """Draw one node, or one that represents several; return the id of its box or cluster."""
        nodes = [workflow.nodes[i] for i in members]
        node = nodes[0]
        full = [prefix + n.name for n in nodes]
        faults = tuple(dict.fromkeys(f for name in full for f in self.faults.get(name, ())))
        critical = any(name in self.on_path for name in full)
        lane = self.planned.lane_of.get(full[0])
        if lane is not None and (not cluster or prefix in self.planned.labels):
            cluster += f"lane{lane}"
        if self.ranks and not prefix and isinstance(rank := self.ranks[members[0]], int) and rank >= 0:
            cluster = f"rank{rank}"
        if full[0] in self.planned.segment_of:
            cluster = self._segment(self.planned.segment_of[full[0]], cluster)
        name = node.name if len(nodes) == 1 else f"{node.name} … {nodes[-1].name}"
        by_library = bool(self.ranks) and not prefix and node.derives  # one library call on each rank
        held = () if by_library else zip(node.held, node.body_titles)
        bodies = [(f"{prefix}{path}/", title, body) for (path, body, _), title in held]
        if bodies and prefix.count("/") < 16 and self._expands(bodies):
            if self.planned.lane_of and lane is None and not cluster:
                # The plan has inlined this child: its nodes are drawn directly in the lanes.
                for inside, _, body in bodies:
                    self._level(body, inside, "")
                first = next(b.id for b in self.picture.boxes if b.members[0].startswith(f"{full[0]}/"))
                self.end_of[full[0]] = first
                return first
            label = f"{name} · {node.frame_label}" if node.frame_label else name
            label += " · by the host" if full[0] in self.planned.by_host else ""
            label += f" · ×{len(nodes)}" if len(nodes) > 1 else ""
            frame = self._frame(label, "child", cluster, critical=critical, faults=faults)
            for inside, title, body in bodies:
                inner = self._frame(f"{title}: {body.name}", "body", frame) if title else frame
                self._lane_frames(inside, inner)
                self._level(body, inside, inner)
            self.end_of.update(dict.fromkeys(full, frame))
            return frame
        lines = details(node)
        if len(nodes) > 1:
            last = details(nodes[-1])
            lines = tuple(a if a == b else f"{shortened(a, 36)} …" for a, b in zip(lines, last))
        name = prefix + name if cluster.startswith("lane") else name
        box = Box(f"n{len(self.picture.boxes)}", name, node.kind, lines, tuple(full), cluster, critical, faults)
        self.picture.boxes.append(box)
        self.end_of.update(dict.fromkeys(full, box.id))
        return box.id

    def _segment(self, segment: int, cluster: str) -> str:
        """Return the id of the frame around a lane's part of a segment, and add the frame if it is missing."""
        frame = f"{cluster}segment{segment}"
        if frame not in self.framed:
            self.framed.add(frame)
            self.picture.clusters.append(Cluster(frame, f"segment {segment}", "segment", cluster))
        return frame

    def _expands(self, bodies: Iterable[tuple[str, str, Workflow]]) -> bool:
        """Return whether children are small enough to be drawn inside; each needs at least one node as an end for edges."""
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

    def _mark_path(self, path: Sequence[str]) -> None:
        ends = [{self.end_of.get(part) for part in _and_around(name)} for name in path]
        joined = {(a, b) for before, after in pairwise(ends) for a in before - after for b in after - before}
        for link in self.picture.links:
            link.critical = (link.source, link.target) in joined

    def _mark_pairs(self, faults: Iterable[Diagnostic]) -> None:
        """Mark the links between nodes that one fault names; add a red link between a pair that has none."""
        links: dict[tuple[str, str], list[Link]] = {}
        for link in self.picture.links:
            links.setdefault((link.source, link.target), []).append(link)
        for fault in faults:
            ends = [self.end_of.get(name, "") for name in fault.nodes]
            around = list(zip(ends, (*ends[1:], ends[0])))
            marked = [link for pair in around for link in links.get(pair, ())]
            for link in marked:
                link.faulty = True
            if not marked and len(ends) == 2 and all(ends) and ends[0] != ends[1]:
                link = Link(*around[0], "fault", fault.code, faulty=True)
                links[around[0]] = [link]
                self.picture.links.append(link)


def _and_around(name: str) -> list[str]:
    """Return a full name and those of the enclosing nodes, innermost first."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
