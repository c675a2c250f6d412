"""The door of `check`."""

from __future__ import annotations

from collections.abc import Callable

from ...checks.levels import CheckedLevel
from .bounds import AnalysisCache, check_bounds, shares


def checker(*, errors_only: bool = False) -> Callable[[CheckedLevel], None]:
    """Return the check of the kernels of a workflow, for all its scopes, with a cache of the launches that it has analysed.

    With `errors_only`, it does not look for an exchange without a barrier, which is a warning.
    """
    cache = AnalysisCache()

    def check(scope: CheckedLevel) -> None:
        check_bounds(scope, cache)
        if not errors_only and any(map(shares, scope.launches.values())):
            from .exchange import check_exchange

            check_exchange(scope)

    return check
