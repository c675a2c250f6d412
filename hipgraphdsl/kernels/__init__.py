"""Kernel and Module: HIP C++ source or a code object, and the signatures that it declares.

A `Module` parses its source (`source/`) and never compiles anything. An unsupported declaration is refused by name when its
kernel is looked up, so that a source file may contain kernels meant for other programs.
"""

from .bodies import body_of
from .module import Kernel, Module, Symbol
from .packing import ArgumentPacker, check_argument, struct_error, struct_fields
from .signature import KernelParameter, Signature

__all__ = [
    "ArgumentPacker",
    "Kernel",
    "KernelParameter",
    "Module",
    "Signature",
    "Symbol",
    "body_of",
    "check_argument",
    "struct_error",
    "struct_fields",
]
