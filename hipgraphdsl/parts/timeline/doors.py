"""The door of `Graph.simulate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...nodes import Node
from ...nodes.workflow import Workflow
from ...runtimes import target_of
from ...target import Target
from .. import load
from .simulation import simulate
from .timeline import Timeline


def simulated(
    workflow: Workflow,
    durations: Mapping[str, float] | Callable[[Node], float],
    engines: Mapping[str, int] | None,
    *,
    target: str | Target | None,
    batch: Any,
    ranks: int | Sequence[int] | Any,
    link: Any,
    conditions: Mapping[str, int | bool] | None,
) -> Timeline:
    """Predict when each node runs; see `Graph.simulate`."""
    aim = None if target is None else target_of(target)
    if ranks is None and link is None:
        return simulate(workflow, durations, engines, target=aim, batch=batch, conditions=conditions)
    sharing = load("ranks").shared_for_simulation(workflow, ranks, link)
    return simulate(workflow, durations, engines, sharing=sharing, link=link, target=aim, batch=batch, conditions=conditions)
