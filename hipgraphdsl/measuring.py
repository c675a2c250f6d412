"""``compile(lanes="measure")``: try a handful of lane counts on the device and keep the fastest.

Each trial is a separate Executable with its own memory, opened, timed and closed before the next one; host callbacks are
disabled in it, and external memory is restored afterwards.
"""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import replace
from typing import Any, Final

import numpy as np

from .arrays import ExternalArray
from .executable import Executable
from .executable.memory import Block
from .executable.state import plan_for
from .nodes.workflow import Workflow
from .plan.options import Lanes, PlanOptions
from .plan.steps import Plan
from .runtimes.base import Runtime

_log = logging.getLogger("hipgraphdsl")

_CANDIDATES: Final[tuple[Lanes, ...]] = ("auto", 1, None, 8, 32)
_WARM_LAUNCHES: Final = 3
_LAUNCHES: Final = 50
_BUDGET_S: Final = 0.2  # seconds that the launches of one trial may take
_MARGIN: Final = 0.98  # a gain of less than 2 % over "auto" is noise


def with_fastest_lanes(
    workflow: Workflow, runtime: Runtime, backend: str, options: PlanOptions, *, device: int = 0
) -> tuple[PlanOptions, str]:
    """Return the options with the lanes whose launches finish first, and a sentence that says what was tried.

    Workflows whose launches have effects outside their arrays (captured code, semaphores, waits for memory), branch on data or
    need a parameter that has no default are not tried: they get ``"auto"``, and the sentence says why.
    """
    why = _untriable(workflow, backend)
    if why:
        _log.warning("graph %r: lanes='measure' is lanes='auto', because %s", workflow.name, why)
        return replace(options, lanes="auto"), f'lanes="measure" became "auto", because {why}.'
    plans: dict[Lanes, Plan] = {}
    known: set[Any] = set()
    for lanes in _CANDIDATES:
        plan, _, _ = plan_for(workflow, runtime.target, backend, device, "", replace(options, lanes=lanes))
        shape = tuple((step.deps, step.lane if backend != "explicit" else 0, step.batch) for step in plan.steps)
        if shape not in known:
            known.add(shape)
            plans[lanes] = plan
    if len(plans) == 1:
        return replace(options, lanes="auto"), 'lanes="measure" had nothing to choose from: every lane count gives the same plan.'
    times_us = {lanes: _trial_us(workflow, runtime, backend, replace(options, lanes=lanes), device) for lanes in plans}
    best = min(times_us, key=lambda lanes: times_us[lanes])
    if times_us[best] > _MARGIN * times_us["auto"]:
        best = "auto"
    tried = ", ".join(f"{_shown(lanes)} ({len(plans[lanes].lanes)} lanes) {us:.4g} us" for lanes, us in times_us.items())
    return replace(options, lanes=best), f'lanes="measure" tried {tried}, and kept {_shown(best)}.'


def _shown(lanes: Lanes) -> str:
    return "as declared" if lanes is None else str(lanes)


def _untriable(workflow: Workflow, backend: str) -> str:
    """Return why launches of a workflow cannot be tried, or an empty string."""
    if backend == "serial":
        return "backend 'serial' has no lanes"
    for level, node in workflow.walk():
        name = level.name(node)
        if node.untried:
            return f"node {name!r} ({node.kind}) {node.untried}"
        if node.waits:
            return f"node {name!r} waits for a value in memory"
        if node.reach == "host" and level.prefix and backend == "explicit":
            return f"node {name!r} is a host callback inside a child graph, which cannot be left out of a trial"
    for level in workflow.levels():
        for name, parameter in level.own_parameters():
            if parameter.default is None:
                return f"parameter {name!r} has no default"
    return ""


def _trial_us(workflow: Workflow, runtime: Runtime, backend: str, options: PlanOptions, device: int) -> float:
    """Return the median time of a launch and its wait, in microseconds; external memory is restored."""
    build = Executable.build(workflow, runtime, backend, options=options, device=device)
    with build as executable, runtime.using_device(executable.device):
        saved = _foreign_memory(executable)
        try:
            for level, node in workflow.walk():
                if node.reach == "host" and not (level.prefix and backend == "explicit"):
                    executable.disable(level.name(node))
            clock = time.perf_counter
            started = clock()
            for _ in range(_WARM_LAUNCHES):
                executable.run()
            each_s = (clock() - started) / _WARM_LAUNCHES
            times = []
            for _ in range(max(_WARM_LAUNCHES, min(_LAUNCHES, int(_BUDGET_S / max(each_s, 1e-9))))):
                started = clock()
                executable.run()
                times.append(clock() - started)
        finally:
            executable.synchronize()
            for block, values in saved:
                executable._own.memory.write(block, values)
    return statistics.median(times) * 1e6


def _foreign_memory(executable: Executable) -> list[tuple[Block, np.ndarray[Any, Any]]]:
    """Return the memory that an Executable may write and does not own, with its values."""
    memory, parameters = executable._own.memory, executable._own.parameters
    foreign = (b for b in (*memory.arrays.values(), *parameters.kept_blocks()) if isinstance(b.array, ExternalArray))
    return [(block, memory.read(block)) for block in foreign if block.array.writeable and block.array.nbytes]
