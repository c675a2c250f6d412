"""Compiled code for frequent operations that are too slow in Python: launching, and adding kernel nodes to a graph.

One optional extension module (`module.cpp`), built on first use if Python's headers and a compiler are available; everything
that it does also works without it. Measured on an H200 (16 Xeon cores): submitting an instantiated graph takes 0.98 us in C++,
2.0 us through ctypes and a Python method; adding a kernel node takes 0.24 us in C++, 8.5 us through ctypes and Python's
look-ups. docs/benchmarks.md has the differences that remain in this library.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import logging
import platform
import sysconfig
from pathlib import Path
from types import ModuleType

from ...errors import RuntimeUnavailable
from ...settings import setting

_log = logging.getLogger("hipgraphdsl")


@functools.cache
def native() -> ModuleType | None:
    """Return the extension module, or None if it cannot be built or loaded, or HIPGRAPHDSL_NATIVE=0 disables it."""
    if setting("HIPGRAPHDSL_NATIVE") == "0":
        return None
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").exists():
        _log.info("no Python headers in %s: graphs are built and launched through ctypes", include)
        return None
    from ...compiler import WITHOUT_HELPERS, BuildFailed, build, find_compiler

    sources = {path.name: path.read_text() for path in Path(__file__).parent.iterdir() if path.suffix in (".cpp", ".h")}
    try:
        # The macro makes interpreters that share a cache build separate libraries.
        abi = str(sysconfig.get_config_var("SOABI")).replace("-", "_")
        options = ["-O2", f"-I{include}", f"-DINTERPRETER_{abi}"]
        compiler = find_compiler()
        if compiler.kind == "zig" and platform.machine() == "x86_64":
            # Python's functions are undefined here, so the linker cannot tell whether helpers are needed; on x86-64 none is.
            options += [WITHOUT_HELPERS, "-Wl,-z,now"]
        library = build(compiler, sources, options, stem="native", what="the compiled call path")
        loader = importlib.machinery.ExtensionFileLoader("native", str(library))
        spec = importlib.util.spec_from_loader("native", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except (RuntimeUnavailable, BuildFailed, ImportError, OSError) as error:
        _log.info("no compiled call path, graphs are built and launched through ctypes: %s", error)
        return None
    return module
