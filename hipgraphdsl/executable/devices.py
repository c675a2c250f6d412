"""The devices of one Executable: make one current in a thread, and enable peer access between them."""

from __future__ import annotations

import _thread
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

from ..errors import DeclarationError, HipError
from ..nodes import Node
from ..nodes.workflow import Workflow
from ..placement import Memory, defaults, device_of, memories, reaching, runs_code
from ..runtimes.base import Runtime
from ..waiting import let_calls_end

_log: Final = logging.getLogger("hipgraphdsl")


class Home:
    """The device that an Executable was compiled for, and context managers that make it current in a thread.

    Every driver call is made inside one of them: a thread may be new, and other libraries may change or remove its current device
    or context between two calls.
    """

    def __init__(self, runtime: Runtime, device: int, *, sanitize: bool = False) -> None:
        self.runtime = runtime
        self.device = device
        if sanitize and not runtime.sanitizes:
            raise DeclarationError(
                "DebugOptions(sanitize=True) judges kernels where the CPU runs them, on Linux: compile with runtime='cpu'"
                f" (got {runtime.name!r})"
            )
        self.sanitize = sanitize
        """Whether the sanitizer checks kernels, so that the runtime must know where arrays lie."""
        self.devices = runtime.get_device_count()
        """How many devices there are."""
        self.several = self.devices > 1
        """Whether the thread's current device may be another one."""
        self.switches = self.several or runtime.needs_context
        """Whether a thread may have to switch: with several devices, or on a runtime whose threads need a current context."""

    def there(self, device: int | None = None) -> AbstractContextManager[None]:
        """Return a context that makes a device (by default the Executable's) current; a no-op if a thread need not switch."""
        return self.runtime.using_device(self.device if device is None else device) if self.switches else nullcontext()

    def returning(self, device: int | None = None) -> AbstractContextManager[None]:
        """Return a context like `there` for code that releases handles: it runs even if the device cannot be made current.

        Calls that captures forbid are permitted in it, so that what dies while a stream captures does not spoil the capture.
        """
        return self.runtime.returning_on((self.device if device is None else device) if self.switches else None)

    def release_after(self, owner: object, release: Callable[[], None], what: str, device: int | None = None) -> None:
        """Call `release` on a device when nobody has `owner` any more; `what` names it in the log if that fails."""
        weakref.finalize(owner, self._release_later, release, what, device, os.getpid()).atexit = False

    def _release_later(self, release: Callable[[], None], what: str, device: int | None, process: int) -> None:
        """Release in a new thread: the owner may be destroyed where HIP forbids calls, and locks of `threading` may be held."""

        def call() -> None:
            try:
                with self.returning(device):
                    let_calls_end()
                    release()
            except HipError as error:  # nobody is there to receive it
                _log.warning("%s could not be freed: %s", what, error)

        if os.getpid() == process:  # in a forked process what is released belongs to the parent
            with suppress(RuntimeError):  # the interpreter is ending, and process exit frees everything
                _thread.start_new_thread(call, ())


def grant_access(workflow: Workflow, home: Home, devices: Sequence[int]) -> dict[int, list[int]]:
    """Enable peer access where nodes need it; return for each device the devices that were given access to its memory."""
    runtime, device, count = home.runtime, home.device, home.devices
    if max(devices) >= count:
        missing = min(filter(count.__le__, devices))
        raise DeclarationError(
            f"graph {workflow.name!r} uses device {missing}; runtime {runtime.name!r} has"
            f" {count} device{'s' * (count != 1)}, from 0" + runtime.more_devices()
        )
    granted: dict[int, list[int]] = {}
    if len(devices) == 1:
        return granted
    reached = list(_reaching(workflow, device))
    wanted = _peers(workflow, device, reached)
    made = [node.made for _, node in workflow.walk() if node.made is not None] if wanted else []
    pools = {device if array.device is None else array.device for array in made}
    for owner, others in wanted.items():
        for other in others:
            if let_reach(runtime, other, owner):
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
            runtime.mem_pool_set_access(owner, granted[owner])
    return granted


def let_reach(runtime: Runtime, device: int, owner: int) -> bool:
    """Enable a device's peer access to the memory of `owner`; return False if the hardware does not support it."""
    if not runtime.device_can_access_peer(device, owner):
        return False
    with runtime.using_device(device):
        runtime.device_enable_peer_access(owner)
    return True


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
