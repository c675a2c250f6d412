"""The runtime that records its calls and runs none."""

from .recorder import Call, RecorderRuntime

__all__ = ["Call", "RecorderRuntime"]
