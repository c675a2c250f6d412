"""The doors of `Graph.compile(ranks=)` and `Graph.simulate(ranks=)`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ...errors import DeclarationError
from ...executable import Executable
from ...nodes.workflow import Workflow
from ...plan.options import PlanOptions
from .links import Link
from .ranked import RankExecutable
from .sharing import Between, Sharing, as_layout
from .transports.nccl import does
from .world import require_options, require_ranks, told_before_agreeing


def builder(
    name: str, ranks: Any, options: Callable[[], PlanOptions], device: int
) -> tuple[Callable[..., Executable], int, AbstractContextManager[Any]]:
    """Return the function that builds the Executable, this rank's number, and a context that tells other ranks of errors."""
    found, what = require_ranks(ranks), f"compile of {name!r}"
    with told_before_agreeing(found, what):
        require_options(device, options().lanes)
    return partial(RankExecutable.compile, found), found.rank, told_before_agreeing(found, what)


def shared_for_simulation(workflow: Workflow, ranks: Any, link: Any) -> Sharing:
    """Return how ranks share a workflow whose launch is predicted; refuse a link that is none or joins nothing."""
    if link is not None and not isinstance(link, Link):
        raise DeclarationError(f"simulate: link is a hipgraphdsl.Link(latency_us=..., gb_s=...) (got {link!r})")
    if ranks is None:
        raise DeclarationError("simulate: link= joins ranks; say how many there are: ranks=...")
    layout = as_layout(ranks)
    between = Between(does) if layout.size > 1 and set(layout.counts) == {1} else None  # when `compile` uses NCCL or RCCL
    return Sharing(workflow, layout, between)


def shared_for_drawing(workflow: Workflow, ranks: Any) -> Sharing:
    """Return how ranks share a workflow that is drawn."""
    return Sharing(workflow, as_layout(ranks), Between(lambda does, dtype: True))
