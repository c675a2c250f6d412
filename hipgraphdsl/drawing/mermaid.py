"""Mermaid: a picture as text that GitHub, GitLab and many editors render."""

from __future__ import annotations

import logging
from typing import Any, Final

from ..nodes.workflow import Workflow
from .picture import Box, Cluster, Link, Picture, as_direction, codes, draw
from .style import CRITICAL, FAULT, FAULT_FILL, INK, LANES, MUTED, REPEAT, shortened, style_of

_log = logging.getLogger("hipgraphdsl")

_MOST_EDGES: Final = 500  # Mermaid's default `maxEdges`
_MOST_TEXT: Final = 50_000  # Mermaid's default `maxTextSize`, in UTF-16 units, without front matter and comments

_SHAPES: Final = {
    "round": ("(", ")"),
    "slanted": ("[/", "/]"),
    "hexagon": ("{{", "}}"),
    "cylinder": ("[(", ")]"),
    "framed": ("[[", "]]"),
    "pill": ("([", "])"),
    "folder": ("[", "]"),
    "diamond": ("{", "}"),
}


def render(workflow: Workflow, *, direction: str = "TB", **options: Any) -> str:
    """Return a workflow as a Mermaid flowchart; parameters as for `dot.render`."""
    return mermaid_text(draw(workflow, **options), direction=direction)


def mermaid_text(picture: Picture, *, direction: str = "TB") -> str:
    """Return a picture as a Mermaid flowchart; log a warning, and begin with it, if Mermaid refuses to draw it by default."""
    lines = _chart(picture, direction)
    head = ["---", f"title: {_yaml(picture.title + ': ' + picture.subtitle)}", "---", lines[0]]
    beyond = _beyond(len(picture.links), "\n".join(lines) + "\n")
    if beyond:
        _log.warning("the chart of %s holds %s", picture.title, beyond)
        head.append(f"  %% This chart holds {_comment(beyond)}")
    head += [f"  %% {fault.code} {_comment(fault.message)}" for fault in picture.faults]
    return "\n".join([*head, *lines[1:]]) + "\n"


def _beyond(edges: int, text: str) -> str:
    """Return which of Mermaid's default limits a chart exceeds, and what to do; empty if none."""
    units = len(text.encode("utf-16-le")) // 2
    limits = ((edges, _MOST_EDGES, "edges", "maxEdges"), (units, _MOST_TEXT, "characters", "maxTextSize"))
    found = [(f"{count} {what} ({most})", option, count) for count, most, what, option in limits if count > most]
    if not found:
        return ""
    options = " and ".join(f"{option} to {count}" for _, option, count in found)
    return (
        f"more than Mermaid draws by default: {', '.join(said for said, *_ in found)}; draw less (fold=True), write .html or"
        f" .svg, or set Mermaid's {options} where it is drawn, which a file cannot"
    )


def _chart(picture: Picture, direction: str) -> list[str]:
    lines = [f"flowchart {as_direction(direction)}"]
    for depth, thing in picture.walk():
        indent = "  " * (depth + 1)
        if isinstance(thing, Cluster):
            lines.append(f'{indent}subgraph {thing.id}["{_text(shortened(thing.label, 70))}"]')
        else:
            lines.append(indent + (_node(thing) if thing else "end"))
    strokes = {
        "faulty": f"stroke:{FAULT},stroke-width:3px",
        "critical": f"stroke:{CRITICAL},stroke-width:3px",
        "next": f"stroke:{REPEAT}",
    }
    marked: dict[str, list[str]] = {}
    for n, link in enumerate(picture.links):
        lines.append("  " + _edge(link))
        what = "faulty" if link.faulty else "critical" if link.critical else link.style
        if what in strokes:
            marked.setdefault(what, []).append(str(n))
    for kind in dict.fromkeys(box.kind for box in picture.boxes):
        style = style_of(kind)
        dash = ",stroke-dasharray:5 3" if style.dashed else ""
        lines.append(f"  classDef {_class_name(kind)} fill:{style.fill},stroke:{style.stroke},color:{INK}{dash}")
    if any(box.critical for box in picture.boxes):
        lines.append(f"  classDef critical stroke:{CRITICAL},stroke-width:3px")
        lines.append(f"  class {','.join(box.id for box in picture.boxes if box.critical)} critical")
    if any(box.faults for box in picture.boxes):
        lines.append(f"  classDef faulty fill:{FAULT_FILL},stroke:{FAULT},stroke-width:3px,color:{FAULT}")
        lines.append(f"  class {','.join(box.id for box in picture.boxes if box.faults)} faulty")
    lines += [f"  linkStyle {','.join(found)} {strokes[what]}" for what, found in marked.items()]
    for cluster in picture.clusters:
        if cluster.id not in picture.first_box:
            continue
        if cluster.faults:
            lines.append(f"  style {cluster.id} fill:{FAULT_FILL},stroke:{FAULT},stroke-width:3px")
        elif cluster.kind == "segment":
            lines.append(f"  style {cluster.id} fill:none,stroke:{MUTED},stroke-dasharray:5 3")
        elif cluster.kind == "repeat":
            lines.append(f"  style {cluster.id} fill:none,stroke:{REPEAT},stroke-dasharray:5 3")
        else:
            fill = LANES[cluster.lane % len(LANES)] if cluster.kind == "lane" else style_of("child").fill
            stroke = f"{CRITICAL},stroke-width:3px" if cluster.critical else "#a9b4c0"
            lines.append(f"  style {cluster.id} fill:{fill},stroke:{stroke},color:{INK}")
    return lines


def _class_name(kind: str) -> str:
    return kind.replace(".", "_")  # of another package: "part.kind"


def _text(text: str) -> str:
    """Escape text for a quoted label, so that nothing in it ends the label or is parsed as markup."""
    return "".join(f"#{ord(c)};" if c in '"#&<>`\\[]{}|' or ord(c) < 32 else c for c in text)


def _comment(text: str) -> str:
    return " ".join(text.replace("%%", "% %").replace("{", "(").replace("}", ")").split())


def _yaml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("<", "\\x3c") + '"'


def _node(box: Box) -> str:
    style = style_of(box.kind)
    opening, closing = _SHAPES[style.shape]
    parts = [f"<b>{_text(shortened(box.name, 48))}</b>" + (f" ×{box.repeats}" if box.repeats > 1 else "")]
    parts += [_text(shortened(line, 44)) for line in box.lines]
    parts += [f"<b>{code}</b>" for code in codes(box.faults)]
    return f'{box.id}{opening}"{"<br/>".join(parts)}"{closing}:::{_class_name(box.kind)}'


def _edge(link: Link) -> str:
    label = link.label
    if link.style == "next":
        label = f"next: {label}" if label else "next"
    arrow = {"next": "-.->", "fault": "-.-"}.get(link.style, "-->")
    said = f'|"{_text(label)}"|' if label else ""
    return f"{link.source} {arrow}{said} {link.target}"
