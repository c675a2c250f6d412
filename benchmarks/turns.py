"""Calls that are timed one after another, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hipgraphdsl.parts.bench.measure import repeat_us, without_gc


def in_turns(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of each call in each round; a slow spell of the machine then meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    with without_gc():
        for _ in range(rounds):
            for name, call in calls.items():
                times[name] += repeat_us(call, 1)
    return times
