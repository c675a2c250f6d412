"""The catalogue of diagnostics: every code that `check` may report.

Codes are stable: a code never changes its meaning and is never reused. Each has a page in ``docs/diagnostics``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One code."""

    severity: Severity  # the highest; known defects (HG8xx) are infos for a target without a version
    title: str  # a few words
    summary: str  # one sentence: the fault and its consequence
    check: Callable[[Any], None] | None = None  # of another package's code: called with each `CheckedLevel` that has no cycle


CATALOGUE: dict[str, Entry] = {
    # HG1xx: structure
    "HG101": Entry("error", "cycle", "Nodes wait for each other in a ring, so none of them can ever start."),
    "HG102": Entry("warning", "unknown code in ignore", "A node ignores a code that does not exist, so nothing is silenced."),
    "HG103": Entry("warning", "ignore without a reason", "A node silences a code and does not say why."),
    "HG104": Entry("info", "empty graph", "The graph, or a child graph, has no nodes: launching it does nothing."),
    "HG105": Entry("info", "unused array", "An array takes memory, no node touches it, and it is no parameter's default."),
    "HG106": Entry("info", "unused parameter", "A parameter is declared and no node uses it, so its value changes nothing."),
    "HG107": Entry(
        "info",
        "callback, memory or handle not supplied",
        "A callback, an external array or the handle of a semaphore is still missing; compile refuses the graph until then.",
    ),
    # HG2xx: races and ordering
    "HG201": Entry(
        "error",
        "race between a write and a read",
        "One node writes bytes that another reads and no path orders them, so the reader may see either value.",
    ),
    "HG202": Entry(
        "error", "race between two writes", "Two nodes write the same bytes and no path orders them, so either value may stay."
    ),
    "HG203": Entry(
        "error",
        "race through aliased memory",
        "Two nodes touch the same bytes under different names, at least one writes, and no path orders them.",
    ),
    "HG204": Entry(
        "warning",
        "wait without a record",
        "A node waits for an event that nothing in the graph records, so it waits for nothing.",
    ),
    "HG205": Entry(
        "warning",
        "wait before the record",
        "A node waits for an event that is recorded only after it, so it sees the record of the launch before.",
    ),
    "HG206": Entry(
        "warning",
        "record at no particular time",
        "Nothing comes before or after a node that records an event, so what the event marks is left to chance.",
    ),
    "HG207": Entry(
        "warning",
        "exchange without a barrier",
        "A thread of a kernel reads shared memory that another thread of its block writes, with no barrier between, which is "
        "right at most where the threads of a wave run in lockstep.",
    ),
    # HG3xx: lifetimes
    "HG301": Entry(
        "error",
        "use before alloc",
        "A node uses graph memory and no path leads from its alloc node to it: there may be no memory.",
    ),
    "HG302": Entry("error", "use after free", "A node uses graph memory that a free node before it has returned."),
    "HG303": Entry("error", "free not ordered after a use", "A free node may run before or while another node uses the memory."),
    "HG304": Entry("error", "double free", "Two free nodes return the same memory."),
    "HG305": Entry(
        "error", "free without its alloc", "A free node returns memory that no alloc node of this graph makes before it."
    ),
    "HG306": Entry(
        "info",
        "alloc never freed",
        "The memory stays allocated after each launch, until the next launch frees it or the executable is closed.",
    ),
    "HG307": Entry("error", "double alloc", "Two alloc nodes make the same array."),
    # HG4xx: data
    "HG401": Entry(
        "warning", "alloc read before it is written", "A node reads graph memory that nothing has written, so it reads garbage."
    ),
    "HG402": Entry("warning", "alloc written and never read", "Graph memory is written and nothing reads it: the work is lost."),
    "HG403": Entry("warning", "alloc never used", "Memory is allocated in the graph and no node touches it."),
    "HG404": Entry(
        "info",
        "array read before it is written",
        "An array without initial values is read before the graph writes it; its values must come from outside.",
    ),
    "HG405": Entry("error", "copy onto itself", "Source and destination of a copy overlap, which HIP does not define."),
    "HG406": Entry(
        "error",
        "memory of another device",
        "A node runs on one device and reaches memory of another that does not grant access, which faults or reads garbage.",
    ),
    "HG407": Entry(
        "error",
        "no device follows",
        "A node's arrays belong to several devices, none of which may reach all of them, and the node names none.",
    ),
    "HG408": Entry(
        "warning",
        "variable of another device",
        "Each device has its own copy of a module's variable; a node reads one that nothing writes on its device.",
    ),
    "HG409": Entry(
        "error",
        "access beyond an array",
        "A thread of a kernel reads or writes beyond the begin or the end of an array, where other memory may lie.",
    ),
    "HG410": Entry(
        "error",
        "memory that a node cannot use",
        "An array parameter stands by default for memory that one of its nodes could not be given directly, or that does not "
        "fit it.",
    ),
    # HG5xx: launch limits
    "HG501": Entry("error", "block too large", "A block has more threads, or more along one axis, than the device takes."),
    "HG502": Entry(
        "error",
        "block that the kernel is not built for",
        "A block has more threads than __launch_bounds__ promises, or not those that a code object requires.",
    ),
    "HG503": Entry("error", "grid too large", "A grid has more blocks along one axis than the device takes."),
    "HG504": Entry(
        "error", "grid times block too large", "HIP on AMD takes at most 2^32 - 1 threads along one axis of the whole launch."
    ),
    "HG505": Entry("error", "too much shared memory", "Static and dynamic shared memory of a block exceed what the device has."),
    "HG506": Entry(
        "error", "cooperative grid cannot be resident", "A cooperative kernel has more blocks than the device can hold at once."
    ),
    "HG507": Entry(
        "error",
        "node kind not on this target",
        "The target has no node of this kind, so a backend that builds a graph refuses it.",
    ),
    "HG508": Entry(
        "error",
        "not inside a conditional node",
        "A body of a conditional node for the device to decide holds what a graph cannot run there.",
    ),
    "HG509": Entry(
        "warning",
        "no clusters on this target",
        "The target has no thread block clusters, so the kernel is launched without them.",
    ),
    "HG510": Entry(
        "error",
        "no dynamic shared memory",
        "A kernel uses an array of dynamic shared memory and is launched with 0 bytes of it, so it reaches memory that is not "
        "its own.",
    ),
    # HG6xx: capture and copies
    "HG601": Entry(
        "warning",
        "pageable memory in a copy",
        "A copy to or from pageable host memory is not asynchronous, and capture may refuse it.",
    ),
    "HG602": Entry(
        "info",
        "captured node with unknown accesses",
        "A captured function names no array, so it is ordered only by declared edges and its memory is not checked.",
    ),
    "HG604": Entry(
        "info",
        "foreign kernel with unknown accesses",
        "A kernel of a graph that was read back is known by its handle alone, so only declared edges order it and its memory is "
        "not checked.",
    ),
    "HG605": Entry(
        "info",
        "kernel with unknown variables",
        "Which variables of its module a kernel uses cannot be read, so it counts as using all of them, and kernels of the "
        "module wait for each other.",
    ),
    "HG606": Entry(
        "warning",
        "memory behind hidden addresses",
        "A kernel reaches memory by addresses inside of its data, so no edge follows from it, and another node that may touch "
        "the same memory can run beside it.",
    ),
    # HG7xx: performance advice
    "HG701": Entry("info", "redundant edge", "A declared edge is implied by other edges."),
    "HG702": Entry(
        "info",
        "false serialisation",
        "Nodes wait for each other only because they reuse one buffer; a second one would free them.",
    ),
    "HG703": Entry("info", "graph too small", "Launching the graph costs as much as launching its nodes one by one."),
    "HG704": Entry(
        "info",
        "more branches than queues",
        "More nodes may run at once than the device has hardware queues, and each branch costs.",
    ),
    # HG8xx: known defects of platforms
    "HG801": Entry("info", "disabled nodes drop edges", "On this version a disabled node takes its edges with it."),
    "HG802": Entry(
        "warning", "fan-out beyond the queues", "On this version the fifth and later consumers of a node may start too early."
    ),
    "HG803": Entry(
        "warning",
        "alloc and free in captured graphs",
        "On this version captured allocations and free nodes do not go together, or outlive the executable.",
    ),
    "HG804": Entry(
        "warning",
        "order after child graphs",
        "On this version work after a child graph may start before all of its branches end.",
    ),
    "HG805": Entry(
        "warning",
        "forbidden calls accepted while capturing",
        "On this version calls that a capture forbids are accepted silently, and the graph is then wrong.",
    ),
    "HG806": Entry(
        "info", "updates take memory", "On this version each update of a kernel node takes memory until the executable is closed."
    ),
    "HG807": Entry(
        "warning",
        "interior pointer of page-locked memory",
        "On this version a copy to or from the inside of a page-locked array may copy wrongly.",
    ),
    "HG808": Entry("warning", "other known defect", "The graph meets another known defect of this target's version."),
}
"""Every code with its entry."""
