"""How a plan is turned into HIP calls; a backend never names a platform."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ..errors import unknown_name
from ..plan.steps import Plan
from .environment import Environment
from .handles import SharedHandles
from .program import Program

__all__ = ["BACKENDS", "Environment", "Program", "SharedHandles", "backend_named", "into_captures"]

BACKENDS: Final = ("explicit", "capture", "streams", "serial")

Build = Callable[[Plan, Environment, frozenset[int]], Program]


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
    """Import a backend and return its builder, ``build(plan, scope, disabled) -> Program``.

    Raises
    ------
    DeclarationError
        If there is no backend of that name.
    """
    match name if isinstance(name, str) else None:  # an array cannot be compared
        case "explicit":
            from .explicit import ExplicitProgram

            return partial(_in_segments, ExplicitProgram.build)
        case "capture":
            from .capture import CaptureProgram

            return partial(_in_segments, CaptureProgram.build)
        case "streams":
            from .streams import StreamsProgram

            return StreamsProgram
        case "serial":
            from .serial import SerialProgram

            return SerialProgram
        case _:
            raise unknown_name("backend", name, BACKENDS, _CALLED)


def _in_segments(
    build: Build, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset(), device: int | None = None
) -> Program:
    """Return a single program if one graph can hold the plan, else a `SegmentedProgram`, which has a program per segment."""
    if plan.cut is None:
        return build(plan, scope, disabled)
    from .segmented import SegmentedProgram

    return SegmentedProgram(plan, scope, disabled, build, partial(_in_segments, build), device)
