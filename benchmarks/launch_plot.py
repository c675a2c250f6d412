"""What `hipgraphdsl bench launch -o launch.json` has measured, as a picture, and how far it is from the project's aims.

Run in a checkout as ``python -m benchmarks.launch_plot launch.json launch.svg``; ``--submit`` draws the time until the call
returns. It needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from hipgraphdsl.parts.bench.launch import UNSIZED
from hipgraphdsl.parts.bench.measure import Sheet

_STYLES: Final = {
    "serial": ("#9aa0a6", "o", "-"),
    "streams": ("#5f6368", "s", "-"),
    "capture": ("#1a73e8", "^", "-"),
    "explicit": ("#d93025", "o", "-"),
    "C++": ("#000000", "x", ":"),
    "cuda-bindings": ("#188038", "+", ":"),
    "cupy": ("#e37400", "v", ":"),
    "torch": ("#a142f4", "d", ":"),
    "cuda.core": ("#12b5cb", "*", ":"),
}


def plot(sheet: Sheet, path: str, key: str = "total_us") -> None:
    """Draw the launch time of a node over the number of nodes, a panel for each shape, as PNG or SVG; needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = list(dict.fromkeys(row["shape"] for row in sheet.rows))
    shapes = [shape for shape in measured if shape not in UNSIZED] or measured
    columns = min(4, len(shapes))
    lines = -(-len(shapes) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, 3.0 * lines + 1.1), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    known: dict[str, Any] = {}
    for axis, shape in zip(axes.flat, shapes):
        for who in dict.fromkeys(row["who"] for row in sheet.rows):
            points = sorted(
                (row["nodes"], row[key] / row["nodes"])
                for row in sheet.rows
                if row["shape"] == shape and row["who"] == who and row[key]
            )
            if points:
                colour, mark, stroke = _STYLES.get(who, ("#80868b", ".", "-"))
                (line,) = axis.plot(*zip(*points), color=colour, marker=mark, linestyle=stroke, markersize=5, linewidth=1.4)
                known.setdefault(who, line)
        axis.set_title(shape.replace("_", " "), fontsize=11)
        axis.set(xscale="log", yscale="log")
        axis.grid(visible=True, which="major", linewidth=0.5, alpha=0.5)
        axis.tick_params(labelsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    for i, axis in enumerate(axes.flat):
        if i >= len(shapes):
            axis.set_visible(False)
        elif i + columns >= len(shapes):  # nothing below it
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("nodes", fontsize=10)
    figure.supylabel("microseconds a node", fontsize=10)
    until = "the device has finished" if key == "total_us" else "the call returns"
    device = sheet.machine.get("device", sheet.machine["cpu"])
    figure.suptitle(f"One launch until {until}, {device}", fontsize=12)
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=min(9, len(known)), frameon=False, fontsize=9)
    figure.savefig(path, dpi=140)


def aims(sheet: Sheet) -> list[str]:
    """Return in sentences how far the explicit backend is from what the project aims for on a GPU."""
    rows = [
        row for row in sheet.rows if row["who"] == "explicit" and row["shape"] in ("single", "chain") and row["nodes"] <= 1000
    ]
    lines = []
    for key, what, aim in (
        ("submit_ratio", "a launch of a chain of at most 1000 nodes, relative to C++", 1.15),
        ("update_one_ratio", "a launch with one changed parameter, relative to C++", 2.0),
    ):
        worst = max((row for row in rows if row.get(key) is not None), key=lambda row: float(row[key]), default=None)
        if worst:
            verdict = "reached" if worst[key] <= aim else "missed"
            lines.append(f"{what}: {worst[key]:.3g} at {worst['nodes']} nodes, aim <= {aim:g}, {verdict}")
    for row in rows:
        if row["shape"] == "chain" and row["nodes"] == 1000:
            verdict = "reached" if row["lower_us"] <= 1.5 else "missed"
            lines.append(f"lowering a chain of 1000 nodes: {row['lower_us']:.3g} us a node, aim <= 1.5, {verdict}")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, metavar="launch.json")
    parser.add_argument("picture", metavar="FILE", help="a .png or .svg file")
    parser.add_argument("--submit", action="store_true", help="draw the time until the call returns")
    options = parser.parse_args()
    found = json.loads(options.measured.read_text(encoding="utf-8"))
    shown = Sheet(found["bench"], (), found["rows"], machine=found["machine"])
    plot(shown, options.picture, "submit_us" if options.submit else "total_us")
    if found["machine"]["runtime"].startswith("nvidia"):
        print("\n".join(aims(shown)))
