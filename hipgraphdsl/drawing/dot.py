"""Graphviz: a picture as DOT text, which needs no Graphviz to write, and its rendering by Graphviz as SVG and PNG."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from ..export.files import fitting
from ..nodes import KINDS
from ..nodes.workflow import Workflow
from .layout import lay_out
from .picture import Box, Cluster, Link, Picture, as_direction, codes, draw
from .style import BACKGROUND, CRITICAL, EDGE, FAULT, FAULT_FILL, FONT, INK, LANES, MUTED, REPEAT, shortened, style_of, text_width

_MAX_BOXES_FINE: Final = 150  # at 144 dots per inch, a bitmap of more boxes is too large for many viewers

_SLANT: Final = 9.0  # points by which a parallelogram slants
_GAP: Final = 3  # points between a node's name and the lines below it

_SHAPES: Final = {"round": "box", "slanted": "polygon", "framed": "box", "pill": "oval"}
"""Shapes that have another name in Graphviz."""


def render(workflow: Workflow, *, direction: str = "TB", **options: Any) -> str:
    """Return a workflow as DOT text.

    Parameters
    ----------
    direction : {"TB", "LR"}
        Direction of the edges: top to bottom, or left to right.
    **options
        Options of `picture.draw`: fold, edges, lanes, critical, faults, target, ranks.
    """
    return dot_text(draw(workflow, **options), direction=direction)


def svg(workflow: Workflow, *, direction: str = "TB", timeout_s: float = 120.0, **options: Any) -> str:
    """Return a drawing as SVG without the document type, so that it can be embedded in a page.

    `timeout_s` limits the layout time in seconds, the other parameters are as for `render`.
    """
    picture = draw(workflow, **options)
    return svg_text(dot_text(picture, direction=direction), f"{picture.title}: {picture.subtitle}", timeout_s=timeout_s)


def svg_text(dot: str, alternative: str, *, timeout_s: float = 120.0) -> str:
    """Lay out DOT text and return it as SVG with an alternative text; parameters as for `svg`."""
    text = fitting(lay_out(dot, "svg", what="an .svg file", timeout_s=timeout_s).decode(), alternative)
    # Drop the ids, which would collide between drawings on one page.
    return re.sub(r' id="(?:graph|node|edge|clust)\d+"', "", text)


def png(workflow: Workflow, *, direction: str = "TB", dpi: int | None = None, timeout_s: float = 120.0, **options: Any) -> bytes:
    """Return a drawing as PNG; `dpi` is 144 dots per inch by default, 72 for a large drawing; the rest is as for `svg`."""
    picture = draw(workflow, **options)
    dpi = dpi or (144 if len(picture.boxes) <= _MAX_BOXES_FINE else 72)
    return lay_out(dot_text(picture, direction=direction), "png", what="a .png file", timeout_s=timeout_s, dpi=dpi)


def dot_text(picture: Picture, *, direction: str = "TB", legend: bool = True) -> str:
    """Return a picture as DOT text."""
    large = len(picture.boxes) > 300
    lines = [
        f"digraph {_quoted(picture.title)} {{",
        f"  graph [rankdir={as_direction(direction)}, bgcolor={_quoted(BACKGROUND)},"
        " pad=0.3, nodesep=0.28, ranksep=0.42, compound=true,"
        f" fontname={_quoted(FONT)}, fontsize=13, fontcolor={_quoted(INK)}, labelloc=t, labeljust=l,"
        + (" splines=polyline, nslimit=2, nslimit1=2, mclimit=0.5," if large else "")
        # Lanes have no order: without newrank, frames are ranked one by one, and some edges between lanes point backwards.
        + (" newrank=true," if not large and any(cluster.kind == "lane" for cluster in picture.clusters) else "")
        + f" label={_title(picture)}];",
        f"  node [fontname={_quoted(FONT)}, fontsize=12, fontcolor={_quoted(INK)}, penwidth=1.3,"
        ' margin="0.14,0.07", height=0.3];',
        f"  edge [color={_quoted(EDGE)}, fontname={_quoted(FONT)}, fontsize=9, fontcolor={_quoted(MUTED)},"
        " arrowsize=0.65, penwidth=1.1];",
    ]
    for depth, thing in picture.walk():
        indent = "  " * (depth + 1)
        if isinstance(thing, Cluster):
            lines += [f"{indent}subgraph cluster_{thing.id} {{", f"{indent}  graph [{_frame(thing)}];"]
        else:
            lines.append(indent + (_node(thing) if thing else "}"))
    lines += [_edge(link, picture) for link in picture.links]
    if legend:
        lines += _legend(picture)
    lines.append("}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Escape backslashes: DOT's escape sequences start with them, and some insert a node's name."""
    return text.replace("\\", "\\\\")


def _quoted(text: str) -> str:
    """Return a quoted DOT string, in which only quotes and backslashes are special."""
    return '"' + _plain(text).replace('"', '\\"') + '"'


def _html(text: str) -> str:
    """Return text for an HTML-like label, where DOT's escape sequences apply too."""
    return escape(_plain(text), quote=False)


def _title(picture: Picture) -> str:
    text = f'<B>{_html(picture.title)}</B>  <FONT POINT-SIZE="11" COLOR="{MUTED}">{_html(picture.subtitle)}</FONT>'
    for fault in picture.faults[:5]:
        said = f"{fault.code} {_html(shortened(fault.message, 110))}"
        text += f'<BR ALIGN="LEFT"/><FONT POINT-SIZE="11" COLOR="{FAULT}">{said}</FONT>'
    return f'<{text}<BR ALIGN="LEFT"/>>'


def _node(box: Box) -> str:
    style = style_of(box.kind)
    drawn = ("rounded," if style.shape == "round" else "") + "filled" + (",dashed" if style.dashed else "")
    parts = [f"<B>{_html(shortened(box.name, 48))}</B>"]
    if box.repeats > 1:
        parts[0] += f'  <FONT COLOR="{style.stroke}"><B>×{box.repeats}</B></FONT>'
    if box.lines:  # a gap, for the underscores in the name
        parts.append(f'<FONT POINT-SIZE="{_GAP}"> </FONT>')
    parts += [f'<FONT POINT-SIZE="10" COLOR="{MUTED}">{_html(shortened(line, 44))}</FONT>' for line in box.lines]
    parts += [f'<FONT POINT-SIZE="10" COLOR="{FAULT}"><B>{code}</B></FONT>' for code in codes(box.faults)]
    label = "<BR/>".join(parts)
    if style.shape == "pill" and box.kind == "empty" and not box.lines:
        label = f'<FONT POINT-SIZE="10">{_html(shortened(box.name, 48))}</FONT>'
    values = {"label": f"<{label}>", "shape": _SHAPES.get(style.shape, style.shape), "style": _quoted(drawn),
              "fillcolor": _quoted(style.fill), "color": _quoted(style.stroke)}  # fmt: skip
    if style.shape == "slanted":
        values |= _slanted(box)
    if style.shape == "framed" or box.repeats > 1:
        values["peripheries"] = "2"
    if style.shape in ("hexagon", "pill", "diamond"):
        values["margin"] = '"0.02,0.03"'
    if box.critical:
        values |= {"color": _quoted(CRITICAL), "penwidth": "2.6"}
    if box.faults:
        values |= {"color": _quoted(FAULT), "penwidth": "2.6", "fillcolor": _quoted(FAULT_FILL)}
    tip = box.name + (f": {box.faults[0].message}" if box.faults else "")
    values["tooltip"] = _quoted(_plain(shortened(tip, 300)))  # Graphviz resolves escapes in tooltips twice
    return f"{box.id} [{_listed(values)}];"


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _slanted(box: Box) -> dict[str, str]:
    """Return the size of a parallelogram: Graphviz's default leaves as much room around the text as the text itself takes."""
    name = shortened(box.name, 48) + (f"  ×{box.repeats}" if box.repeats > 1 else "")
    lines = (text_width(shortened(line, 44)) * 10 for line in box.lines)
    widest = max([text_width(name) * 12 * 1.06, *lines, 36 if box.faults else 0])
    width, height = widest + 2 * _SLANT + 10, 26 + _GAP + 11.5 * (len(box.lines) + len(codes(box.faults)))
    part = _SLANT / width
    return {"sides": "4", "skew": f"{2 * part / (1 - part):.4f}", "fixedsize": "true", "width": f"{width / 72:.3f}",
            "height": f"{height / 72:.3f}"}  # fmt: skip


def _frame(cluster: Cluster) -> str:
    label = f"<B>{_html(shortened(cluster.label, 70))}</B>"
    if cluster.faults:
        label += f' <FONT COLOR="{FAULT}"><B>{" ".join(codes(cluster.faults))}</B></FONT>'
    values = {"label": f"<{label}>", "fontsize": "11", "fontcolor": _quoted(MUTED), "margin": "12", "style": '"rounded,filled"',
              "penwidth": "1"}  # fmt: skip
    if cluster.kind == "lane":
        values |= {"fillcolor": _quoted(LANES[cluster.lane % len(LANES)]), "color": '"#d5dce3"'}
    elif cluster.kind == "segment":
        values |= {"fillcolor": '"#ffffff00"', "color": _quoted(MUTED), "style": '"rounded,dashed"', "margin": "8"}
    elif cluster.kind == "repeat":
        values |= {"fillcolor": '"#ffffff00"', "color": _quoted(REPEAT), "style": '"rounded,dashed"'}
        values |= {"fontcolor": _quoted(REPEAT), "penwidth": "1.4"}
    else:
        style = style_of("child")
        values |= {"fillcolor": _quoted(style.fill), "color": _quoted(style.stroke)}
    if cluster.critical:
        values |= {"color": _quoted(CRITICAL), "penwidth": "2.6"}
    if cluster.faults:
        values |= {"color": _quoted(FAULT), "penwidth": "2.6"}
    return _listed(values)


def _edge(link: Link, picture: Picture) -> str:
    source = picture.last_box.get(link.source, link.source)
    target = picture.first_box.get(link.target, link.target)
    values: dict[str, str] = {}
    if source != link.source:
        values |= {"ltail": f"cluster_{link.source}", "minlen": "2"}  # room for the frames and their titles in between
    if target != link.target:
        values |= {"lhead": f"cluster_{link.target}", "minlen": "2"}
    if link.style == "next":
        values |= {"style": "dashed", "constraint": "false", "color": _quoted(REPEAT), "fontcolor": _quoted(REPEAT)}
    elif link.style == "fault":
        values |= {"style": "dashed", "constraint": "false", "dir": "none"}
    if link.critical:
        values |= {"color": _quoted(CRITICAL), "penwidth": "2.6"}
    if link.faulty:
        values |= {"color": _quoted(FAULT), "fontcolor": _quoted(FAULT), "penwidth": "2.2"}
    if link.label:
        values["label"] = _quoted(f" {link.label} ")  # the blanks keep it away from the edge
    return f"  {source} -> {target}" + (f" [{_listed(values)}];" if values else ";")


def _legend(picture: Picture) -> list[str]:
    """Return a table of the node kinds that occur."""
    kinds = [kind for kind in KINDS if any(box.kind == kind for box in picture.boxes)]
    carried = any(link.style == "next" for link in picture.links)
    if len(kinds) < 2 and not carried:
        return []
    cells = [
        f'<TD BGCOLOR="{style.fill}" COLOR="{style.stroke}" BORDER="1"><FONT POINT-SIZE="9">{style.title}</FONT></TD>'
        for style in map(style_of, kinds)
    ]
    if carried:  # once in the legend: labels on parallel edges would overlap
        said = "to the next repetition"
        cells.append(f'<TD STYLE="dashed" COLOR="{REPEAT}" BORDER="1"><FONT POINT-SIZE="9" COLOR="{REPEAT}">{said}</FONT></TD>')
    rows = "".join(f"<TR>{''.join(cells[k : k + 5])}</TR>" for k in range(0, len(cells), 5))
    table = f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="4" CELLPADDING="4">{rows}</TABLE>>'
    return [f"  legend [shape=plain, label={table}];"]
