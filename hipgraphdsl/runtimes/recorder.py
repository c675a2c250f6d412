"""The documented name of the runtime that records its calls, which is the part `recorder`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..parts import load

if TYPE_CHECKING:
    from ..parts.recorder.recorder import Call, RecorderRuntime

__all__ = ["Call", "RecorderRuntime"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(load("recorder"), name)
