"""HTML: one page with the whole workflow on a canvas, with pan, zoom and search; it needs no network and no library.

Python lays out the nodes, level by level: a child graph is laid out on its own and becomes a frame in its parent. The page,
`page.html`, only draws; it receives everything as JSON. Nodes are not folded: the page skips nodes outside the viewport.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, Literal

from ...arrays import Access, ArrayView, Parameter
from ...checks import Report
from ...drawing.layout import engine, lay_out
from ...drawing.picture import (
    Critical,
    Edges,
    Planned,
    Shown,
    details,
    lane_plan,
    needed_edges,
    rank_label,
    ranks_and_messages,
    shown,
    size_of,
)
from ...drawing.style import Style, shortened, style_of, text_width
from ...errors import DeclarationError, HipGraphError
from ...kernels import Kernel, Module
from ...nodes import Node, all_kinds, callable_name
from ...nodes.workflow import Workflow
from ...plan.steps import Plan
from ...printed import human_bytes, human_count
from ...target import Target
from ..ranks.sharing import ALL, Ranks, Sharing
from .levels import Placement, arrange, in_bands

Layout = Literal["auto", "graphviz", "layered"]

_GRAPHVIZ_UP_TO = 400  # nodes per level; Graphviz takes seconds for twice as many, and minutes for ten times as many
_PAGE: Final = Path(__file__).with_name("page.html")
_GRAPHVIZ_RUNS = 6  # maximum number of levels, from the first on, that Graphviz lays out: each costs a process
_ALL_NODES = 20_000  # beyond this many nodes, further children stay closed
_HEADER = 26.0  # height of a frame's title in pixels
_PAD = 16.0
_MAX_TEXT = 400  # characters per field
_RANK = Style("rank", "#f4f6f8", "#7b8794", "round")


def render(
    workflow: Workflow,
    *,
    edges: Edges = "needed",
    lanes: bool | int | Plan = False,
    critical: Critical = False,
    faults: bool | Report = True,
    target: str | Target | None = None,
    ranks: int | Sequence[int] | None = None,
    layout: Layout = "auto",
    timeout_s: float = 4.0,
) -> str:
    """Return a page that shows a workflow.

    Parameters
    ----------
    edges, lanes, critical, faults, target, ranks
        As for `picture.draw`: what the page shows initially; the page offers a choice. ``"labels"`` writes array and hazard
        at each edge.
    layout : {"auto", "graphviz", "layered"}
        ``"auto"`` uses Graphviz for up to 400 nodes per level if it is installed, otherwise the project's own layout.
    timeout_s : float
        Time limit for Graphviz in seconds, after which ``"auto"`` uses the project's own layout.

    Raises
    ------
    DeclarationError
        If an option has an invalid value, or Graphviz is requested but not installed.
    HipGraphError
        If Graphviz is requested and fails or exceeds the time limit.
    """
    if layout not in ("auto", "graphviz", "layered"):
        raise DeclarationError(f"layout is 'auto', 'graphviz' or 'layered' (got {layout!r})")
    asked = shown(workflow, edges, lanes, True if critical is False else critical, faults, target, ranks)
    if lanes is False and asked.sharing is None:
        with suppress(HipGraphError):  # lanes were not requested: without a target, show none
            asked = asked._replace(plan=lane_plan(workflow, lanes=True, target=target))
    data = _Document(asked, layout, timeout_s).data(asked.workflow)
    data["show"] = {"lanes": lanes is not False and asked.plan is not None, "critical": critical is not False,
                    "edges": edges}  # fmt: skip
    text = json.dumps(data, separators=(",", ":"), check_circular=False)
    return filled(_PAGE, workflow.name, text)


def filled(page: Path, title: str, data: str) -> str:
    """Return a page with title, shared style and script, and `data`, which is JSON."""

    def text_of(file: str) -> str:
        return (Path(__file__).parent / file).read_text(encoding="utf-8")

    # Only "<" can start the end tag of a script element; ">" and "&" are escaped for less exact parsers.
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    parts = {"TITLE": escape(title), "STYLE": text_of("page.css"), "SCRIPT": text_of("page.js"), "DATA": data}
    return re.sub(r"@(TITLE|STYLE|SCRIPT|DATA)@", lambda mark: parts[mark[1]], page.read_text(encoding="utf-8"))


@dataclass
class _Scene:
    """The layout of one workflow, independent of its position as a child."""

    workflow: Workflow
    sizes: list[tuple[float, float]]
    placement: Placement
    needed: list[set[int]]
    inner: dict[int, list[tuple[float, float, _Scene]]] = field(default_factory=dict)  # node -> bodies with upper left corners


class _Document:
    """Builds the page's data: `_scene` computes layouts, `_emit` appends nodes and edges."""

    def __init__(self, asked: Shown, layout: Layout, timeout_s: float) -> None:
        _, self.sharing, plan, path, faults = asked
        self.layout, self.timeout_s = layout, timeout_s
        self.rank_frames: dict[Ranks, int] = {}
        """Rank -> index of its frame in `nodes`."""
        self.runs = 0
        self.planned = Planned(plan)
        self.path = set(path)
        self.steps = set(pairwise(path))
        self.faults: dict[str, list[dict[str, str]]] = {}
        self.loose: list[dict[str, str]] = []
        for fault in faults:
            said = {"code": fault.code, "severity": fault.severity, "message": fault.message, "hint": fault.hint}
            for into in [self.faults.setdefault(name, []) for name in fault.nodes] or [self.loose]:
                into.append(said)
        self.scenes: dict[int, _Scene] = {}
        self.open_nodes = 0
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[list[Any]] = []
        self.reasons: dict[str, int] = {}
        self.arrays: dict[int, int] = {}
        self.array_rows: list[list[str]] = []
        self.sources: dict[int, int | None] = {}
        self.source_rows: list[list[str]] = []

    def data(self, workflow: Workflow) -> dict[str, Any]:
        """Return all data of the page."""
        scene = self._scene(workflow, 0)
        subtitle = size_of(workflow)
        if self.sharing is None:
            self._emit(scene, "", -1, 0.0, 0.0)
        else:
            self._frame_ranks(scene, self.sharing)
            subtitle += ranks_and_messages(self.sharing)
        return {
            "name": workflow.name,
            "subtitle": subtitle,
            "lanes": self.planned.counts,
            "width": round(scene.placement.width),
            "height": round(scene.placement.height),
            "kinds": {
                kind: asdict(_RANK if kind == "rank" else style_of(kind))
                for kind in (*all_kinds(), "rank")
                if any(node["kind"] == kind for node in self.nodes)
            },
            "faults": self.loose,
            "nodes": self.nodes,
            "edges": self.edges,
            "reasons": list(self.reasons),
            "arrays": self.array_rows,
            "sources": self.source_rows,
        }  # fmt: skip

    def _scene(self, workflow: Workflow, depth: int) -> _Scene:
        found = self.scenes.get(id(workflow))
        if found is not None:
            return found
        self.open_nodes += len(workflow.nodes)
        sizes: list[tuple[float, float]] = []
        inner: dict[int, list[tuple[float, float, _Scene]]] = {}
        for i, node in enumerate(workflow.nodes):
            lines = details(node)
            name = 12 * 1.06 * text_width(shortened(node.name, 40))
            wide = max(name, *(10.5 * text_width(shortened(line, 44)) for line in lines), 40.0)
            size: tuple[float, float] = (round(wide + 30.0), 26.0 + 14.0 * len(lines))
            by_library = self.sharing is not None and depth == 0 and node.derives  # one library call on each rank
            bodies = [] if by_library else [body for _, body, _ in node.held]
            if bodies and depth < 16 and self.open_nodes + sum(len(b.nodes) for b in bodies) <= _ALL_NODES:
                x, high = _PAD, 0.0
                inner[i] = []
                for body, title in zip(bodies, node.body_titles):
                    scene = self._scene(body, depth + 1)
                    own = _HEADER if title else 0.0
                    inner[i].append((x, _HEADER + own + _PAD / 2, scene))
                    x += max(scene.placement.width, 60.0) + _PAD
                    high = max(high, scene.placement.height + own)
                size = (round(max(size[0], x)), round(_HEADER + high + 1.5 * _PAD))
            sizes.append(size)
        sources = needed_edges(workflow)
        scene = _Scene(workflow, sizes, self._place(workflow, sizes, sources), [set(row) for row in sources], inner)
        self.scenes[id(workflow)] = scene
        return scene

    def _place(self, workflow: Workflow, sizes: list[tuple[float, float]], sources: Sequence[Sequence[int]]) -> Placement:
        wanted = self.layout == "graphviz" or (
            self.layout == "auto" and 2 < len(sizes) <= _GRAPHVIZ_UP_TO and self.runs < _GRAPHVIZ_RUNS and engine() is not None
        )
        if wanted and sizes:
            self.runs += 1
            try:
                return _graphviz(sizes, sources, self.timeout_s)
            except HipGraphError:
                if self.layout == "graphviz":
                    raise
                self.runs = _GRAPHVIZ_RUNS  # a retry would cost the same time again
        return arrange(sizes, sources, workflow.order)

    def _frame_ranks(self, scene: _Scene, sharing: Sharing) -> None:
        """Append the workflow in columns: a frame per rank, messages between two ranks, and nodes of all ranks."""
        layout = sharing.layout
        columns = []  # column of each node: rank r has column 2 * r
        for ranks in sharing.ranks:
            first = min(ranks) if isinstance(ranks, tuple) else ranks
            columns.append(2 * layout.size if first == ALL else 2 * first + isinstance(ranks, tuple))
        scene.placement, bands = in_bands(scene.sizes, scene.placement, columns, _PAD)
        height = scene.placement.height + 2 * _PAD
        for column, (x, width) in bands.items():
            rank = column // 2
            if column % 2 or rank == layout.size:
                continue
            box = (x, 0.0, width, _HEADER + height)
            self.rank_frames[rank] = self._frame(f"rank {rank}", rank_label(layout, rank), "rank", -1, box)
        self._emit(scene, "", -1, 0.0, _HEADER + _PAD)
        scene.placement = scene.placement._replace(height=_HEADER + height)

    def _emit(self, scene: _Scene, prefix: str, parent: int, x0: float, y0: float) -> None:
        """Append a workflow whose upper left corner is at (x0, y0)."""
        index: list[int] = []
        workflow = scene.workflow
        for i, node in enumerate(workflow.nodes):
            x, y = scene.placement.places[i]
            width, height = scene.sizes[i]
            index.append(len(self.nodes))
            full = prefix + node.name
            around = parent if prefix or self.sharing is None else self.rank_frames.get(self.sharing.ranks[i], -1)
            self.nodes.append(self._node(node, full, around, (x0 + x, y0 + y, width, height), i in scene.inner))
            held = zip(scene.inner[i], node.held, node.body_titles) if i in scene.inner else ()
            for (dx, dy, body), (path, _, _), title in held:
                within = index[-1]
                if title:
                    frame = (x0 + x + dx - _PAD / 2, y0 + y + dy - _HEADER, body.placement.width + _PAD,
                             body.placement.height + _HEADER + _PAD / 2)  # fmt: skip
                    label = f"{title}: {shortened(body.workflow.name, 40)}"
                    within = self._frame(prefix + path, label, node.kind, index[-1], frame)
                self._emit(body, f"{prefix}{path}/", within, x0 + x + dx, y0 + y + dy)
        for target, (sources, reasons) in enumerate(zip(workflow.predecessors, workflow.reasons)):
            for source, reason in zip(sources, reasons):
                steps = (prefix + workflow.nodes[source].name, prefix + workflow.nodes[target].name)
                edge: list[Any] = [
                    index[source], index[target], self.reasons.setdefault(str(reason), len(self.reasons)),
                    int(source in scene.needed[target]), int(steps in self.steps),
                ]  # fmt: skip
                curve = scene.placement.curves.get((source, target))
                if curve:
                    edge.append([round(v + (y0 if k % 2 else x0)) for k, v in enumerate(curve)])
                self.edges.append(edge)

    def _frame(self, name: str, label: str, kind: str, parent: int, box: tuple[float, ...]) -> int:
        """Append a frame that is not a node, and return its index."""
        self.nodes.append({
            "name": name, "label": label, "kind": kind, "parent": parent,
            "box": [round(v) for v in box], "frame": True, "lines": [],
        })  # fmt: skip
        return len(self.nodes) - 1

    def _node(self, node: Node, full: str, parent: int, box: tuple[float, ...], frame: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "name": full, "label": shortened(node.name, 40), "kind": node.kind, "parent": parent,
            "box": [round(v) for v in box], "lines": [shortened(line, 44) for line in details(node)], "fields": _fields(node),
            "arrays": [[access.mode, self._array(access.view), shortened(access.view.name, 80)] for access in node.accesses],
        }  # fmt: skip
        where = node.source
        known = {
            "frame": frame or None,
            "lane": self.planned.lane_of.get(full),
            "by_host": full in self.planned.by_host or None,
            "segment": self.planned.segment_of.get(full),
            "critical": full in self.path or None,
            "declared": None if where is None else f"{where[0]}:{where[1]}",
            "source": self._source(node),
            "faults": self.faults.get(full),
        }
        return entry | {key: value for key, value in known.items() if value is not None}

    def _array(self, view: ArrayView) -> int:
        root = view.root
        at = self.arrays.get(id(root))
        if at is None:
            at = self.arrays[id(root)] = len(self.array_rows)
            shape = ", ".join(map(str, root.shape))
            self.array_rows.append([root.name, root.kind, f"{root.dtype} ({shape})", human_bytes(root.nbytes)])
        return at

    def _source(self, node: Node) -> int | None:
        """Return the index of the source text, of a kernel or a function, that the node shows."""
        shown = next((kernel.module for kernel in node.kernels), node.callback)
        if shown is not None and id(shown) not in self.sources:
            title, text = _text(shown)
            self.sources[id(shown)] = len(self.source_rows) if text else None
            self.source_rows += [[title, text]] if text else []
        return self.sources.get(id(shown))


def _text(shown: Any) -> tuple[str, str]:
    """Return the title and the source of a module or a function; empty if the source is not available."""
    if isinstance(shown, Module):
        return f"module {shown.name}", getattr(shown, "source", "")
    with suppress(OSError, TypeError):
        return callable_name(shown), dedent(inspect.getsource(shown)).strip()
    return "", ""


def _graphviz(sizes: list[tuple[float, float]], sources: Sequence[Sequence[int]], timeout_s: float) -> Placement:
    """Return the positions and curves that Graphviz computes."""
    lines = ["digraph {", "graph [nodesep=0.3, ranksep=0.5, nslimit=2, nslimit1=2, mclimit=0.5];",
             'node [shape=box, fixedsize=true, label=""];', "edge [arrowhead=none];"]  # fmt: skip
    lines += [f"n{i} [width={w / 72:.4f}, height={h / 72:.4f}];" for i, (w, h) in enumerate(sizes)]
    lines += [f"n{source} -> n{target};" for target, row in enumerate(sources) for source in row]
    lines.append("}")
    said = lay_out("\n".join(lines), "plain", what="an .html file", timeout_s=timeout_s).decode()
    width = height = 0.0
    places = [(0.0, 0.0)] * len(sizes)
    curves: dict[tuple[int, int], list[float]] = {}
    for line in said.splitlines():
        match line.split():
            case ["graph", _, w, h, *_]:
                width, height = float(w) * 72, float(h) * 72
            case ["node", name, x, y, *_]:
                i = int(name[1:])
                places[i] = (float(x) * 72 - sizes[i][0] / 2, height - float(y) * 72 - sizes[i][1] / 2)
            case ["edge", source, target, count, *rest]:
                points = [float(v) * 72 for v in rest[: 2 * int(count)]]
                curves[int(source[1:]), int(target[1:])] = [height - v if k % 2 else v for k, v in enumerate(points)]
    return Placement(width, height, places, curves)


def _fields(node: Node) -> list[list[str]]:
    """Return the node's fields as text, in model order; fields with default values are left out."""
    rows = []
    for name, info in type(node).model_fields.items():
        value = getattr(node, name)
        if name in ("name", "source") or value is None or (isinstance(value, (tuple, dict)) and not value):
            continue
        if isinstance(value, (bool, int)) and value == info.default:
            continue
        if name == "args" and node.argument_names:
            for known, argument in zip(node.argument_names, value):
                rows.append([f"args: {known}", shortened(_said(argument), _MAX_TEXT)])
        else:
            rows.append([name, shortened(_said(value), _MAX_TEXT)])
    return rows


def _said(value: Any) -> str:
    if isinstance(value, (ArrayView, Parameter, Kernel)):
        return value.name
    if isinstance(value, Access):
        return f"{value.view.name} ({value.mode})"
    if isinstance(value, Workflow):
        return f"{value.name} ({human_count(len(value.nodes), 'node')})"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_said, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_said(each)}" for key, each in value.items())
    view = getattr(value, "view", None)
    if isinstance(view, ArrayView):
        return f"{value.op} {view.name} {value.value}" if hasattr(value, "op") else view.name
    if callable(value):
        return callable_name(value)
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
