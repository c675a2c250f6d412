"""A part of hipgraphdsl that another package adds: a format and a check for the review of workflows."""

from __future__ import annotations

import csv
import io

import hipgraphdsl as hg
from hipgraphdsl.checks import CheckedLevel, Entry


def as_table(workflow: hg.Workflow, *, separator: str = ",") -> str:
    """Return a row for each node: its name and kind, the nodes that it waits for, and the arrays that it reads and writes."""
    text = io.StringIO()
    rows = csv.writer(text, delimiter=separator, lineterminator="\n")
    rows.writerow(("node", "kind", "after", "reads", "writes"))
    for node, predecessors in zip(workflow.nodes, workflow.predecessors):
        after = [workflow.nodes[index].name for index in predecessors]
        reads, writes = (sorted({view.name for view in views}) for views in (node.reads, node.writes))
        rows.writerow((node.name, node.kind, " ".join(after), " ".join(reads), " ".join(writes)))
    return text.getvalue()


def find_unproved(level: CheckedLevel) -> None:
    """Report each kernel node whose kernel has no NumPy reference."""
    for node in level.workflow.nodes:
        if isinstance(node, hg.KernelNode) and node.kernel.reference is None:
            level.found(
                "REV101",
                f"{level.name(node)!r} launches kernel {node.kernel.name!r}, which has no NumPy reference",
                node,
                hint="give it one with kernel.with_reference, and hipgraphdsl verify compares their values",
            )


PART = hg.Part(
    protocol=1,
    does="review of workflows",
    formats={".csv": as_table},
    checks={
        "REV101": Entry(
            severity="warning",
            title="kernel without a reference",
            summary="A kernel has no NumPy reference, so verify cannot say whether its values are right.",
            check=find_unproved,
        )
    },
)
