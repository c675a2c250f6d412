"""Proof by running: `verify` finds wrong results.

A laboratory holds one Executable of the serial backend and runs its steps one at a time, in any order, with all memory
read and set between them. It gives the serial reference, tries other topological orders and names the pair of nodes
whose order matters, and runs each node alone to compare what it touches with what it declares, and with where its
arrays begin and end. Then the graph is compiled by each backend, launched again and again, and compared with the
reference byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Optional, Protocol, Union

import numpy as np

from ..arrays import ExternalArray
from ..backends import backend_named
from ..backends.callbacks import memory_view
from ..checks import OF_GRAPHS, check_workflow
from ..errors import CheckError, DeclarationError
from ..nodes import held
from ..progress import progress_bar
from ..runtimes import opened_runtime
from ..runtimes.base import Runtime
from ..workflow import Workflow
from .audit import audit_accesses
from .laboratory import Found, Laboratory, Tolerance
from .launches import try_backend
from .orders import topological_order, try_fresh_memory, try_orders
from .report import Finding, VerifyReport

__all__ = ["Finding", "Laboratory", "VerifyReport", "topological_order", "verify"]


class HasWorkflow(Protocol):
    """A Graph or a Workflow."""

    def workflow(self) -> Workflow: ...


def verify(
    graph: HasWorkflow,
    runtime: Union[str, Runtime] = "cpu",
    backends: Sequence[str] = ("explicit", "capture", "streams"),
    *,
    orders: int = 20,
    repeats: int = 5,
    tolerance: Tolerance = None,
    params: Optional[Mapping[str, Any]] = None,
    seed: int = 0,
    audit: bool = True,
    device: int = 0,
    progress: bool = False,
) -> VerifyReport:
    """Run a workflow in many ways and report where results differ, with the node at fault.

    Host callbacks are called many times. External arrays are used in place and hold their values of before at the end.

    Parameters
    ----------
    graph : Graph or Workflow
    runtime : str or Runtime
    backends : sequence of str
        Compared with the serial run.
    orders : int
        Topological orders that are tried one node at a time, and, where the runtime can, seeded schedules.
    repeats : int
        Launches of each backend.
    tolerance : float or mapping of str to float, optional
        Largest difference of two elements, relative to the larger one or absolute below 1; for all arrays, or by name.
        Without it every byte counts.
    params : mapping, optional
        Values of launch parameters.
    seed : int
        First of the seeds of orders and schedules.
    audit : bool
        Run each node alone, compare what it touches with what it declares, and find what it does beyond arrays.
    device : int
    progress : bool
        Show what is being run, on the terminal or in the notebook.

    Raises
    ------
    DeclarationError
        If there is no such runtime or backend.
    CheckError
        If the workflow cannot be run at all: it has a cycle, or breaks a limit of the device.
    HipGraphError
        If the serial run itself fails.
    """
    started = time.perf_counter()
    if not hasattr(graph, "workflow"):
        raise DeclarationError(f"verify takes a Graph (got {type(graph).__name__})")
    backends = (backends,) if isinstance(backends, str) else backends
    for backend in backends:
        backend_named(backend)
    workflow = graph.workflow()
    opened = opened_runtime(runtime, device)
    report = check_workflow(workflow, opened.target, device)
    if any(d.code == "HG101" or (d.code.startswith("HG5") and d.code not in OF_GRAPHS) for d in report.errors):
        raise CheckError(report)
    found = Found(tolerance)
    with progress_bar("verify", progress) as advance, _outside_memory(workflow):
        laboratory = Laboratory(workflow, opened, device)
        try:
            advance("serial run")
            reference = laboratory.reference(dict(params or {}))
            try_fresh_memory(laboratory, reference, found)
            try_orders(laboratory, reference, orders, seed, found, advance)
            if audit:
                audit_accesses(laboratory, found, advance)
            values = laboratory.visible(laboratory.start)
        finally:
            laboratory.close()
        beyond = next((finding for finding in found.findings if finding.kind == "out of bounds"), None)
        if beyond is not None and backends:
            found.left_out.append(f"backends: {beyond.nodes[0]!r} goes beyond its arrays, where other memory may lie then")
            backends = ()
        for backend in backends:
            advance(f"backend {backend}")
            try_backend(
                workflow, opened, backend, device, values, reference, repeats, orders, seed, dict(params or {}), found
            )
    seconds = time.perf_counter() - started
    return VerifyReport(
        workflow.name, opened.target.name, tuple(found.findings), tuple(found.done), tuple(found.left_out), seconds
    )


@contextmanager
def _outside_memory(workflow: Workflow) -> Iterator[None]:
    """Give host memory that is not ours its values back."""
    kept: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    waiting = [workflow]
    for inner in waiting:
        for array in inner.arrays.values():
            if isinstance(array, ExternalArray) and array.location == "host" and array.pointer and array.writeable:
                memory = memory_view(array.pointer, array.nbytes, (array.nbytes,), np.dtype(np.uint8))
                kept.append((memory, memory.copy()))
        waiting += [document for node in inner.nodes for _, document, _ in held(node)]
    try:
        yield
    finally:
        for memory, values in kept:
            memory[...] = values
