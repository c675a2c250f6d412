"""Faults that need the whole graph: structure, races, lifetimes, data, launch limits, capture, advice, known defects.

`check_workflow` runs all checks on a workflow; no device is needed. Each finding has a code of the catalogue, in
groups: HG1xx structure, HG2xx races and ordering, HG3xx lifetimes, HG4xx data, HG5xx launch limits, HG6xx capture,
HG7xx performance advice, HG8xx known defects of platforms.
"""

from __future__ import annotations

from contextlib import suppress

from ..collecting import collector_paused
from ..errors import CheckError, DeclarationError
from ..nodes.workflow import Workflow
from ..parts import ENABLED, find
from ..placement import devices_of
from ..target import Target
from .advice import check_redundant_edges, check_reuse, check_shape
from .catalogue import CATALOGUE, Entry
from .levels import CheckedLevel, levels_of
from .lifetimes import check_copies, check_data, check_lifetimes
from .limits import check_capture, check_limits
from .races import check_events, check_races, edges_cover_accesses
from .report import Diagnostic, Report
from .standing import check_standing
from .structure import check_cycle, check_ignores, check_use

__all__ = ["CATALOGUE", "OF_GRAPHS", "CheckedLevel", "Diagnostic", "Entry", "Report", "check_workflow", "require_sound"]


OF_GRAPHS = frozenset({"HG507", "HG508"})
"""Errors that concern only backends which build a graph."""


def require_sound(workflow: Workflow, target: Target, device: int, backend: str) -> None:
    """Raise CheckError if a workflow has errors that apply to a backend; `OF_GRAPHS` apply only to those that build graphs."""
    for module in workflow.modules:
        with suppress(DeclarationError):  # raised where the module is loaded
            _ = module.image  # a file that has not been read tells nothing of its kernels
    errors = check_workflow(workflow, target, device, errors_only=True).diagnostics
    if errors and any(d.severity == "error" and (backend in ("explicit", "capture") or d.code not in OF_GRAPHS) for d in errors):
        raise CheckError(check_workflow(workflow, target, device))


@collector_paused()
def check_workflow(workflow: Workflow, target: Target | None = None, device: int = 0, *, errors_only: bool = False) -> Report:
    """Check a workflow and the child graphs inside it; with a target, also check its limits and known defects.

    `device` is the device of nodes and arrays that name none. With `errors_only`, checks that find no errors are left out: the
    report has all errors, and of warnings and infos those that the other checks find too.
    """
    everything = not errors_only
    bounds = find("bounds")
    check_kernels = None if bounds is None else bounds.checker(errors_only=errors_only)
    several = len(devices_of(workflow, device)) > 1
    of_others = [
        entry.check
        for part in ENABLED.values()
        for entry in part.checks.values()
        if entry.check is not None and (everything or entry.severity == "error")
    ]
    scopes = levels_of(workflow)
    for scope in scopes:
        if everything:
            check_ignores(scope)
            check_use(scope)
        check_copies(scope)
        check_standing(scope)
        check_limits(scope, target)
        if check_kernels is not None:
            check_kernels(scope)
        if everything:
            check_capture(scope, target)
        if several:
            from .devices import check_devices

            check_devices(scope, device)
        if check_cycle(scope):
            continue  # the following checks need a topological order
        if not (scope.workflow.infer and not scope.aliased and edges_cover_accesses(scope.workflow)):
            check_races(scope)
        if everything:
            if bounds is not None:
                bounds.check_hidden(scope)
            check_events(scope)
        check_lifetimes(scope)
        if everything:
            check_data(scope)
            check_redundant_edges(scope)
            check_reuse(scope)
            check_shape(scope, target)
            if target is not None:
                from .platform import check_defects

                check_defects(scope, target)
        for check in of_others:
            check(scope)
    name = None if target is None else target.name
    return Report(workflow.name, name, tuple(scopes[0].diagnostics), tuple(scopes[0].ignored))
