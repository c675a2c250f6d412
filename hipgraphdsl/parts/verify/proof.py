"""The stages of `verify`, whose results are collected in `Found`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from ...arrays import ExternalArray, as_dict, as_int, int_from
from ...backends import backend_named
from ...checks import OF_GRAPHS, check_workflow
from ...errors import CheckError, DeclarationError, HipGraphError
from ...kernels import Symbol
from ...nodes.workflow import Workflow
from ...progress import progress_bar
from ...runtimes import opened_runtime
from ...runtimes.base import Runtime
from ...update import HasWorkflow
from .audit import audit_accesses, unstable_steps
from .laboratory import Found, Laboratory, Tolerance, copied, given_memory, overwrite
from .launches import Trials
from .orders import try_fresh_memory, try_orders
from .report import VerifyReport
from .sanitized import try_sanitizer


class Proof:
    """One call of `verify`: its inputs and its findings."""

    def __init__(
        self,
        graph: HasWorkflow,
        runtime: str | Runtime,
        backends: Sequence[str],
        device: int,
        params: Mapping[str, Any] | None,
        tolerance: Tolerance,
    ) -> None:
        self.started = time.perf_counter()
        if not callable(getattr(graph, "workflow", None)):
            raise DeclarationError(f"verify takes a Graph or a Workflow (got {type(graph).__name__})")
        one = isinstance(backends, str) or not isinstance(backends, Iterable)
        self.backends: tuple[Any, ...] = (backends,) if one else tuple(backends)
        for backend in self.backends:
            backend_named(backend)
        self.workflow = graph.workflow()
        self.runtime = opened_runtime(runtime, device)
        self.device = device
        self.require_runs(self.runtime, device)
        given = as_dict(params, "verify: params")
        self.memory = _given_memory(self.workflow, given)
        """Memory that array parameters use in place, by launch keyword."""
        self.params = {**_copied(self.workflow), **given, **self.memory}
        _require_values(self.workflow, self.params)
        _require_tolerance(tolerance, self.workflow)
        self.found = Found(tolerance)

    def report(self, orders: int, repeats: int, seed: int, *, audit: bool, sanitize: bool, progress: bool) -> VerifyReport:
        """Run the workflow in many ways, and report where results differ; the parameters are those of `verify`."""
        found, ran = self.found, [self.runtime]
        orders = int_from(0, orders, "verify: orders is how many orders are tried, an int from 0")
        repeats = int_from(0, repeats, "verify: repeats is how many launches, an int from 0")
        if (first := as_int(seed)) is None:
            raise DeclarationError(f"verify: seed is the first seed of orders and schedules, an int (got {seed!r})")
        with (
            progress_bar("verify", progress) as found.advance,
            self.runtime.using_device(self.device),
            self.restored(),
        ):
            if not sanitize or self.is_safe():
                ran = self.run(orders, repeats, first, audit)
        found.unstable = dict  # what `run` set refers to this proof, and so to the memory of the caller
        seconds = time.perf_counter() - self.started
        targets = " and ".join(dict.fromkeys(runtime.target.name for runtime in ran))
        return VerifyReport(self.workflow.name, targets, tuple(found.findings), tuple(found.done), tuple(found.left_out), seconds)

    def run(self, orders: int, repeats: int, seed: int, audit: bool) -> list[Runtime]:
        """Try other fresh memory, other orders, each node alone, and each backend; return the runtimes that it ran on."""
        found = self.found
        found.advance("serial run")
        with closing(self.laboratory()) as laboratory:
            prover, where = laboratory.runtime, laboratory.executable.device
            found.unstable = cache(lambda: self.unstable(prover, where))
            try_fresh_memory(laboratory, found)
            try_orders(laboratory, orders, seed, found)
            if audit:
                audit_accesses(laboratory, found)
        trials = Trials(laboratory, self.params, repeats, orders, seed, found)
        contestants = [(prover, where)] + [(self.runtime, self.device)] * (self.runtime is not prover)
        backends = self.comparable()
        for contestant, place in contestants:
            for backend in backends:
                found.advance(f"backend {backend} on {contestant.name}")
                trials.try_backend(contestant, backend, place)
        if self.backends and not trials.compared and not found.findings:
            asked = ", ".join(map(repr, self.backends))
            found.add("failure", f"nothing was proved: none of the backends {asked} could be launched; left_out says why")
        return [contestant for contestant, _ in contestants]

    def comparable(self) -> Sequence[str]:
        """Return the backends that can be compared: none if a node accesses memory outside its arrays."""
        beyond = next((finding for finding in self.found.findings if finding.kind == "out of bounds"), None)
        if beyond is None or not self.backends:
            return self.backends
        self.found.left_out.append(f"backends: {beyond.nodes[0]!r} reaches beyond its arrays, where other data may lie")
        return ()

    def is_safe(self) -> bool:
        """Run under the sanitizer, and return whether kernels may also run without it."""
        self.found.advance("sanitizer")
        runtime, place = self.runtime, self.device
        if not runtime.target.on_host:
            try:
                runtime, place = self.cpu(), 0
            except HipGraphError:
                return True  # `laboratory` reports why
        with self.restored():
            return try_sanitizer(self.workflow, runtime, place, self.params, self.found)

    def outside(self) -> list[ExternalArray]:
        """Return the memory that the graph uses and the caller owns: of array parameters and of external arrays."""
        arrays = (array for document in self.workflow.documents for array in document.arrays.values())
        external = [array for array in arrays if isinstance(array, ExternalArray) and array.pointer]
        return [*self.memory.values(), *external]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the values of writeable memory outside of the graph at the end of the block."""
        outside = [array for array in self.outside() if array.writeable]
        kept = [(array, copied(self.runtime, array.pointer, array.nbytes, on_host=array.on_host)) for array in outside]
        try:
            yield
        finally:
            for array, values in kept:
                overwrite(self.runtime, array.pointer, values, on_host=array.on_host)

    def require_runs(self, runtime: Runtime, device: int) -> None:
        """Refuse a workflow that cannot be run at all: it has a cycle, or breaks a limit of the device."""
        report = check_workflow(self.workflow, runtime.target, device)
        if any(d.code == "HG101" or (d.code.startswith("HG5") and d.code not in OF_GRAPHS) for d in report.errors):
            raise CheckError(report)

    def cpu(self) -> Runtime:
        """Return the CPU's runtime; raise if it cannot run the workflow."""
        for array in self.outside():
            if not array.on_host:
                why = f"the memory of {array.name!r} is a device's, which the CPU cannot reach"
                raise DeclarationError(why, array=array.name)
        cpu = opened_runtime("cpu")
        self.require_runs(cpu, 0)
        return cpu

    def laboratory(self) -> Laboratory:
        """Return a laboratory on the CPU, or on the requested runtime where the CPU cannot run the workflow."""
        if not self.runtime.target.on_host:
            try:
                return Laboratory(self.workflow, self.cpu(), 0, self.params)
            except HipGraphError as error:
                self.found.left_out.append(f"the proof on the CPU, so that it was done on {self.runtime.name}: {error}")
        return Laboratory(self.workflow, self.runtime, self.device, self.params)

    def unstable(self, runtime: Runtime, device: int) -> Mapping[str, Set[str]]:
        """Return the nondeterministic steps, found in a separate laboratory; empty if that fails."""
        with suppress(HipGraphError), closing(Laboratory(self.workflow, runtime, device, self.params)) as laboratory:
            return unstable_steps(laboratory)
        return {}


def _require_tolerance(tolerance: Any, workflow: Workflow) -> None:
    """Refuse invalid tolerances, and tolerances of unknown arrays."""
    for value in tolerance.values() if isinstance(tolerance, Mapping) else () if tolerance is None else (tolerance,):
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
            raise DeclarationError(f"verify: tolerance is a number from 0, or a dict of them by array (got {tolerance!r})")
    if isinstance(tolerance, Mapping):
        arrays = [name for level in workflow.levels() for name, _ in (*level.own_arrays(), *level.own_parameters())]
        roots = {access.view.root for _, node in workflow.walk() for access in node.accesses}
        variables = {f"{root.module.name}:{root.name}" for root in roots if isinstance(root, Symbol)}
        for name in tolerance:
            if name not in arrays and str(name).partition(" on device ")[0] not in variables:
                shown = ", ".join(map(repr, arrays[:20])) or "none"
                raise DeclarationError(
                    f"verify: tolerance has {name!r}, and graph {workflow.name!r} has no such array; its arrays are {shown}"
                )


def _copied(workflow: Workflow) -> dict[str, Any]:
    """Return the defaults of parameters that copy values, so that each launch starts with them, whatever nodes have written."""
    parameters = (found for level in workflow.levels() for found in level.own_parameters())
    return {name: parameter.default for name, parameter in parameters if parameter.copy and parameter.default is not None}


def _require_values(workflow: Workflow, params: Mapping[str, Any]) -> None:
    """Refuse a workflow with parameters that have neither a default nor a given value."""
    parameters = (found for level in workflow.levels() for found in level.own_parameters())
    missing = [name for name, parameter in parameters if parameter.default is None and name not in params]
    if missing:
        names, values = ", ".join(map(repr, missing)), ", ".join(f"{name!r}: ..." for name in missing)
        raise DeclarationError(
            f"verify: graph {workflow.name!r} has parameters without a default, {names}; give params={{{values}}}",
            array=missing[0],
        )


def _given_memory(workflow: Workflow, params: Mapping[str, Any]) -> dict[str, ExternalArray]:
    """Return the memory that array parameters use in place, by launch keyword."""
    parameters = (found for level in workflow.levels() for found in level.own_parameters())
    return {name: memory for name, parameter in parameters if (memory := given_memory(name, parameter, params)) is not None}
