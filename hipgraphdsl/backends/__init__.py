"""How a plan is turned into HIP calls; a backend never names a platform."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import DeclarationError
from . import capture, explicit, serial, streams
from .operations import Scope, SharedHandles
from .program import Program

__all__ = ["BACKENDS", "Program", "Scope", "SharedHandles", "backend_named"]

BACKENDS: dict[str, Callable[..., Program]] = {
    "explicit": explicit.build,
    "capture": capture.build,
    "streams": streams.build,
    "serial": serial.build,
}
"""Builders by name: ``build(plan, scope, runtime) -> Program``."""


def backend_named(name: str) -> Callable[..., Program]:
    """Return a backend's builder.

    Raises
    ------
    DeclarationError
        If there is no backend of that name.
    """
    if name not in BACKENDS:
        raise DeclarationError(f"there is no backend {name!r}; backends are {', '.join(map(repr, BACKENDS))}")
    return BACKENDS[name]
