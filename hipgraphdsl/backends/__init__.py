"""How a plan is turned into HIP calls; a backend never names a platform."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..errors import unknown_name
from ..plan.steps import Plan
from .capture import CaptureProgram
from .environment import Environment
from .explicit import ExplicitProgram
from .handles import SharedHandles
from .program import Program
from .segmented import in_segments
from .serial import SerialProgram
from .streams import StreamsProgram

__all__ = ["BACKENDS", "Environment", "Program", "SharedHandles", "backend_named", "into_captures"]

BACKENDS: dict[str, Callable[..., Program]] = {
    "explicit": partial(in_segments, ExplicitProgram.build),
    "capture": partial(in_segments, CaptureProgram.build),
    "streams": StreamsProgram,
    "serial": SerialProgram,
}
"""Builders by name: ``build(plan, scope, disabled) -> Program``."""


def into_captures(backend: str, plan: Plan) -> bool:
    """Return whether a launch on a stream that captures is recorded there, as the same work.

    Launches of graphs are not: AMD runs them at once, and CUDA ends the capture. Neither are waits of the host, and memory that
    the launch allocates would belong to the captured graph.
    """
    return backend == "streams" and plan.cut is None and not plan.has_allocs


_CALLED = {  # names in other libraries
    **dict.fromkeys(("graph", "graphs", "default", "auto"), "explicit"),
    **dict.fromkeys(("captured", "record"), "capture"),
    "stream": "streams",
    **dict.fromkeys(("sequential", "reference", "debug"), "serial"),
}


def backend_named(name: str) -> Callable[..., Program]:
    """Return a backend's builder.

    Raises
    ------
    DeclarationError
        If there is no backend of that name.
    """
    if not isinstance(name, str) or name not in BACKENDS:
        raise unknown_name("backend", name, BACKENDS, _CALLED)
    return BACKENDS[name]
