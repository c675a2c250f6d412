"""Faults that need the whole graph: structure, races, lifetimes, data, launch limits, capture, advice, known defects.

`check_workflow` runs all checks on a workflow; no device is needed. Each finding has a code of the catalogue, in
groups: HG1xx structure, HG2xx races and ordering, HG3xx lifetimes, HG4xx data, HG5xx launch limits, HG6xx capture,
HG7xx performance advice, HG8xx known defects of platforms.
"""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType

from ..collecting import collector_paused
from ..errors import CheckError, DeclarationError
from ..hazards import edges_cover
from ..nodes.workflow import Workflow
from ..parts import ENABLED, find
from ..target import Target
from .catalogue import CATALOGUE, Entry
from .data import check_copies, check_standing, check_unwritten
from .levels import CheckedLevel, levels_of
from .limits import check_limits
from .report import Diagnostic, Report
from .structure import check_cycle

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
    bounds = find("bounds")
    check_kernels = None if bounds is None else bounds.checker(errors_only=errors_only)
    several = len(workflow.devices_with(device)) > 1
    of_others = [entry for part in ENABLED.values() for entry in part.checks.values()] if ENABLED else []
    scopes = levels_of(workflow)
    for scope in scopes:
        check_copies(scope)
        check_standing(scope)
        check_limits(scope, target)
        if check_kernels is not None:
            check_kernels(scope)
        if several:
            from .devices import check_devices

            check_devices(scope, device)
        ordered = not check_cycle(scope)  # as many checks need it
        if ordered:
            _check_order(scope)
        if not errors_only:
            _check_rest(scope, target, bounds, ordered=ordered)
        for entry in of_others if ordered else ():
            if entry.check is not None and (entry.severity == "error" or not errors_only):
                entry.check(scope)
    name = None if target is None else target.name
    return Report(workflow.name, name, tuple(scopes[0].diagnostics), tuple(scopes[0].ignored))


def _check_order(scope: CheckedLevel) -> None:
    """Report races, and uses of allocated memory that are not between alloc and free."""
    workflow = scope.workflow
    inferred = workflow.infer and not scope.aliased and workflow.order == tuple(range(len(workflow.nodes)))
    if not (inferred and edges_cover(workflow.nodes, workflow.predecessors)):
        from .races import check_races

        check_races(scope)
    if scope.allocates:
        from .lifetimes import check_lifetimes

        check_lifetimes(scope)


def _check_rest(scope: CheckedLevel, target: Target | None, bounds: ModuleType | None, *, ordered: bool) -> None:
    """Report what is no error; some checks need a topological order."""
    from .advice import check_redundant_edges, check_reuse, check_shape
    from .capture import check_capture
    from .structure import check_ignores, check_use

    check_ignores(scope)
    check_use(scope)
    check_capture(scope, target)
    if not ordered:
        return
    if bounds is not None:
        bounds.check_hidden(scope)
    if scope.having("recorded", "awaited"):
        from .events import check_events

        check_events(scope)
    if scope.allocates:
        from .lifetimes import check_contents

        check_contents(scope)
    check_unwritten(scope)
    check_redundant_edges(scope)
    check_reuse(scope)
    check_shape(scope, target)
    if target is not None:
        from .platform import check_defects

        check_defects(scope, target)
