"""What each rank runs, holds, sends and receives, as tables for a terminal."""

from __future__ import annotations

from collections import Counter

from ...cli.tables import plain_console, print_part, table
from ...nodes.workflow import Workflow
from ...printed import human_bytes
from .sharing import ALL, Layout, Sharing, crossing


def print_ranks(workflow: Workflow, shared: Layout) -> None:
    """Print the devices, nodes and memory of each rank, and the messages of one launch."""
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
