"""Access to memory of other devices (HG406 to HG408), in workflows that name several devices."""

from __future__ import annotations

from ..kernels import Symbol
from ..nodes import Node
from ..placement import candidates, defaults, device_of, memories, runs_code
from .levels import CheckedLevel


def check_devices(scope: CheckedLevel, device: int) -> None:
    """Report nodes that access memory which their device cannot access; nodes and arrays without a device use `device`."""
    written: dict[Symbol, dict[int, Node]] = {}
    read: list[tuple[Node, Symbol, int]] = []
    for node in scope.workflow.nodes:
        here = device_of(node, device, scope)
        if here is None:
            continue
        for access in node.accesses:
            root = access.view.root
            if isinstance(root, Symbol) and not root.hidden:
                if access.is_write:
                    written.setdefault(root, {}).setdefault(here, node)
                if access.is_read:
                    read.append((node, root, here))
        if not runs_code(node):
            continue
        touched = memories(node, device, scope)
        if node.work == "kernel" and getattr(node, "device", None) is None and touched and not candidates(touched):
            places = ", ".join(f"{memory.root.name!r} on device {memory.owner}" for memory in touched)
            scope.found(
                "HG407",
                f"{scope.name(node)!r} reaches {places}, and no device may reach all of them",
                node,
                arrays=[memory.root.name for memory in touched],
                hint="say where it runs by device=, and which others it may reach there by access= of their arrays; or copy them"
                " to one device",
            )
            continue
        stood_for = [(memory, parameter) for parameter, memory in defaults(node, device, scope) if memory not in touched]
        for memory, parameter in [*((memory, None) for memory in touched), *stood_for]:
            if here != memory.owner and here not in memory.access:
                name = memory.root.name
                message = f"{scope.name(node)!r} runs on device {here} and reaches {name!r} on device {memory.owner}"
                hint = f"declare {name!r} with access=[{here}], or copy it to device {here} by memcpy"
                if parameter is not None:
                    message += f", the default of parameter {parameter.name!r}"
                    hint = f"declare {name!r} with access=[{here}], give {node.name!r} device={memory.owner}, or let"
                    hint += f" {parameter.name!r} stand for memory of device {here}"
                scope.found("HG406", message, node, arrays=[name], hint=hint)
    for node, symbol, here in read:
        others = written.get(symbol, {})
        if others and here not in others:
            there, writer = next(iter(others.items()))
            scope.found(
                "HG408",
                f"{scope.name(node)!r} runs on device {here} and reads variable {symbol.name!r}, which {scope.name(writer)!r}"
                f" writes on device {there}",
                node,
                writer,
                arrays=[symbol.name],
                hint=f"write it on device {here} too, by a copy with device={here}",
            )
