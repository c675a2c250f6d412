"""How a plan is turned into HIP calls; a backend never names a platform."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..errors import unknown_name
from .capture import CaptureProgram
from .explicit import ExplicitProgram
from .handles import SharedHandles
from .program import Program
from .scope import Scope
from .segmented import in_segments
from .serial import SerialProgram
from .streams import StreamsProgram

__all__ = ["BACKENDS", "Program", "Scope", "SharedHandles", "backend_named"]

BACKENDS: dict[str, Callable[..., Program]] = {
    "explicit": partial(in_segments, ExplicitProgram.build),
    "capture": partial(in_segments, CaptureProgram.build),
    "streams": StreamsProgram,
    "serial": SerialProgram,
}
"""Builders by name: ``build(plan, scope, disabled) -> Program``."""

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
