"""Any-order launches: which kernels may begin before the preceding kernels of their lane have ended.

On AMD a launch is a packet in a queue of the device, and its barrier bit makes it wait for all earlier packets. A launch with
``hipExtAnyOrderLaunch`` has no barrier bit: it may begin as soon as the earlier packets have begun. Independent kernels that
share a lane then overlap as if each had a lane of its own, without the host's cost of another branch.

Only launches inside a chain may lose the bit. A chain is a sequence of plain launches in one lane: each waits for its predecessor
and nothing else, and nothing else waits for that predecessor. Call the chain's last launch so far that keeps its bit the barrier.
A launch loses its bit if no declared or inferred edge leads to it from the barrier or from any launch since. All other nodes that
the launch must wait for precede the barrier, which has waited for them: no path to the launch leaves the chain.

The first and the last launch of a chain keep the bit. Work that follows the last launch, in another lane, on a copy engine, on
the host or in the next launch of the graph, thus waits for the whole chain, even if the runtime waits only for the last packet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..arrays import require_flags
from ..errors import DeclarationError
from ..nodes import KernelNode
from ..order import chains
from ..printed import counted
from ..target import Target
from .steps import Plan, Step


def require_any_order(any_order: Any, target: Target, backend: str, batch: object) -> None:
    """Raise a DeclarationError if `any_order` is set and the target, backend or `batch` does not support any-order launches."""
    require_flags(any_order=any_order)
    if not any_order:
        return
    if not target.any_order_launch:
        raise DeclarationError(
            f"any_order=True takes the barrier bit from launches in queues of AMD GPUs, and {target.name} has none; leave it out,"
            " or compile with runtime='amd'"
        )
    if backend not in ("capture", "streams"):
        why = "waits after each node" if backend == "serial" else "adds nodes to a graph, which have no such flag"
        raise DeclarationError(
            f"any_order=True is a flag of launches on streams, and backend {backend!r} {why}; compile with backend='capture' or"
            " backend='streams'"
        )
    if batch is True:
        raise DeclarationError(
            "any_order=True and batch=True exclude each other: a batch is one launch with one barrier bit; give one"
        )


def no_effect(target: Target, backend: str) -> str:
    """Return why a device or its runtime ignores any-order launches of a backend; an empty string if it does not."""
    if "any_order_in_turn" in target.quirks:
        return f"{target.name} runs the kernels of a queue one after another, with the barrier bit or without"
    if backend == "capture" and "any_order_not_captured" in target.quirks:
        return f"{target.name} drops the flag where it captures a launch (backend='streams' keeps it)"
    return ""


def in_any_order(steps: list[Step], declared: Sequence[Collection[int]], notes: list[str]) -> list[Step]:
    """Return the steps of a plan with `any_order` set where a kernel may begin in any order, and append their number to `notes`.

    `declared` lists for each step all its predecessors, including implied ones, but not edges that only gather nodes into lanes.
    """
    if any(step.by_host for step in steps):
        notes.append("No kernel begins in any order: the host has something to do in the midst of the graph.")
        return steps
    plain = [isinstance(step.node, KernelNode) and step.node.plain for step in steps]
    deps = [step.deps for step in steps]
    linked = chains(range(len(steps)), deps, lambda d, i: plain[d] and plain[i] and steps[d].lane == steps[i].lane)
    inside = {i for chain in linked for i in chain[1:-1]}
    since: dict[int, set[int]] = {}  # for each lane the last launch that keeps its barrier bit and all launches after it
    made = list(steps)
    for step in steps:
        i, lane = step.index, step.lane
        if i in inside and since[lane].isdisjoint(declared[i]):
            made[i] = step._replace(any_order=True)
            since[lane].add(i)
        else:
            since[lane] = {i}
    count = sum(step.any_order for step in made)
    if count:
        said, them = ("1 kernel begins", "it") if count == 1 else (f"{counted(count, 'kernel')} begin", "them")
        notes.append(f"{said} without waiting for those before {them} in the same lane, because no edge requires it (any order).")
    else:
        notes.append("No kernel begins in any order: in each lane all wait for each other (lanes=1 gathers independent ones).")
    return made


def in_order(plan: Plan, disabled: Iterable[int]) -> dict[int, Step]:
    """Return replacements that restore every barrier bit if a disabled step belongs to a chain that relies on it; else none."""
    steps = plan.steps
    marked = [step for step in steps if step.any_order]
    if not marked:
        return {}
    chained = {k for step in marked for k in (step.index, *step.deps, *plan.successors[step.index])}
    return {step.index: step._replace(any_order=False) for step in marked} if not chained.isdisjoint(disabled) else {}
