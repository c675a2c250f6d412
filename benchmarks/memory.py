"""Memory of this process."""

from __future__ import annotations

import os

__all__ = ["resident_bytes"]


def resident_bytes() -> int:
    """Return the resident size of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
