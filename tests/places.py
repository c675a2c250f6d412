"""Which runtimes that compute open on this machine."""

from __future__ import annotations

import hipgraphdsl as hg

COMPUTING = ("cpu", "amd", "nvidia")


def _opens(name: str) -> bool:
    try:
        hg.open_runtime(name)
    except hg.RuntimeUnavailable:
        return False
    return True


HERE = tuple(filter(_opens, COMPUTING))
