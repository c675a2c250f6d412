"""Peer access between the devices of one Executable, where its nodes need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import DeclarationError
from ..nodes import Node
from ..nodes.workflow import Workflow
from ..placement import Memory, defaults, device_of, memories, reaching, runs_code
from .devices import Home


def grant_access(workflow: Workflow, home: Home) -> dict[int, list[int]]:
    """Enable peer access where nodes need it; return for each device the devices that were given access to its memory."""
    device = home.device
    granted: dict[int, list[int]] = {}
    reached = list(_reaching(workflow, device))
    wanted = _peers(workflow, device, reached)
    made = [node.made for _, node in workflow.walk() if node.made is not None] if wanted else []
    pools = {device if array.device is None else array.device for array in made}
    for owner, others in wanted.items():
        for other in others:
            if home.let_reach(other, owner):
                granted.setdefault(owner, []).append(other)
                continue
            for name, node, here, memory in reached:
                if (here, memory.owner) == (other, owner) and runs_code(node):  # copies need no peer access
                    raise DeclarationError(
                        f"node {name!r} on device {other} reaches {memory.root.name!r} on device {owner}, and between these two"
                        " devices there is no peer access; copy what it needs to its own device by memcpy, which works between"
                        " all",
                        node=name,
                        array=memory.root.name,
                    )
        if owner in pools and owner in granted:
            home.runtime.mem_pool_set_access(owner, granted[owner])
    return granted


def _reaching(workflow: Workflow, default: int) -> Iterator[tuple[str, Node, int, Memory]]:
    """Yield each node with its name, its device, and memory of another device that it accesses, also by parameter defaults."""
    for level, node in workflow.walk():
        device = device_of(node, default, level)
        if device is not None:
            for memory in (*memories(node, default, level), *(memory for _, memory in defaults(node, default, level))):
                if memory.owner != device:
                    yield level.name(node), node, device, memory


def _peers(workflow: Workflow, default: int, reached: Iterable[tuple[str, Node, int, Memory]]) -> dict[int, list[int]]:
    """Return for each device the others that access its memory: by code, if the array's `access` lists them, and by copies.

    Copies work without peer access, but are direct with it. A parameter may be bound to any array.
    """
    found: dict[int, set[int]] = {}
    for _, node, device, memory in reached:
        if device in memory.access or not runs_code(node):
            found.setdefault(memory.owner, set()).add(device)
    by_parameters = {device for devices in reaching(workflow, default).values() for device in devices}
    for level in workflow.levels() if by_parameters else ():
        for _, array in level.own_arrays():
            owner = default if array.device is None else array.device
            found.setdefault(owner, set()).update(by_parameters.intersection(array.access) - {owner})
    return {owner: sorted(others) for owner, others in sorted(found.items())}
