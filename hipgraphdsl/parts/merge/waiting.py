"""Waiting: kernels that first wait for their predecessors, as programmatic dependent launch requires.

After a programmatic edge, a kernel is launched while its predecessor is still finishing. Code that needs the predecessor to be
complete and its writes visible must follow PTX's ``griddepcontrol.wait``, which costs nothing if no such edge leads to the kernel
(PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch"). Here the wait is the first statement of
each kernel whose body is known.
"""

from __future__ import annotations

from typing import Final

from ...kernels.bodies import asked_once, body_of, declaration_of
from ...kernels.module import Kernel, Module

_WAIT: Final = ' asm volatile("griddepcontrol.wait;" ::: "memory");'
_WORDS: Final = frozenset({"asm", "volatile"})
"""The names in the inserted text; a macro of the same name would break it."""


@asked_once
def waits(kernel: Kernel) -> bool:
    """Return whether a kernel in `waiting_source` of its module begins with the wait."""
    module = kernel.module
    if not module.source or kernel.signature is None or not _can_wait(module):
        return False
    return declaration_of(kernel).braces is not None and body_of(kernel) is not None


def _can_wait(module: Module) -> bool:
    return _WORDS.isdisjoint(module.declared.unit.macros.history)


def waiting_source(module: Module) -> str:
    """Return a module's source with the wait as first statement of each kernel whose body is known; line numbers are kept."""
    source = module.source
    if not _can_wait(module):
        return source
    braces = {known.braces for kernels in module.declared.kernels.values() for known in kernels}
    for start, _ in sorted(filter(None, braces), reverse=True):
        source = source[: start + 1] + _WAIT + source[start + 1 :]
    return source
