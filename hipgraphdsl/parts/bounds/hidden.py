"""Kernels that reach memory by addresses inside of their data, which no edge orders (HG606)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...arrays import Parameter
from ...checks.levels import CheckedLevel
from ...errors import DeclarationError
from ...kernels import Kernel, KernelParameter, Module
from ...nodes import Node
from ...source import trees as syntax
from .origins import Origins
from .programs import program_of

if TYPE_CHECKING:
    from ...checks.reach import Reach
    from ...nodes.facets import KernelLaunch


class Hidden(NamedTuple):
    """Data with addresses, in words, and the node that takes them, after the child graphs around it."""

    what: str
    nodes: tuple[Node, ...]


def check_hidden(scope: CheckedLevel) -> None:
    """Report kernels with hidden addresses that another node which touches memory may run beside."""
    nodes = scope.workflow.nodes
    plain = not any(_may_hide(launch.kernel) for launch in scope.launches.values())
    asked = scope.having("held") if plain else scope.having("held", "launched")
    hidden = {n: found for n, node in asked if (found := _hidden(scope, node))}
    if not hidden:
        return
    touching = {n for n, node in enumerate(nodes) if n in hidden or node.accesses}
    beside: dict[int, int] = {}
    reach = scope.reach
    for start, stop in reach.segments:
        segment = {k: reach.order[start + k] for k in range(stop - start)}
        if any(n in hidden for n in segment.values()):
            for one, other in _unordered(reach, start, stop, segment, touching):
                if one in hidden:
                    beside.setdefault(one, other)
                if other in hidden:
                    beside.setdefault(other, one)
    for n, other in sorted(beside.items()):
        scope.found(
            "HG606",
            f"{scope.name(nodes[n])!r} reaches memory by {hidden[n].what}, and nothing orders it with"
            f" {scope.name(nodes[other])!r}: what lies there is no argument, so no edge follows from it",
            *hidden[n].nodes,
            names=(scope.name(nodes[n]),),
            hint=f"if both touch the same memory, order them: after=[{nodes[min(n, other)].name!r}] where"
            f" {nodes[max(n, other)].name!r} is declared; if not, say so: ignore={{'HG606': '...'}}",
        )


def _unordered(reach: Reach, start: int, stop: int, segment: dict[int, int], wanted: set[int]) -> Iterator[tuple[int, int]]:
    """Yield for each wanted node of a segment the first wanted node before it that no path orders with it, and the reverse."""
    before = 0
    for k, (n, ancestors) in enumerate(reach.walk(start, stop)):
        if n not in wanted:
            continue
        free = before & ~ancestors
        while free:
            bit = free & -free
            yield n, segment[bit.bit_length() - 1]
            free ^= bit
        before |= 1 << k


def _hidden(scope: CheckedLevel, node: Node) -> Hidden | None:
    """Return by which data a node reaches memory that it does not name: the first that no node ignores, else the first."""
    first = None
    for hidden in _reached(scope, node):
        if all("HG606" not in (each.ignore or ()) for each in hidden.nodes):
            return hidden
        first = first or hidden
    return first


def _reached(scope: CheckedLevel, node: Node) -> Iterator[Hidden]:
    if node.launched is not None and (what := _of_kernel(node.launched)):
        yield Hidden(what, (node,))
    for inner in () if node.derives else scope.inner(node):
        for child in inner.workflow.nodes:
            for what, nodes in _reached(inner, child):
                yield Hidden(f"{what} of {inner.name(child)!r}" if len(nodes) == 1 else what, (node, *nodes))


def _may_hide(kernel: Kernel) -> bool:
    """Return whether a kernel takes data with addresses in them."""
    return kernel.signature is not None and bool(kernel.module.source and addresses_of(kernel))


def _of_kernel(node: KernelLaunch) -> str:
    signature = node.kernel.signature
    if signature is None or not _may_hide(node.kernel):
        return ""
    hidden = addresses_of(node.kernel)
    for n, (parameter, arg) in enumerate(zip(signature.parameters, node.args, strict=False)):
        if n in hidden and not _is_null(parameter, arg):
            return hidden[n]
    return hidden.get(-1, "")


def _is_null(parameter: KernelParameter, arg: Any) -> bool:
    """Return whether no address can be in an argument: a null pointer, or a value all of whose possible addresses are 0."""
    if arg is None or isinstance(arg, Parameter):
        return arg is None
    if parameter.pointer:
        return False
    try:
        return not np.asarray(arg, parameter.dtype).tobytes().strip(b"\0")
    except (TypeError, ValueError):
        return False


@lru_cache(maxsize=512)
def addresses_of(kernel: Kernel) -> dict[int, str]:
    """Return the parameters whose values or elements are addresses, with what they are in words; -1 is a variable's."""
    assert kernel.signature is not None
    found: dict[int, str] = {}
    for n, parameter in enumerate(kernel.signature.parameters):
        kind = parameter.ctype.removeprefix("const ").rstrip("*")
        if parameter.ctype.count("*") > 1:
            found[n] = f"the addresses in {parameter.name!r} ({parameter.ctype})"
        elif _holds(kernel.module, kind, parameter.dtype):
            within = f"the structs that {parameter.name!r} points to" if parameter.pointer else f"struct {parameter.name!r}"
            found[n] = f"the pointers in {within} ({parameter.ctype})"
    if (program := program_of(kernel)) is not None:
        for n, what in _cast(kernel, program.body):
            found.setdefault(n, what)
    if not kernel.unread:
        names = [symbol.name for symbol, _ in kernel.symbols if not symbol.hidden and _is_address(kernel, symbol.name)]
        if names:
            found[-1] = f"the pointer in variable {names[0]!r} of its module"
    return found


def _cast(kernel: Kernel, body: syntax.Block) -> Iterator[tuple[int, str]]:
    """Yield each parameter whose data a body takes for addresses, with what they are in words."""
    assert kernel.signature is not None
    parameters = kernel.signature.parameters
    for cast, origin in Origins(body, parameters).pointers():
        to_addresses = cast.type.pointers > 1 or _holds(kernel.module, cast.type.spelling, cast.type.dtype)
        for n in sorted({*origin.made, *(origin.points if to_addresses else ())}):
            what = "addresses" if parameters[n].pointer else "address"
            yield n, f"the {what} in {parameters[n].name!r} ({parameters[n].ctype}), as a cast in the kernel says"


def _is_address(kernel: Kernel, name: str) -> bool:
    """Return whether a variable of the module holds a pointer, in itself or as a member."""
    module = kernel.module
    declared = module.declared.symbols.get(name)
    try:
        tokens = module.declared.unit.tokens_of(declared.tokens) if declared is not None else []
        kinds = [each.type for each in module.declared.scope.declarators(tokens) if each.name == name.rpartition("::")[2]]
    except (ValueError, DeclarationError):
        return False
    return any(kind.pointers or _holds(module, kind.spelling, kind.dtype) for kind in kinds)


def _holds(module: Module, spelling: str, dtype: np.dtype[Any] | None) -> bool:
    """Return whether a type is a struct of the source with a pointer among its members."""
    if spelling == "void" or (dtype is not None and dtype.names is None):
        return False  # the source need not be read again
    from .definitions import definitions_of

    return definitions_of(module).holds_addresses(spelling)
