"""What a source declares of a kernel, and its body; rules that are asked once of each kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, TypeVar, cast

from ..source import PLATFORM_MACROS, KernelDeclaration, Scope, Token, split_commas
from .instances import find_kernel
from .module import LONGEST_BODY, Kernel

_T = TypeVar("_T")


class Body(NamedTuple):
    """The body of a kernel.

    Attributes
    ----------
    tokens : list of Token
        Macros expanded.
    scope : Scope
        What names mean in it.
    parameters : list of list of Token
        The kernel's parameters as written.
    """

    tokens: list[Token]
    scope: Scope
    parameters: list[list[Token]]


def asked_once(rule: Callable[[Kernel], _T]) -> Callable[[Kernel], _T]:
    """Ask a rule once of each kernel of a module, because each reading of a body spends the macros' budget."""

    @wraps(rule)
    def known(kernel: Kernel) -> _T:
        answers, key = kernel.module._known, (rule, kernel.name)
        if key not in answers:
            answers[key] = rule(kernel)
        return cast("_T", answers[key])

    return known


@asked_once
def declaration_of(kernel: Kernel) -> KernelDeclaration:
    """Return what the source of a kernel declares."""
    return find_kernel(kernel.module.declared, kernel.name).declared


@asked_once
def body_of(kernel: Kernel) -> Body | None:
    """Return the body of a kernel; None where a compiler may see another one."""
    module, source = kernel.module, kernel.module.declared
    declared, scope, _ = find_kernel(source, kernel.name)
    redefined = any(t.kind == "block" and t.start in source.unit.redefining for t in declared.body)
    if declared.doubt or redefined or source.unread or module.mentions(PLATFORM_MACROS):
        return None
    if sum(len(token.text) for token in declared.body) > LONGEST_BODY:
        return None
    return Body(source.unit.tokens_of(declared.body), scope, split_commas(declared.parameters))
