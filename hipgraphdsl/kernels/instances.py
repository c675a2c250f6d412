"""Look up kernels and variables by name: find the declaration, and bind the template arguments in the name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeclarationError
from ..source import (
    UNNAMED,
    Constant,
    CType,
    Declarations,
    KernelDeclaration,
    KernelName,
    Scope,
    SymbolDeclaration,
    TemplateParameter,
    Token,
    closing_index,
    spell,
    spelled_parameters,
    split_commas,
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
    """Return the kernel of a name such as ``"scale"``, ``"scale<float>"``, ``"R<int>::scale"`` or ``"scale(float*)"``.

    Refuse faulty kernels, mismatched arguments, and names that several kernels have.
    """
    try:
        asked = KernelName.of(name, f"kernel name {name!r}")
    except ValueError as error:
        raise DeclarationError(f"kernel name {name!r} of {source.where}: {error}", array=name) from None
    specialized = _named(source, asked.written) if asked.arguments else []
    given = {} if specialized else asked.arguments
    found = specialized or _named(source, asked.stem)
    if not found:
        names = ", ".join(repr(known) for known in source.kernels) or "none"
        raise DeclarationError(f"{source.where} has no kernel {name!r}; its kernels are {names}", array=name)
    if len(found) == 1 and asked.parameters is None:
        return _instance(source, found[0], given, name)
    # Overloads, or kernels of several namespaces: those that may have these template arguments and parameters.
    kinds = [d for d in found if bool(given.get(0)) == (d.templates is not None) or (d.templates and not given)]
    fitting = [(d, *_parameters(source, d, given)) for d in (kinds or found)]
    if asked.parameters is not None:
        wanted = asked.parameters
        exact = [one for one in fitting if one[1] == spelled_parameters(source.scope_of(one[0].name), wanted)]
        fitting = exact or [one for one in fitting if one[2] == _types(source.scope_of(one[0].name), wanted)]
    else:
        fitting = [one for one in fitting if (one[0].templates is None) == (0 not in given)]
    if len(fitting) == 1:
        declared, parameters, _ = fitting[0]
        made = _instance(source, declared, given, name)
        overloaded = len(source.kernels[declared.name]) > 1
        return made._replace(name=f"{made.name}({', '.join(parameters)})") if overloaded else made
    known = [(d, _parameters(source, d, given)[0]) for d in found]
    each = [_spelled(d, given, parameters if len(source.kernels[d.name]) > 1 else None) for d, parameters in known]
    said = f"{len(found)} kernels {asked.stem!r}" if asked.parameters is None else f"no kernel {name!r}"
    raise DeclarationError(f"{source.where} has {said}; ask for one by its whole name: {', '.join(map(repr, each))}", array=name)


def _spelled(declared: KernelDeclaration, given: Mapping[int, list[list[Token]]], parameters: tuple[str, ...] | None) -> str:
    """Return the name by which to ask for a kernel; of its template parameters those that have no argument yet."""
    space, _, last = declared.name.rpartition("::")
    lists = []
    for n, templates in ((1, declared.of_class), (0, declared.templates or ())):
        written = [spell(part) for part in given.get(n, ())] or [t.name or t.spelling for t in templates]
        lists.append(f"<{', '.join(written)}>" if templates else "")
    name = f"{space}{lists[0]}::{last}" if space else last
    return f"{name}{lists[1]}" + ("" if parameters is None else f"({', '.join(parameters)})")


def _parameters(
    source: Declarations, declared: KernelDeclaration, given: Mapping[int, list[list[Token]]]
) -> tuple[tuple[str, ...], tuple[object, ...]]:
    """Return the types of a kernel's parameters with these template arguments, as they are spelled, and as they are."""
    scope = source.scope_of(declared.name)
    bound = scope.inner()
    values: dict[str, str] = {}
    for n, templates in ((1, declared.of_class), (0, declared.templates or ())):
        for parameter, value in zip(templates, given.get(n, ())):
            values[parameter.name] = spelled_parameters(source.scope, [value])[0] if parameter.type else spell(value)
            try:
                bound.bind_parameter(parameter, value, source.scope)
            except ValueError:
                continue
    parts = split_commas(declared.parameters)
    return spelled_parameters(scope, parts, values), _types(bound, parts)


def _types(scope: Scope, parts: Sequence[list[Token]]) -> tuple[object, ...]:
    """Return what identifies the types of parameters however they are spelled; a type that is not known equals no other."""
    found: list[object] = []
    for part in parts:
        try:
            kind = scope.declarators(part)[0].type
            base = kind.dtype if kind.dtype is not None else kind.opaque if kind.opaque == "void" else scope.full(kind.spelling)
        except ValueError:
            found.append(object())
            continue
        found.append((base, kind.lanes, kind.pointers, kind.const and kind.pointers > 0))
    return tuple(found)


def _instance(source: Declarations, declared: KernelDeclaration, given: Mapping[int, list[list[Token]]], name: str) -> Instance:
    """Return a kernel with these template arguments, by the component of its name; `name` is what was asked for."""
    if declared.fault:
        raise DeclarationError(f"kernel {name!r} of {source.where}, line {declared.line}: {declared.fault}", array=name)
    scope = source.scope_of(declared.name)
    templates = {1: declared.of_class or None, 0: declared.templates}
    if any(templates.get(n) is None for n in given):
        what = "no template" if declared.templates is None else "a template only behind its last name"
        raise DeclarationError(
            f"kernel {declared.name!r} of {source.where} is {what}; ask for module[{_spelled(declared, {}, None)!r}]", array=name
        )
    lists = {1: "", 0: ""}
    for n, parameters in templates.items():
        if parameters is not None:
            scope = _bound(source, declared, parameters, given.get(n, []), name, scope.inner())
            lists[n] = f"<{', '.join(spell(part) for part in given.get(n, []))}>"
    space, colons, last = declared.name.rpartition("::")
    return Instance(declared, scope, f"{space}{lists[1]}{colons}{last}{lists[0]}")


def _named(source: Declarations, name: str) -> list[KernelDeclaration]:
    name = name.removeprefix("::")
    if name in source.kernels:
        return source.kernels[name]
    return [d for key, found in source.kernels.items() if key.endswith(f"::{name}") for d in found]


def _bound(
    source: Declarations, declared: KernelDeclaration, templates: Sequence[TemplateParameter], arguments: Sequence[list[Token]],
    name: str, scope: Scope,
) -> Scope:  # fmt: skip
    """Bind the parameters of a template to arguments in a scope, and return it; refuse too many or too few."""
    wanted = ", ".join(t.spelling for t in templates)
    if "..." in wanted:
        raise DeclarationError(
            f"kernel {declared.name!r} of {source.where} takes a template parameter pack ({wanted}), which "
            "is not supported; write the parameters out",
            array=name,
        )
    if not sum(not t.default for t in templates) <= len(arguments) <= len(templates):
        how = f"{declared.name}<...>" if templates is declared.templates else _spelled(declared, {}, None)
        raise DeclarationError(
            f"kernel {declared.name!r} of {source.where} is a template of ({wanted}); "
            f"ask for module[{how!r}] (got {len(arguments)} arguments)",
            array=name,
        )
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
    name, scope = declared.name, source.scope_of(declared.name)
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
