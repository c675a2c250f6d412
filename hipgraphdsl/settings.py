"""Environment variables that the package reads, and what each may hold."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from .errors import DeclarationError, suggested


class Setting(NamedTuple):
    """What an environment variable may hold, in words and as a test; its reader may judge further."""

    takes: str
    fits: Callable[[str], bool] = bool


def _count(of: str, most: int) -> Setting:
    return Setting(f"a number of {of}, 1 to {most}", lambda text: bool(_COUNT.fullmatch(text)) and 1 <= int(text) <= most)


_COUNT: Final = re.compile("[0-9]{1,10}")
SETTINGS: Final = {
    "HIPGRAPHDSL_RUNTIME": Setting("the name of a runtime"),
    "HIPGRAPHDSL_CACHE_DIR": Setting("the path of a directory"),
    "HIPGRAPHDSL_CXX": Setting("the command of a C++ compiler"),
    "HIPGRAPHDSL_CPU_DEVICES": _count("devices", 16),
    "HIPGRAPHDSL_CPU_THREADS": _count("threads", 512),
    "HIPGRAPHDSL_CPU_QUEUE": _count("operations", 10**9),
    "HIPGRAPHDSL_NCCL": Setting("the file of a library"),
    "HIPGRAPHDSL_NATIVE": Setting("0 or 1", lambda text: text in ("0", "1")),
}


def setting(name: str) -> str:
    """Return the value of an environment variable; empty if it is not set.

    Raises
    ------
    DeclarationError
        If it holds something else than what it takes.
    """
    value = os.environ.get(name, "")
    if value and not SETTINGS[name].fits(value):
        raise DeclarationError(f"the environment variable {name} is {value!r}; it takes {SETTINGS[name].takes}")
    return value


def remark(name: str, value: str) -> str:
    """Return why a variable whose name begins as the package's do has no effect; empty if it has one."""
    if name not in SETTINGS:
        return f"hipgraphdsl does not read it{suggested(name, SETTINGS)}"
    return "" if not value or SETTINGS[name].fits(value) else f"it takes {SETTINGS[name].takes}"
