"""Graphs that are built and launched by compiled code: one optional extension module, built on first use (`native`)."""

from .call_path import CompiledPath, LongWay
from .compiled_calls import CompiledCalls
from .native import native

__all__ = ["CompiledCalls", "CompiledPath", "LongWay", "native"]
