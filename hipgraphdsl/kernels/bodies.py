"""The declaration and the body of a kernel, and a cache of rules that are evaluated once per kernel."""

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
        With macros expanded.
    scope : Scope
        Resolves names in the body.
    parameters : list of list of Token
        The kernel's parameters as written.
    """

    tokens: list[Token]
    scope: Scope
    parameters: list[list[Token]]


def asked_once(rule: Callable[[Kernel], _T]) -> Callable[[Kernel], _T]:
    """Cache a rule per kernel of a module, because each parse of a body spends the macro budget."""

    @wraps(rule)
    def known(kernel: Kernel) -> _T:
        answers, key = kernel.module._known, (rule, kernel.name)
        if key not in answers:
            answers[key] = rule(kernel)
        return cast("_T", answers[key])

    return known


@asked_once
def declaration_of(kernel: Kernel) -> KernelDeclaration:
    """Return the declaration of a kernel in its source."""
    return find_kernel(kernel.module.declared, kernel.name).declared


@asked_once
def body_of(kernel: Kernel) -> Body | None:
    """Return the body of a kernel; None if the compiler may see another one, or if the body is too long."""
    module, source = kernel.module, kernel.module.declared
    declared, scope, _ = find_kernel(source, kernel.name)
    redefined = any(t.kind == "block" and t.start in source.unit.redefining for t in declared.body)
    if declared.doubt or redefined or source.unread or module.mentions(PLATFORM_MACROS):
        return None
    if sum(len(token.text) for token in declared.body) > LONGEST_BODY:
        return None
    return Body(source.unit.tokens_of(declared.body), scope, split_commas(declared.parameters))
