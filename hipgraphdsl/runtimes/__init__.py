"""The runtimes: each module implements HIP's calls on one platform, and alone imports that platform's binding, when opened."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ..arrays import as_int
from ..errors import DeclarationError, HipGraphError, RuntimeUnavailable, unknown_name
from ..parts import module_of
from ..settings import setting
from ..target import Target, calibrated

if TYPE_CHECKING:
    from ..graph_pool import GraphMemory
    from .base import Runtime

# Name of the runtime -> its module, and the module's class, which is constructed with a device number.
RUNTIMES = {
    "amd": ("runtimes.amd", "AmdRuntime"),
    "nvidia": ("runtimes.nvidia", "NvidiaRuntime"),
    "cpu": ("parts.cpu", "CpuRuntime"),
    "recorder": ("parts.recorder", "RecorderRuntime"),
}
RuntimeName = Literal["auto", "amd", "nvidia", "cpu", "recorder"]
"""The names that type checkers accept; at run time any str is looked up."""

_AUTO = ("amd", "nvidia", "cpu")
_CALLED = {  # names used elsewhere -> names here, for error messages
    **dict.fromkeys(("hip", "rocm"), "amd"),
    "cuda": "nvidia",
    **dict.fromkeys(("host", "cpus"), "cpu"),
    **dict.fromkeys(("gpu", "gpus", "default"), "auto"),
}

_FORGOTTEN_S: Final = 1.0
_opened: dict[tuple[str, int], tuple[int, Runtime]] = {}
_missing: dict[tuple[str, int], float] = {}
"""Earliest time (`time.monotonic`) at which ``"auto"`` probes a missing runtime again: a probe takes half a millisecond."""
_lock = threading.RLock()


def open_runtime(name: str = "auto", device: int = 0) -> Runtime:
    """Return a device's runtime, which is opened once per process and cached.

    Parameters
    ----------
    name : {"auto", "amd", "nvidia", "cpu", "recorder"}, or a name that another package adds
        ``"auto"`` selects the value of the environment variable HIPGRAPHDSL_RUNTIME if set, else amd if the device is
        available, else nvidia if it is, else cpu; an unavailable runtime is probed again after a second.
    device : int
        Number of the device, from 0.

    Raises
    ------
    DeclarationError
        If there is no runtime of that name.
    RuntimeUnavailable
        If the binding, the library or the device is missing; the message says what to install.
    HipGraphError
        In a fork of a process that opened a runtime: device contexts and threads do not survive a fork.
    """
    if type(name) is str and type(device) is int:
        opener, runtime = _opened.get((name, device), (0, None))
        if runtime is not None and opener == os.getpid():
            return runtime
    wanted = _wanted(name)
    _require_number(device)
    if wanted != "auto":
        return _open(wanted, device)
    for candidate in _AUTO[:-1]:
        key = (candidate, device)
        if key in _opened or time.monotonic() >= _missing.get(key, 0.0):
            try:
                return _open(candidate, device)
            except RuntimeUnavailable:
                _missing[key] = time.monotonic() + _FORGOTTEN_S
    return _open(_AUTO[-1], device)


def opened_runtime(runtime: str | Runtime, device: int = 0) -> Runtime:
    """Open a runtime that is given by name, or return an open one as it is; raise DeclarationError for anything else."""
    from .base import Runtime

    if isinstance(runtime, str):
        return open_runtime(runtime, device)
    if Runtime not in type(runtime).__mro__:
        raise DeclarationError(f"runtime is a name such as 'auto', or what hg.open_runtime returns (got {runtime!r})")
    _require_number(device)
    return runtime


def target_of(target: str | Target | None) -> Target:
    """Resolve a target or its name; for None, return the target of the device that ``"auto"`` selects."""
    return open_runtime("auto").target if target is None else Target.named(target)


def graph_memory(runtime: RuntimeName | Runtime = "auto", device: int = 0) -> GraphMemory:
    """Return a view of a device's memory for alloc nodes: bytes used and reserved, high-water marks, and `trim()`.

    Parameters
    ----------
    runtime : str or Runtime
        As for `open_runtime`.
    device : int

    Raises
    ------
    RuntimeUnavailable
        If the runtime is unavailable.
    """
    from ..graph_pool import GraphMemory

    return GraphMemory(opened_runtime(runtime, device), device)


def _require_number(device: Any) -> None:
    if as_int(device) is None:
        raise DeclarationError(f"device is the number of a device, from 0 (got {device!r}); what runs it is chosen by runtime=")


def is_known(name: str) -> bool:
    """Return whether there is a runtime of this name, here or in a part of another package."""
    if name in RUNTIMES or not isinstance(name, str) or name in _CALLED:
        return name in RUNTIMES
    from ..extensions import offered

    return offered("runtimes", name) is not None


def _wanted(name: str) -> str:
    wanted = setting("HIPGRAPHDSL_RUNTIME") or "auto" if name == "auto" else name
    if wanted != "auto" and not is_known(wanted):
        from ..extensions import others

        source = " (from HIPGRAPHDSL_RUNTIME)" if name == "auto" else ""
        raise unknown_name("runtime", wanted, ("auto", *RUNTIMES), _CALLED, source=source, others=others("runtimes"))
    return wanted


def _open(name: str, device: int) -> Runtime:
    _refuse_after_fork()
    key = (name, device)
    if key not in _opened:
        with _lock:
            if key not in _opened:
                runtime = _constructor(name)(device)
                runtime.target = calibrated(runtime.target)
                _opened[key] = (os.getpid(), runtime)
    return _opened[key][1]


def _constructor(name: str) -> Callable[[int], Runtime]:
    if name in RUNTIMES:
        place, kind = RUNTIMES[name]
        return cast("Callable[[int], Runtime]", getattr(module_of(place), kind))
    from ..extensions import offered
    from .base import Runtime

    construct = offered("runtimes", name)

    def checked(device: int) -> Runtime:
        runtime: Runtime = construct(device)
        if Runtime not in type(runtime).__mro__ or not isinstance(getattr(runtime, "target", None), Target):
            raise HipGraphError(
                f"runtime {name!r} of another package is to be a hipgraphdsl.runtimes.base.Runtime with a Target (got"
                f" {type(runtime).__name__})"
            )
        return runtime

    return checked


def _refuse_after_fork() -> None:
    here = os.getpid()
    for (name, _), (opener, _) in _opened.items():
        if opener != here:
            raise HipGraphError(
                f"runtime {name!r} was opened in process {opener}, and process {here} is a fork of it, where the "
                f"runtime's device and threads do not exist; start workers with multiprocessing's 'spawn' method"
            )
