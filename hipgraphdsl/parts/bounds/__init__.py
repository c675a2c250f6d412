"""Accesses of kernels beyond their arrays (HG409), by static analysis of their source."""

from collections.abc import Callable
from functools import partial

from ...checks.scope import Scope
from .bounds import Launches, check_bounds

__all__ = ["Launches", "check_bounds", "checker"]


def checker() -> Callable[[Scope], None]:
    """Return the check of one workflow and its children, with a cache of the launches that it has analysed."""
    return partial(check_bounds, launches=Launches())
