"""Batches among the nodes of a plan: which nodes share a launch, and the lanes that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels import Kernel, Module
from ...order import between, follower_counts
from ...plan.lanes import Cover, covered, gathers
from ...plan.merged import Grouping
from ...plan.suited import FAN_OUT
from ...target import Target
from .batches import Batcher


def in_batches(
    found: Any, declared: Cover, limit: int | None, automatic: bool, target: Target, device: int, notes: list[str]
) -> tuple[Cover, Grouping | None]:
    """Return a cover with each batch in one lane, and the grouping; None if nothing is batched or lanes must be gathered.

    `found` are the nodes that become steps, `limit` the most lanes; `automatic` batches only where that pays.
    """
    batcher = Batcher(found.nodes, found.order, declared, found.places, target, automatic)
    among = batcher.candidates()
    if automatic and not target.costs.batched_us:
        if among:
            notes.append(f"Nothing is batched: that is not known to save time on {target.name} (batch=True does it).")
        return declared, None
    while True:
        if not among:
            return declared, None
        grouping = batcher.grouped(among)
        outer = between(declared.reduced, grouping.group_of, len(grouping.batch_of))
        count = len(outer)
        one_of = {grouping.group_of[i]: i for i in reversed(grouping.order)}
        devices = None if found.placed is None else [found.placed[one_of[group]] for group in range(count)]
        cover = covered(range(count), outer, None, devices, device)
        before = len(declared.devices) if limit is None else min(limit, len(declared.devices))
        losing = batcher.unpaid(grouping, before - len(cover.devices)) if automatic else {}
        left: dict[Kernel | Module, str] = dict((*grouping.refused.items(), *losing.items()))
        notes += [_not_batched(what, why) for what, why in left.items()]
        if not losing:
            break
        among = [what for what in among if what not in left]
    if not grouping.batches:
        return declared, None
    if limit is not None and gathers(len(cover.devices), limit, range(count), outer):
        return declared, None
    if "fan_out_4" in target.quirks and _fan_out(outer) > FAN_OUT:
        notes.append(f"Nothing is batched: {target.name} loses edges beyond {FAN_OUT} followers, and a launch would have more.")
        return declared, None
    lane_of = [cover.lane_of[group] for group in grouping.group_of]
    return Cover(declared.reduced, lane_of, {}, cover.devices, declared.depths), grouping


def _not_batched(what: Kernel | Module, why: str) -> str:
    said = f"of kernel {what.name!r}" if isinstance(what, Kernel) else f"of different kernels of module {what.name!r}"
    return f"Launches {said} are not batched: {why}."


def _fan_out(deps: Sequence[tuple[int, ...]]) -> int:
    """Return the maximum number of direct followers of a node, counting a virtual root before all nodes without predecessors."""
    return max(sum(not sources for sources in deps), *follower_counts(deps).values(), 0)
