"""The devices of one Executable: make one current in a thread, and let one reach another's memory."""

from __future__ import annotations

import _thread
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

from ..errors import DeclarationError, HipError
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

    def require(self, devices: Sequence[int], graph: str) -> None:
        """Refuse devices of a graph that are not there."""
        if max(devices) >= self.devices:
            missing = min(filter(self.devices.__le__, devices))
            raise DeclarationError(
                f"graph {graph!r} uses device {missing}; runtime {self.runtime.name!r} has"
                f" {self.devices} device{'s' * (self.devices != 1)}, from 0" + self.runtime.more_devices()
            )

    def let_reach(self, device: int, owner: int) -> bool:
        """Enable a device's peer access to the memory of `owner`; return False if the hardware does not support it."""
        if not self.runtime.device_can_access_peer(device, owner):
            return False
        with self.runtime.using_device(device):
            self.runtime.device_enable_peer_access(owner)
        return True

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
