"""``hipgraphdsl check``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..printed import human_bytes
from ..workflow import Workflow
from .arguments import add_ranks, add_target, add_workflow, layout
from .files import put, require_place
from .status import FAULTY, GOOD, Misuse
from .tables import plain_console, print_part, table
from .workflows import file_of, load_graph

if TYPE_CHECKING:
    from ..distributed.sharing import Layout

DESCRIPTION = "Look for faults in a workflow: races, lifetimes, arguments, limits. Nothing is compiled or run."
EXAMPLES = ("wave.py", "wave.json --target amd:gfx942@7.2", "wave.py --ranks 8 --devices-per-rank 4", "wave.py --format sarif")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workflow(parser)
    add_target(parser, "also check the limits and defects of a device: cpu, amd:gfx942, nvidia:sm_90, ...")
    add_ranks(parser, "also show which nodes each of N processes runs, and their messages")
    parser.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="(default: text)")
    parser.add_argument("--strict", action="store_true", help="end with status 1 for warnings too")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to the terminal")


def run(options: argparse.Namespace) -> int:
    """Print the report, or write it."""
    require_place(options.output)
    shared = layout(options)
    if shared is not None and (options.format != "text" or options.output):
        raise Misuse("--ranks prints a table: leave --format and --output out")
    graph = load_graph(options.workflow)
    report = graph.check(options.target)
    if options.format == "text" and not options.output:
        plain_console().print(report)
    else:
        writers: dict[str, Callable[[], str]] = {
            "text": report.__str__, "json": report.to_json, "sarif": partial(report.to_sarif, file_of(options.workflow))
        }  # fmt: skip
        text = writers[options.format]()
        put(text.rstrip("\n") + "\n", options.output)
    if shared is not None and not report.errors:
        _print_ranks(graph.workflow(), shared)
    return FAULTY if report.errors or (options.strict and report.warnings) else GOOD


def _print_ranks(workflow: Workflow, shared: Layout) -> None:
    """Print the devices, nodes and memory of each rank, and the messages of one launch."""
    from ..distributed.sharing import ALL, Sharing, crossing

    sharing = Sharing(workflow, shared)
    crosses = crossing(sharing.all_messages)
    nodes = Counter(ranks for ranks in sharing.ranks if not isinstance(ranks, tuple))
    memory: Counter[tuple[int, bool]] = Counter()  # bytes by (rank, whether in host memory)
    for name, array in sharing.workflow.arrays.items():
        memory[sharing.owners[name], array.on_host] += array.nbytes
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for (source, target), (count, _) in crosses.items():
        sent[source] += count
        received[target] += count
    rows = []
    for rank in range(shared.size):
        device, host = (human_bytes(memory[rank, on_host] + memory[ALL, on_host]) for on_host in (False, True))
        cells = (rank, shared.shown(rank), nodes[rank] + nodes[ALL], device, host, sent[rank], received[rank])
        rows.append(tuple(map(str, cells)))
    heads = ("rank", "devices", "nodes", "device memory", "host memory", "sends", "receives")
    print_part(table(heads, rows, 64, right=(2, 3, 4, 5, 6)))
    links = [(f"{a} -> {b}", str(count), human_bytes(nbytes)) for (a, b), (count, nbytes) in sorted(crosses.items())]
    if links:
        print_part(table(("from, to", "messages a launch", "bytes a launch"), links, 64, right=(1, 2)))
    else:
        plain_console().print("\nNothing crosses between ranks.")
