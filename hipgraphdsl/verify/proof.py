"""What `verify` does, step after step, with the results of each in `Found`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from ..arrays import ExternalArray
from ..backends import backend_named
from ..backends.callbacks import memory_view
from ..checks import OF_GRAPHS, check_workflow
from ..errors import CheckError, DeclarationError, HipGraphError
from ..progress import progress_bar
from ..runtimes import opened_runtime
from ..runtimes.base import Runtime
from ..update import HasWorkflow
from ..workflow import Workflow
from .audit import audit_accesses, unstable_steps
from .laboratory import Found, Laboratory, State, Tolerance
from .launches import Launches
from .orders import try_fresh_memory, try_orders
from .report import VerifyReport
from .sanitized import try_sanitizer


def prove(
    graph: HasWorkflow,
    runtime: str | Runtime,
    backends: Sequence[str],
    *,
    orders: int,
    repeats: int,
    tolerance: Tolerance,
    params: Mapping[str, Any] | None,
    seed: int,
    audit: bool,
    sanitize: bool,
    device: int,
    progress: bool,
) -> VerifyReport:
    """Run a workflow in many ways, and report where results differ; the parameters are those of `verify`."""
    started = time.perf_counter()
    workflow, backends = _asked(graph, backends)
    opened = opened_runtime(runtime, device)
    _require_runs(workflow, opened, device)
    given = {**_copied(workflow), **(params or {})}
    found = Found(tolerance)
    with progress_bar("verify", progress) as advance, _outside_memory(workflow), opened.using_device(device):
        if sanitize and not _safe(workflow, opened, device, given, found, advance):
            return _report(workflow, [opened], found, started)
        advance("serial run")
        laboratory, reference, prover = _proving(workflow, opened, device, given, found)
        where = laboratory.executable.device
        found.unstable = cache(lambda: _unstable(workflow, prover, where, given))
        values = _prove(laboratory, reference, orders, seed, audit, found, advance)
        backends = _comparable(backends, found)
        launches = Launches(workflow, prover, values, reference, given, repeats, orders, seed, found)
        contestants = [(prover, where)] + [(opened, device)] * (opened is not prover)
        for contestant, place in contestants:
            for backend in backends:
                advance(f"backend {backend} on {contestant.name}")
                launches.try_backend(contestant, backend, place)
    return _report(workflow, [contestant for contestant, _ in contestants], found, started)


def _asked(graph: HasWorkflow, backends: Sequence[str]) -> tuple[Workflow, Sequence[str]]:
    if not hasattr(graph, "workflow"):
        raise DeclarationError(f"verify takes a Graph (got {type(graph).__name__})")
    backends = (backends,) if isinstance(backends, str) else backends
    for backend in backends:
        backend_named(backend)
    return graph.workflow(), backends


def _report(workflow: Workflow, ran: Sequence[Runtime], found: Found, started: float) -> VerifyReport:
    seconds = time.perf_counter() - started
    targets = " and ".join(dict.fromkeys(runtime.target.name for runtime in ran))
    return VerifyReport(workflow.name, targets, tuple(found.findings), tuple(found.done), tuple(found.left_out), seconds)


def _prove(
    laboratory: Laboratory,
    reference: State,
    orders: int,
    seed: int,
    audit: bool,
    found: Found,
    advance: Callable[[str], None],
) -> State:
    """Try other fresh memory, other orders and each node alone, and close the laboratory; return the values at the start."""
    try:
        try_fresh_memory(laboratory, reference, found)
        try_orders(laboratory, reference, orders, seed, found, advance)
        if audit:
            audit_accesses(laboratory, found, advance)
        return laboratory.visible(laboratory.start)
    finally:
        laboratory.close()


def _comparable(backends: Sequence[str], found: Found) -> Sequence[str]:
    """Return the backends that can be compared: none where a node reaches beyond its arrays."""
    beyond = next((finding for finding in found.findings if finding.kind == "out of bounds"), None)
    if beyond is None or not backends:
        return backends
    found.left_out.append(f"backends: {beyond.nodes[0]!r} goes beyond its arrays, where other memory may lie then")
    return ()


def _safe(
    workflow: Workflow, opened: Runtime, device: int, params: dict[str, Any], found: Found, advance: Callable[[str], None]
) -> bool:
    """Run under the sanitizer, and return whether kernels may run unwatched."""
    advance("sanitizer")
    runtime, place = opened, device
    if not opened.target.on_host:
        try:
            runtime, place = opened_runtime("cpu"), 0
            _require_runs(workflow, runtime, place)
        except HipGraphError:
            return True  # the proof says why
    with _outside_memory(workflow):
        return try_sanitizer(workflow, runtime, place, params, found)


def _require_runs(workflow: Workflow, runtime: Runtime, device: int) -> None:
    """Refuse a workflow that cannot be run at all: it has a cycle, or breaks a limit of the device."""
    report = check_workflow(workflow, runtime.target, device)
    if any(d.code == "HG101" or (d.code.startswith("HG5") and d.code not in OF_GRAPHS) for d in report.errors):
        raise CheckError(report)


def _proving(
    workflow: Workflow, opened: Runtime, device: int, params: dict[str, Any], found: Found
) -> tuple[Laboratory, State, Runtime]:
    """Return a laboratory, its reference and its runtime: the CPU, or the requested one where the CPU cannot run the workflow."""
    if not opened.target.on_host:
        try:
            cpu = opened_runtime("cpu")
            _require_runs(workflow, cpu, 0)
            return (*_laboratory(workflow, cpu, 0, params), cpu)
        except HipGraphError as error:
            found.left_out.append(f"the proof on the CPU, so that it was done on {opened.name}: {error}")
    return (*_laboratory(workflow, opened, device, params), opened)


def _laboratory(workflow: Workflow, runtime: Runtime, device: int, params: dict[str, Any]) -> tuple[Laboratory, State]:
    laboratory = Laboratory(workflow, runtime, device)
    try:
        return laboratory, laboratory.reference(params)
    except BaseException:
        laboratory.close()
        raise


def _unstable(workflow: Workflow, runtime: Runtime, device: int, params: dict[str, Any]) -> Mapping[str, Set[str]]:
    """Return the steps that write other values each time, in a laboratory of its own; nothing where that fails."""
    with suppress(HipGraphError):
        laboratory, _ = _laboratory(workflow, runtime, device, params)
        try:
            return unstable_steps(laboratory)
        finally:
            laboratory.close()
    return {}


def _copied(workflow: Workflow) -> dict[str, Any]:
    """Return the defaults of parameters that copy values: each launch begins with them, whatever nodes have written there."""
    parameters = (found for level in workflow.levels() for found in level.own_parameters())
    return {name: parameter.default for name, parameter in parameters if parameter.copy and parameter.default is not None}


@contextmanager
def _outside_memory(workflow: Workflow) -> Iterator[None]:
    """Give host memory that is not ours its values back."""
    kept: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for array in (array for document in workflow.documents for array in document.arrays.values()):
        if isinstance(array, ExternalArray) and array.location == "host" and array.pointer and array.writeable:
            memory = memory_view(array.pointer, array.nbytes, (array.nbytes,), np.dtype(np.uint8))
            kept.append((memory, memory.copy()))
    try:
        yield
    finally:
        for memory, values in kept:
            memory[...] = values
