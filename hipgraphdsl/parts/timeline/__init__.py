"""When nodes ran, or would run."""

from .profiling import profile
from .simulated import simulated

__all__ = ["profile", "simulated"]
