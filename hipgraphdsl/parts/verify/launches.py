"""Launches by each backend, compared with the serial run; a difference is traced to the first node that shows it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ...arrays import kind_of
from ...errors import CallbackError, HipError, HipGraphError
from ...executable import Executable
from ...executable.state import Planned, plan_for
from ...nodes.workflow import Workflow
from ...plan.options import PlanOptions
from ...printed import counted
from ...runtimes.base import ERROR_NOT_SUPPORTED, Runtime
from .. import find
from .contraction import contraction_hint, without_contraction
from .laboratory import WAIT_S, Found, Laboratory, State, copied, overwrite, variables
from .recorded import compare_recorded
from .report import Kind

_OPTIONS: Final = {
    "": PlanOptions(lanes=None, join=False, batch=False),
    "batches": PlanOptions(join=False, batch=True),
    "edges for empty nodes": PlanOptions(batch=False),
}
"""Plan options by the kind of launches to test."""


class Trials:
    """Launches of a workflow by each backend, compared with the serial run of its laboratory."""

    def __init__(
        self, laboratory: Laboratory, params: dict[str, Any], repeats: int, orders: int, seed: int, found: Found
    ) -> None:
        self.workflow, self.prover = laboratory.workflow, laboratory.runtime
        self.cells = {name: cell for name, cell in laboratory.cells.items() if cell.visible or cell.given}
        self.values, self.reference = laboratory.start, {name: laboratory.reference[name] for name in self.cells}
        self.params = params
        self.repeats, self.orders, self.seed = repeats, orders, seed  # launches, seeded schedules of each kind, the first seed
        self.found = found
        self.compared = False
        """Whether a backend could be launched."""

    def try_backend(self, runtime: Runtime, backend: str, device: int) -> None:
        """Launch by one backend of a runtime, repeatedly and with seeded schedules, and compare with the reference."""
        self._try(runtime, backend, device, "")
        if backend == "explicit":
            if find("merge") is not None:
                self._try(runtime, backend, device, "batches")
            if runtime.target.bypass_edges and any(node.idle for _, node in self.workflow.walk()):
                self._try(runtime, backend, device, "edges for empty nodes")

    def _try(self, runtime: Runtime, backend: str, device: int, extra: str) -> None:
        """Try a backend with default options, or with an `extra` kind of launches if the plan has any."""
        added = f" with {extra}" if extra else ""
        named = f"backend {backend!r}{added}" + (f" on {runtime.name}" if runtime is not self.prover else "")
        options = _OPTIONS[extra]
        made = plan_for(self.workflow, runtime.target, backend, device, "", options)
        plan = made[0]
        if extra and not options.join and not plan.batches:
            return
        cells, wanted = self.cells, self.reference
        schedules = [("", 0, 0)] * self.repeats
        if hasattr(runtime, "set_schedule") and backend == "explicit" and not any(node.waits for _, node in self.workflow.walk()):
            schedules += [("one worker in random order", self.seed + k, 1) for k in range(self.orders)]
            schedules += [("random delays", self.seed + k, 2) for k in range(min(self.orders, self.repeats))]
        try:
            executable = self._prepared(runtime, backend, device, made)
        except HipGraphError as error:
            if isinstance(error, CallbackError) or (isinstance(error, HipError) and error.code != ERROR_NOT_SUPPORTED):
                self.found.add("failure", f"{named} fails: {error}", (error.node,) if error.node else (), backend=backend)
            else:  # the platform cannot do it
                self.found.left_out.append(f"{named}: {error}")
            return
        self.compared = True
        ran = 0
        try:
            if backend in ("explicit", "capture") and not extra:
                compare_recorded(executable, executable.prepared(**self.params).scope, named, self.found)
            for how, chosen, mode in schedules:
                ran += 1
                kind: Kind = "schedule" if mode else "backend"
                seed = chosen if mode else None
                if mode:
                    _set_schedule(runtime, chosen, mode)
                try:
                    ours = self._launch(executable, self.params)
                except HipGraphError as error:
                    self.found.add(kind if mode else "failure", f"{named} fails: {error}", backend=backend, seed=seed)
                    break
                names = self.found.differing(cells, ours, wanted)
                if not names:
                    continue
                said = self.found.described(cells[names[0]], ours[names[0]], wanted[names[0]])
                node = self._first_wrong_node(runtime, backend, device, (chosen, mode), options)
                nodes = (node,) if node else ()
                where = f"; the first node whose output differs is {node!r}" if node else ""
                message, hint = f"{named}: {said}{where}", ""
                if mode:
                    message = f"with {how} (seed {seed}){f' and {extra}' if extra else ''} {said}{where}"
                    hint = f"replay: runtime.set_schedule({seed}, {mode})"
                elif runtime is not self.prover and any(kind_of(cells[name].dtype) in "fc" for name in names):
                    hint = self._rounding(runtime, backend, device, options)
                self.found.add(kind, message, nodes, tuple(names), backend=backend, seed=seed, hint=hint)
                break
        finally:
            _set_schedule(runtime, 0, 0)
            executable.close()
        plain = min(ran, self.repeats)
        and_seeded = f" and {counted(ran - plain, 'seeded schedule')}" if ran > plain else ""
        self.found.done.append(f"{named} {counted(plain, 'time')}{and_seeded}")

    def _prepared(self, runtime: Runtime, backend: str, device: int, made: Planned) -> Executable:
        """Return an Executable that is ready to be launched: one with parameters without a default is built by `prepared`."""
        executable = Executable.build(self.workflow, runtime, backend, device=device, made=made)
        try:
            executable.prepared(**self.params)
        except BaseException:
            executable.close()
            raise
        return executable

    def _rounding(self, runtime: Runtime, backend: str, device: int, options: PlanOptions) -> str:
        """Return the advice on floats that differ from the CPU's: whether fused operations are the cause is tried."""
        with suppress(HipGraphError):
            executable = Executable.build(
                self.workflow, without_contraction(runtime), backend, options=replace(options, pack=False), device=device
            )
            with closing(executable):
                if not self.found.differing(self.cells, self._launch(executable, self.params), self.reference):
                    return contraction_hint(runtime)
        return "devices round floating-point functions differently; say how far results may differ: tolerance=1e-6"

    def _first_wrong_node(
        self, runtime: Runtime, backend: str, device: int, schedule: tuple[int, int], options: PlanOptions
    ) -> str | None:
        """Bisect over prefixes of the topological order: return the node with which results become wrong.

        None if the fault does not reproduce, as may happen with timing faults.
        """
        order = self.workflow.order

        def wrong(count: int) -> bool:
            part = _beginning(self.workflow, order[:count])
            used = {name: value for name, value in self.params.items() if "/" in name or name in part.parameters}
            results = []
            for how, where in (("serial", self.prover), (backend, runtime)):
                _set_schedule(runtime, schedule[0], schedule[1] if how == backend else 0)
                place = device if where is runtime else 0
                chosen = replace(PlanOptions() if how == "serial" else options, pack=False)
                executable = Executable.build(part, where, how, options=chosen, device=place)
                try:
                    results.append([self._launch(executable, used) for _ in range(1 if how == "serial" else 3)])
                finally:
                    executable.close()
            ((reference,), ours) = results
            return any(self.found.differing(self.cells, state, reference) for state in ours)

        try:
            if not wrong(len(order)):
                return None
            first = bisect_left(range(len(order)), x=True, lo=1, key=wrong)
        except HipGraphError:
            return None
        return self.workflow.nodes[order[first - 1]].name

    def _launch(self, executable: Executable, params: dict[str, Any]) -> State:
        runtime = executable.runtime
        for name, cell in self.cells.items():
            if cell.writeable and cell.given:
                overwrite(runtime, cell.pointer, self.values[name], on_host=cell.on_host)
            elif cell.writeable:
                executable.write(name, cell.values(self.values[name]))
        for name, (_, pointer) in variables(executable.workflow, executable._own.shared).items():
            overwrite(runtime, pointer, self.values[name], on_host=False)
        executable.launch(**params)
        executable.synchronize(timeout_s=WAIT_S)
        return {
            name: copied(runtime, cell.pointer, cell.nbytes, on_host=cell.on_host)
            if cell.given
            else np.ascontiguousarray(executable.read(name)).reshape(-1).view(np.uint8)
            for name, cell in self.cells.items()
        }


def _set_schedule(runtime: Runtime, seed: int, mode: int) -> None:
    """Choose how a runtime schedules nodes, if it supports that."""
    if hasattr(runtime, "set_schedule"):
        runtime.set_schedule(seed, mode)


def _beginning(workflow: Workflow, kept: Sequence[int]) -> Workflow:
    """Return the workflow reduced to some of its nodes, which must include all their predecessors."""
    chosen = sorted(kept)
    at = {i: k for k, i in enumerate(chosen)}
    return replace(
        workflow,
        nodes=tuple(workflow.nodes[i] for i in chosen),
        predecessors=tuple(tuple(at[p] for p in workflow.predecessors[i]) for i in chosen),
        reasons=tuple(workflow.reasons[i] for i in chosen),
        ordered=(),
    )
