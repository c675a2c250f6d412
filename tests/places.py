"""Which runtimes that compute open on this machine."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import hipgraphdsl as hg
from hipgraphdsl.arrays import EXTRAS, NAMES, as_dtype
from hipgraphdsl.runtimes.base import Runtime

COMPUTING = ("cpu", "amd", "nvidia")


def _opens(name: str) -> bool:
    try:
        hg.open_runtime(name)
    except (hg.RuntimeUnavailable, hg.PartMissing):
        return False
    return True


HERE = tuple(filter(_opens, COMPUTING))


def _is_here(name: str) -> bool:
    try:
        as_dtype(name)
    except hg.DeclarationError:
        return False
    return True


DTYPES = tuple(name for name in NAMES if _is_here(name))
"""Names of the types of elements, those apart that the installed ml_dtypes lacks."""
EXTRA_DTYPES = tuple(name for name in DTYPES if name in EXTRAS)
"""Those of ml_dtypes."""


def runtime_or_skip(name: str) -> Runtime:
    """Return a runtime, or skip where it does not open."""
    try:
        return hg.open_runtime(name)
    except hg.RuntimeUnavailable as error:
        pytest.skip(f"runtime {name!r} lacks its {error.missing}: {error}")
    except hg.PartMissing as error:
        pytest.skip(f"runtime {name!r} needs the part {error.part!r}")


def other_library(name: str) -> Any:
    """Return another library, or skip where it is not there; what it warns of when it is imported is its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"the package {name} is not there")
