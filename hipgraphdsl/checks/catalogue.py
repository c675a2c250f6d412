"""The catalogue of diagnostics: every code that `check` may report.

Codes are stable: a code never changes its meaning and is never used again. Each has a page in ``docs/diagnostics``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CATALOGUE", "Entry", "Severity"]

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One code.

    Attributes
    ----------
    title : str
        A few words.
    severity : {"error", "warning", "info"}
        What a diagnostic of this code has at most; a few are reported with less where the target makes them harmless.
    summary : str
        One sentence: what is wrong and what comes of it.
    """

    title: str
    severity: Severity
    summary: str


CATALOGUE: dict[str, Entry] = {
    # HG1xx: structure
    "HG101": Entry("cycle", "error", "Nodes wait for each other in a ring, so none of them can ever start."),
    "HG102": Entry("unknown code in ignore", "warning", "A node ignores a code that does not exist, so nothing is"
                                                        " silenced."),
    "HG103": Entry("ignore without a reason", "warning", "A node silences a code and does not say why."),
    "HG104": Entry("empty graph", "info", "The graph, or a child graph, has no nodes: launching it does nothing."),
    "HG105": Entry("unused array", "info", "An array takes memory, no node touches it, and it is no parameter's default."),
    "HG106": Entry("unused parameter", "info", "A parameter is declared and no node uses it, so its value changes"
                                               " nothing."),
    "HG107": Entry(
        "callback, memory or handle not supplied",
        "info",
        "A callback, an external array or the handle of a semaphore is still missing; compile refuses the graph"
        " until then.",
    ),
    # HG2xx: races and ordering
    "HG201": Entry(
        "race between a write and a read", "error",
        "One node writes bytes that another reads and no path orders them, so the reader may see either value.",
    ),
    "HG202": Entry(
        "race between two writes", "error", "Two nodes write the same bytes and no path orders them, so either"
                                            " value may stay."
    ),
    "HG203": Entry(
        "race through aliased memory", "error",
        "Two nodes touch the same bytes under different names, at least one writes, and no path orders them.",
    ),
    "HG204": Entry(
        "wait without a record", "warning", "A node waits for an event that nothing in the graph records, so it"
                                            " waits for nothing."
    ),
    "HG205": Entry(
        "wait before the record", "warning",
        "A node waits for an event that is recorded only after it, so it sees the record of the launch before.",
    ),
    "HG206": Entry(
        "record at no particular time", "warning",
        "Nothing comes before or after a node that records an event, so what the event marks is left to chance.",
    ),
    # HG3xx: lifetimes
    "HG301": Entry(
        "use before alloc", "error", "A node uses graph memory and no path leads from its alloc node to it: there"
                                     " may be no memory."
    ),
    "HG302": Entry("use after free", "error", "A node uses graph memory that a free node before it has returned."),
    "HG303": Entry(
        "free not ordered after a use", "error", "A free node may run before or while another node uses the memory."
    ),
    "HG304": Entry("double free", "error", "Two free nodes return the same memory."),
    "HG305": Entry("free without its alloc", "error", "A free node returns memory that no alloc node of this graph"
                                                      " makes before it."),
    "HG306": Entry(
        "alloc never freed", "info",
        "The memory stays allocated after each launch, until the next launch frees it or the executable is closed.",
    ),
    "HG307": Entry("double alloc", "error", "Two alloc nodes make the same array."),
    # HG4xx: data
    "HG401": Entry(
        "alloc read before it is written", "warning", "A node reads graph memory that nothing has written, so it"
                                                      " reads garbage."
    ),
    "HG402": Entry("alloc written and never read", "warning", "Graph memory is written and nothing reads it: the"
                                                              " work is lost."),
    "HG403": Entry("alloc never used", "warning", "Memory is allocated in the graph and no node touches it."),
    "HG404": Entry(
        "array read before it is written", "info",
        "An array without initial values is read before the graph writes it; its values must come from outside.",
    ),
    "HG405": Entry("copy onto itself", "error", "Source and destination of a copy overlap, which HIP does not define."),
    "HG406": Entry(
        "memory of another device", "error",
        "A node runs on one device and reaches memory of another that does not grant access, which faults or reads garbage.",
    ),
    "HG407": Entry(
        "no device follows", "error",
        "A node's arrays belong to several devices, none of which may reach all of them, and the node names none.",
    ),
    "HG408": Entry(
        "variable of another device", "warning",
        "Each device has its own copy of a module's variable; a node reads one that nothing writes on its device.",
    ),
    "HG409": Entry(
        "access beyond an array", "error",
        "A thread of a kernel reads or writes beyond the begin or the end of an array, where other memory may lie.",
    ),
    # HG5xx: launch limits
    "HG501": Entry("block too large", "error", "A block has more threads, or more along one axis, than the device"
                                               " takes."),
    "HG502": Entry("block over the kernel's launch bounds", "error", "A block has more threads than"
                                                                     " __launch_bounds__ promises."),
    "HG503": Entry("grid too large", "error", "A grid has more blocks along one axis than the device takes."),
    "HG504": Entry(
        "grid times block too large", "error", "HIP on AMD takes at most 2^32 - 1 threads along one axis of the"
                                               " whole launch."
    ),
    "HG505": Entry("too much shared memory", "error", "Static and dynamic shared memory of a block exceed what the"
                                                      " device has."),
    "HG506": Entry(
        "cooperative grid cannot be resident", "error", "A cooperative kernel has more blocks than the device can"
                                                        " hold at once."
    ),
    "HG507": Entry(
        "node kind not on this target", "error",
        "The target has no node of this kind, so a backend that builds a graph refuses it.",
    ),
    "HG508": Entry(
        "not inside a conditional node", "error",
        "A body of a conditional node holds what a graph cannot run there, so a backend that builds a graph refuses it.",
    ),
    "HG509": Entry(
        "no clusters on this target", "warning",
        "The target has no thread block clusters, so the kernel is launched without them.",
    ),
    "HG510": Entry(
        "no dynamic shared memory", "error",
        "A kernel uses an array of dynamic shared memory and is launched with 0 bytes of it, so it reaches memory that is not its"
        " own.",
    ),
    # HG6xx: capture and copies
    "HG601": Entry(
        "pageable memory in a copy", "warning",
        "A copy to or from pageable host memory is not asynchronous, and capture may refuse it.",
    ),
    "HG602": Entry(
        "captured node with unknown accesses", "info",
        "A captured function names no array, so it is ordered only by declared edges and its memory is not checked.",
    ),
    "HG604": Entry(
        "foreign kernel with unknown accesses", "info",
        "A kernel of a graph that was read back is known by its handle alone, so only declared edges order it and its memory"
        " is not checked.",
    ),
    "HG605": Entry(
        "kernel with unknown variables", "info",
        "Which variables of its module a kernel uses cannot be read, so it counts as using all of them, and kernels of the module"
        " wait for each other.",
    ),
    # HG7xx: performance advice
    "HG701": Entry("redundant edge", "info", "A declared edge is implied by other edges."),
    "HG702": Entry(
        "false serialisation", "info", "Nodes wait for each other only because they reuse one buffer; a second one"
                                       " would free them."
    ),
    "HG703": Entry("graph too small", "info", "Launching the graph costs as much as launching its nodes one by one."),
    "HG704": Entry(
        "more branches than queues", "info", "More nodes may run at once than the device has hardware queues, and"
                                             " each branch costs."
    ),
    # HG8xx: known defects of platforms
    "HG801": Entry("disabled nodes drop edges", "info", "On this version a disabled node takes its edges with it."),
    "HG802": Entry(
        "fan-out beyond the queues", "warning", "On this version the fifth and later consumers of a node may start"
                                                " too early."
    ),
    "HG803": Entry(
        "alloc and free in captured graphs", "warning",
        "On this version captured allocations and free nodes do not go together, or outlive the executable.",
    ),
    "HG804": Entry(
        "order after child graphs", "warning", "On this version work after a child graph may start before all of"
                                               " its branches end."
    ),
    "HG805": Entry(
        "forbidden calls accepted while capturing", "warning",
        "On this version calls that a capture forbids are accepted silently, and the graph is then wrong.",
    ),
    "HG806": Entry("updates take memory", "info", "On this version each update of a kernel node takes memory until"
                                                  " the executable is closed."),
    "HG807": Entry(
        "interior pointer of page-locked memory", "warning",
        "On this version a copy to or from the inside of a page-locked array may copy wrongly.",
    ),
    "HG808": Entry("other known defect", "warning", "The graph meets another known defect of this target's version."),
}  # fmt: skip
