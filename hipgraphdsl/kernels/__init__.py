"""Kernel and Module: HIP C++ source or a code object, and the signatures that it declares.

A `Module` parses its source (`source/`) and never compiles anything. An unsupported declaration is refused by name when its
kernel is looked up, so that a source file may contain kernels meant for other programs.
"""

from .batching import BATCH_HEAD_BYTES, Batching, batching
from .bodies import body_of
from .module import ForeignModule, Kernel, Module, Symbol
from .packing import ArgumentPacker, check_argument, struct_error, struct_fields
from .signature import KernelParameter, Signature
from .switching import Chaining, Mixing, Switching, chaining, mixing, unchained, unswitched
from .waiting import waiting_source, waits

__all__ = [
    "BATCH_HEAD_BYTES",
    "ArgumentPacker",
    "Batching",
    "Chaining",
    "ForeignModule",
    "Kernel",
    "KernelParameter",
    "Mixing",
    "Module",
    "Signature",
    "Switching",
    "Symbol",
    "batching",
    "body_of",
    "chaining",
    "check_argument",
    "mixing",
    "struct_error",
    "struct_fields",
    "unchained",
    "unswitched",
    "waiting_source",
    "waits",
]
