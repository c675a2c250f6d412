"""Look up kernels and variables by name: find the declaration, and bind the template arguments in the name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeclarationError
from ..source import (
    UNNAMED,
    Constant,
    CType,
    Declarations,
    KernelDeclaration,
    Scope,
    SymbolDeclaration,
    Token,
    closing_angle,
    closing_index,
    spell,
    split_commas,
    tokenize,
)


class Instance(NamedTuple):
    """The kernel that a name resolves to.

    Attributes
    ----------
    declared : KernelDeclaration
    scope : Scope
        Resolves names in the kernel: those of the source, and its template parameters.
    name : str
        Its full name, template arguments included.
    """

    declared: KernelDeclaration
    scope: Scope
    name: str


def find_kernel(source: Declarations, name: str) -> Instance:
    """Return the kernel of a name such as ``"scale"`` or ``"scale<float>"``; refuse faulty kernels and mismatched arguments."""
    tokens = tokenize(name, f"kernel name {name!r}")
    angle = next((n for n, t in enumerate(tokens) if t.text == "<"), len(tokens))
    written = spell(tokens)
    found = _named(source, written) if angle < len(tokens) else []
    arguments: list[list[Token]] = []
    if not found:
        found = _named(source, spell(tokens[:angle]))
        if angle < len(tokens):
            close = closing_angle(tokens, angle)
            if close != len(tokens) - 1:
                raise DeclarationError(f"kernel name {name!r} of {source.where}: '<' is not closed", array=name)
            arguments = split_commas(tokens[angle + 1 : close])
    if not found:
        names = ", ".join(repr(known) for known in source.kernels) or "none"
        raise DeclarationError(f"{source.where} has no kernel {name!r}; its kernels are {names}", array=name)
    if len(found) > 1:
        raise DeclarationError(f"{source.where} has {len(found)} kernels {name!r}; give overloads different names", array=name)
    declared = found[0]
    if declared.fault:
        raise DeclarationError(f"kernel {name!r} of {source.where}, line {declared.line}: {declared.fault}", array=name)
    if declared.templates is not None:
        scope = _bound(source, declared, arguments, name)
        return Instance(declared, scope, f"{declared.name}<{', '.join(spell(part) for part in arguments)}>")
    if arguments or (angle < len(tokens) and declared.name != written):
        raise DeclarationError(
            f"kernel {declared.name!r} of {source.where} is no template; ask for module[{declared.name!r}]", array=name
        )
    return Instance(declared, _scope_of(source, declared.name), declared.name)


def _scope_of(source: Declarations, name: str) -> Scope:
    """Return the scope in which a kernel or a variable is declared."""
    return source.scope.at(re.sub(r"[^:<]*(<.*)?$", "", name))


def _named(source: Declarations, name: str) -> list[KernelDeclaration]:
    name = name.removeprefix("::")
    if name in source.kernels:
        return source.kernels[name]
    return [d for key, found in source.kernels.items() if key.endswith(f"::{name}") for d in found]


def _bound(source: Declarations, declared: KernelDeclaration, arguments: Sequence[list[Token]], name: str) -> Scope:
    """Return the scope of a template with its parameters bound to arguments; refuse too many or too few."""
    templates = declared.templates or ()
    wanted = ", ".join(t.spelling for t in templates)
    if "..." in wanted:
        raise DeclarationError(
            f"kernel {declared.name!r} of {source.where} takes a template parameter pack ({wanted}), which "
            "is not supported; write the parameters out",
            array=name,
        )
    if not sum(not t.default for t in templates) <= len(arguments) <= len(templates):
        raise DeclarationError(
            f"kernel {declared.name!r} of {source.where} is a template of ({wanted}); "
            f"ask for module['{declared.name}<...>'] (got {len(arguments)} arguments)",
            array=name,
        )
    scope = _scope_of(source, declared.name).inner()
    for n, parameter in enumerate(templates):
        # An argument may have the name of a parameter; a default may name the parameters before it.
        value, where = (arguments[n], source.scope) if n < len(arguments) else (list(parameter.default), scope)
        if not parameter.name:
            continue
        try:
            scope.bind_parameter(parameter, value, where)
        except ValueError as error:
            if parameter.type or not value:
                raise DeclarationError(
                    f"kernel {name!r} of {source.where}: template argument {parameter.spelling!r}: {error}", array=name
                ) from None
            scope.bind(parameter.name, Constant(()))  # without a value
    return scope


def variable_layout(source: Declarations, declared: SymbolDeclaration) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return shape and dtype of a variable and the lanes of its vector type; refuse a type or bound that is not understood.

    The lanes of a vector type are the last axis of the shape.
    """
    name, scope = declared.name, _scope_of(source, declared.name)
    try:
        if f"variable {name}" in scope.doubts:
            raise ValueError(scope.doubts[f"variable {name}"])
        declarators = scope.declarators(source.unit.tokens_of(declared.tokens))
        found = next(d for d in declarators if d.name == name.rpartition("::")[2])
        kind = found.type
        if kind.pointers:
            kind = CType(kind.spelling, np.dtype("u8"), 1, 8, 8)
        if kind.spelling == UNNAMED:
            raise ValueError(f"it is of {UNNAMED}, whose layout cannot be given; give the struct a name in the source")
        if kind.dtype is None:
            raise ValueError(
                f"the layout of {kind.opaque} {kind.spelling!r} is not known; give it with "
                f"Module(structs={{{kind.spelling!r}: numpy dtype}})"
            )
        shape = []
        for n, bound in enumerate(found.bounds):
            if bound:
                shape.append(scope.evaluate(bound))
            elif n == 0 and found.initializer:
                shape.append(_initializer_length(found.initializer))
            else:
                raise ValueError("an array bound is missing")
    except (ValueError, StopIteration) as error:
        raise DeclarationError(
            f"variable {name!r} of {source.where}, line {declared.line}: {error or 'it is not understood'}", array=name
        ) from None
    if kind.lanes > 1:
        shape.append(kind.lanes)
    return tuple(shape), kind.dtype, kind.lanes


def _initializer_length(tokens: Sequence[Token]) -> int:
    if tokens[0].text == "{":
        return len([part for part in split_commas(tokens[1 : closing_index(tokens, 0)]) if part])
    if tokens[0].kind == "string":
        return len(re.sub(r"\\.", "x", tokens[0].text[1:-1])) + 1
    raise ValueError("an array bound is missing")
