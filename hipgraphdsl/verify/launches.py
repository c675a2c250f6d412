"""Launches by each backend, compared with the serial run; a difference is traced to the first node that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import AllocArray
from ..errors import HipGraphError
from ..executable import Executable
from ..runtimes.base import Runtime
from ..workflow import Workflow
from .laboratory import WAIT_S, Cell, Found, State, cell_of, describe
from .report import Kind


def try_backend(
    workflow: Workflow,
    prover: Runtime,
    runtime: Runtime,
    backend: str,
    device: int,
    values: State,
    reference: State,
    repeats: int,
    orders: int,
    seed: int,
    params: dict[str, Any],
    found: Found,
) -> None:
    """Launch by one backend, again and again and by seeded schedules, and compare with the reference of `prover`."""
    named = f"backend {backend!r}" + (f" on {runtime.name}" if runtime is not prover else "")
    cells = _visible_cells(workflow)
    wanted = {name: data for name, data in reference.items() if name in cells}
    set_schedule: Callable[[int, int], None] | None = getattr(runtime, "set_schedule", None)
    schedules: list[tuple[str, int | None, int]] = [("", None, 0)] * repeats
    if set_schedule is not None and backend == "explicit" and not any(node.waits for node in workflow.nodes):
        schedules += [("one worker in random order", seed + k, 1) for k in range(orders)]
        schedules += [("random delays", seed + k, 2) for k in range(min(orders, repeats))]
    try:
        executable = Executable.build(workflow, runtime, backend, lanes=None, join=False, device=device, pack=True)
    except HipGraphError as error:
        found.left_out.append(f"{named}: {error}")
        return
    try:
        for how, chosen, mode in schedules:
            if mode and set_schedule is not None and chosen is not None:
                set_schedule(chosen, mode)
            try:
                ours = _launch(executable, cells, values, params)
            except HipGraphError as error:
                kind: Kind = "schedule" if mode else "failure"
                found.add(kind, f"{named} fails: {error}", backend=backend, seed=chosen)
                return
            names = found.differing(cells, ours, wanted)
            if not names:
                continue
            said = describe(cells[names[0]], ours[names[0]], wanted[names[0]])
            node = _first_wrong_node(workflow, prover, runtime, backend, device, values, params, (chosen, mode), found)
            nodes = (node,) if node else ()
            where = f"; the first node whose output differs is {node!r}" if node else ""
            if mode:
                found.add(
                    "schedule",
                    f"with {how} (seed {chosen}) {said}{where}",
                    nodes,
                    tuple(names),
                    backend=backend,
                    seed=chosen,
                    hint=f"replay: runtime.set_schedule({chosen}, {mode})",
                )
            else:
                hint = ""
                if runtime is not prover and any(cells[name].dtype.kind in "fc" for name in names):
                    hint = "devices round floating-point functions differently; say how far results may differ: tolerance=1e-6"
                found.add("backend", f"{named}: {said}{where}", nodes, tuple(names), backend=backend, hint=hint)
            break
    finally:
        if set_schedule is not None:
            set_schedule(0, 0)
        executable.close()
    seeded = len(schedules) - repeats
    found.done.append(
        f"{named} {repeats} time{'s' * (repeats != 1)}" + (f" and {seeded} seeded schedule{'s' * (seeded != 1)}" * (seeded > 0))
    )


def _visible_cells(workflow: Workflow) -> dict[str, Cell]:
    arrays = (found for level in workflow.levels() for found in level.own_arrays())
    return {name: cell_of(name, array, 0) for name, array in arrays if not isinstance(array, AllocArray)}


def _launch(executable: Executable, cells: Mapping[str, Cell], values: State, params: dict[str, Any]) -> State:
    for name, cell in cells.items():
        if cell.writeable:
            executable.write(name, cell.values(values[name]))
    executable.launch(**params)
    executable.synchronize(timeout_s=WAIT_S)
    return {name: np.ascontiguousarray(executable.read(name)).reshape(-1).view(np.uint8) for name in cells}


def _first_wrong_node(
    workflow: Workflow,
    prover: Runtime,
    runtime: Runtime,
    backend: str,
    device: int,
    values: State,
    params: dict[str, Any],
    schedule: tuple[int | None, int],
    found: Found,
) -> str | None:
    """Bisect over the beginnings of the workflow: return the node with which results turn wrong.

    None where the fault does not show again, which a fault of timing may not.
    """
    cells = _visible_cells(workflow)
    set_schedule: Callable[[int, int], None] | None = getattr(runtime, "set_schedule", None)
    order = workflow.order

    def wrong(count: int) -> bool:
        part = _beginning(workflow, order[:count])
        used = {name: value for name, value in params.items() if "/" in name or name in part.parameters}
        results = []
        for how, where in (("serial", prover), (backend, runtime)):
            if set_schedule is not None:
                set_schedule(schedule[0] or 0, schedule[1] if how == backend else 0)
            place = device if where is runtime else 0
            executable = Executable.build(part, where, how, lanes=None, join=False, device=place)
            try:
                results.append([_launch(executable, cells, values, used) for _ in range(1 if how == "serial" else 3)])
            finally:
                executable.close()
        ((reference,), ours) = results
        return any(found.differing(cells, state, reference) for state in ours)

    try:
        good, bad = 0, len(order)
        if not wrong(bad):
            return None
        while bad - good > 1:
            middle = (good + bad) // 2
            if wrong(middle):
                bad = middle
            else:
                good = middle
    except HipGraphError:
        return None
    return workflow.nodes[order[bad - 1]].name


def _beginning(workflow: Workflow, kept: Sequence[int]) -> Workflow:
    """Return the workflow with some of its nodes only; they hold all of their predecessors."""
    chosen = sorted(kept)
    at = {i: k for k, i in enumerate(chosen)}
    return Workflow(
        workflow.name,
        workflow.arrays,
        workflow.parameters,
        tuple(workflow.nodes[i] for i in chosen),
        tuple(tuple(at[p] for p in workflow.predecessors[i]) for i in chosen),
        tuple(workflow.reasons[i] for i in chosen),
        workflow.infer,
    )
