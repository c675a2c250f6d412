"""The compiled call path: `Launcher`, built on first use where Python's headers and a compiler are, absent elsewhere.

Measured on an H200 (16 Xeon cores): submitting an instantiated graph takes 0.98 us in C++, 2.0 us through ctypes and a Python
method; see docs/benchmarks.md for what is left of the difference here.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import logging
import os
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Protocol

from ..errors import RuntimeUnavailable

__all__ = ["Launcher", "Slot", "launcher_type"]

_log = logging.getLogger(__name__)

Slot = tuple[str, str, int, bytes, list[tuple[int, int, int]]]
"""Name, `struct` code, size, current value, and for each use the address of the value, the node and the parameters."""


class Launcher(Protocol):
    """What the compiled type offers; calling it launches."""

    ready: bool
    pending: bool
    inside: int
    launches: int
    updates: int
    left: int

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...
    def bind(self, launch: int, set_params: int, graph_exec: int, stream: int) -> None: ...
    def slots(self, slots: list[Slot], keep: Any) -> None: ...
    def value(self, name: str) -> Optional[bytes]: ...


@functools.cache
def launcher_type() -> Optional[Callable[[Any], Launcher]]:
    """Return the compiled type, or None where it cannot be had; HIPGRAPHDSL_LAUNCHER=python does without it."""
    if os.environ.get("HIPGRAPHDSL_LAUNCHER") == "python":
        return None
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").exists():
        _log.info("no Python headers in %s: launches go through ctypes", include)
        return None
    from .cpu.compiler import BuildFailed, build, find_compiler

    source = (Path(__file__).parent / "launcher.cpp").read_text()
    try:
        # The option keeps interpreters apart that share a cache.
        abi = str(sysconfig.get_config_var("SOABI")).replace("-", "_")
        options = ("-O2", f"-I{include}", f"-DINTERPRETER_{abi}")
        library = build(find_compiler(), source, options, stem="launcher", what="the compiled call path")
        loader = importlib.machinery.ExtensionFileLoader("launcher", str(library))
        spec = importlib.util.spec_from_loader("launcher", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except (RuntimeUnavailable, BuildFailed, ImportError, OSError) as error:
        _log.info("no compiled call path, launches go through ctypes: %s", error)
        return None
    return module.Launcher  # type: ignore[no-any-return]  # a compiled module has no types
