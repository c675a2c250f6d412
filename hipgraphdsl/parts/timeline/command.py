"""``hipgraphdsl timeline``."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from ...cli.arguments import (
    add_batch,
    add_device,
    add_lanes,
    add_options,
    add_param,
    add_ranks,
    add_repeated,
    add_runtime,
    add_target,
    add_workflow,
    layout,
    option_value,
    pairs,
)
from ...cli.files import require_place, say_written, unknown_format
from ...cli.status import GOOD, Misuse
from ...cli.supplies import add_supplies, parameter_values, supplied_graph
from ...cli.tables import columns
from ...errors import DeclarationError
from . import files as timelines

if TYPE_CHECKING:
    from ..ranks.links import Link

DESCRIPTION = (
    "Show when each node runs: measured in one launch, or predicted with --duration. Measuring compiles and runs native code."
)
EXAMPLES = (
    "examples/03_overlap_pipeline.py --runtime cpu",
    "wave.py --runtime cpu -o wave.html",
    "wave.py -o wave.trace.json --option by=lane",
    "examples/03_overlap_pipeline.py --duration H2D=1 --duration kernel=1 --duration D2H=1 --engine kernel=2 -o pipeline.svg",
    "wave.py --duration kernel=50 --duration memset=5 --ranks 8 --link latency_us=5 --link gb_s=25 -o wave.svg",
    "examples/07_jacobi.py --duration kernel=3 --duration memset=2 --duration memcpy=4 --condition converge=3",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workflow(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"write a file; its extension names the format: {' '.join(timelines.FORMATS)}"
    )
    add_options(parser, "by=lane")
    add_repeated(
        parser,
        "--duration",
        "KEY=TIME",
        "predict instead of measuring: the time of a node, or of a kind or direction (kernel, H2D, ...), in any unit",
    )
    add_repeated(parser, "--engine", "NAME=N", "prediction: number of engines, e.g. kernel=2 or copy=1")
    add_repeated(
        parser,
        "--condition",
        "NODE=VALUE",
        "prediction: expand a conditional node: the passes of a loop, the body of a switch, or true or false for an if",
    )
    add_target(parser, "prediction: put nodes into one launch as compile does on this target")
    add_ranks(parser, "prediction: share the devices among N processes; durations are microseconds then")
    add_repeated(parser, "--link", "NAME=X", "with --ranks: the link between two processes; give both latency_us=5 and gb_s=25")
    add_runtime(parser, "measurement: where it runs (default: auto)")
    add_lanes(parser)
    add_batch(parser)
    add_device(parser)
    add_param(parser)
    add_supplies(parser)


def run(options: argparse.Namespace) -> int:
    """Measure or predict the timeline, and print or write it."""
    options.dry_run = bool(options.duration)  # a prediction runs nothing
    given = pairs(options.option, "--option", option_value)
    if given and not options.output:
        raise Misuse("--option belongs to -o FILE")
    if options.output and not timelines.is_known(options.output):
        raise unknown_format(options.output, timelines.FORMATS)
    require_place(options.output)
    for name in ("engine", "condition", "target"):
        if getattr(options, name) and not options.duration:
            raise Misuse(f"--{name} belongs to a prediction: give each kind's time with --duration")
    ranks, link = layout(options), _link(pairs(options.link, "--link", float))
    if (ranks or link) and not options.duration:
        raise Misuse("--ranks and --link belong to a prediction: give each kind's time with --duration")
    if link and not ranks:
        raise Misuse("--link joins the processes of --ranks: give --ranks N")
    if options.param and options.duration:
        raise Misuse("--param belongs to a measurement: leave --duration out")
    durations = pairs(options.duration, "--duration", float)
    engines = pairs(options.engine, "--engine", int)
    conditions = pairs(options.condition, "--condition", option_value)
    graph, arrays = supplied_graph(options)
    if durations:
        told = {"target": options.target, "batch": options.batch, "ranks": ranks and ranks.counts, "link": link}
        try:
            found = graph.simulate(durations, engines, **told, conditions=conditions)
        except DeclarationError as error:
            said = re.sub(r"durations\[(['\"])(.*?)\1\]", r"--duration \2=", str(error))
            said = said.replace("durations has", "--duration has")
            raise DeclarationError(said, node=error.node, array=error.array) from None
    else:
        params = parameter_values(graph, options.param)
        with graph.compile(runtime=options.runtime, lanes=options.lanes, device=options.device, batch=options.batch) as exe:
            for name, values in arrays.items():
                exe.write(name, values)
            exe.run(**params)  # warm-up: work of the first launch, such as compilation, is not measured
            found = exe.profile()
    if options.output:
        timelines.export_timeline(found, options.output, **given)
        say_written(options.output)
    else:
        print(found.text(columns()))
    return GOOD


def _link(given: dict[str, float]) -> Link | None:
    """Return the link between ranks; None if it was not given."""
    if not given:
        return None
    if given.keys() != {"latency_us", "gb_s"}:
        raise Misuse(f"--link has a latency_us and a gb_s: --link latency_us=5 --link gb_s=25 (got {', '.join(given)})")
    from ..ranks.links import Link

    return Link(**given)
