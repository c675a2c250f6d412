"""Proof by running: `verify` finds wrong results.

A laboratory holds one Executable of the serial backend and runs its steps one at a time, in any order, with all memory
read and set between them. It gives the serial reference, tries other topological orders and names the pair of nodes
whose order matters, and runs each node alone to compare what it touches with what it declares, and with where its
arrays begin and end. Then the graph is compiled by each backend, launched again and again, and compared with the
reference byte for byte. All of this is done on the CPU; the backends of another runtime are compared with the CPU's reference.
Before all that, the kernels run once under the CPU runtime's sanitizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .report import Finding, VerifyReport

if TYPE_CHECKING:
    from ..runtimes.base import Runtime
    from ..update import HasWorkflow
    from .laboratory import Tolerance

__all__ = ["Finding", "VerifyReport", "verify"]


def verify(
    graph: HasWorkflow,
    runtime: str | Runtime = "auto",
    backends: Sequence[str] = ("explicit", "capture", "streams"),
    *,
    orders: int = 20,
    repeats: int = 5,
    tolerance: Tolerance = None,
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    audit: bool = True,
    sanitize: bool = True,
    device: int = 0,
    progress: bool = False,
) -> VerifyReport:
    """Run a workflow in many ways on the CPU, and by every backend of a runtime, and report where results differ.

    Host callbacks are called many times. External arrays are used in place and hold their values of before at the end.

    Parameters
    ----------
    graph : Graph or Workflow
    runtime : str or Runtime
        Its backends are compared too; by default those of the runtime that `compile` takes. What the CPU cannot run at all is
        proved on this runtime instead, and `left_out` says why.
    backends : sequence of str
        Compared with the serial run on the CPU; ``"explicit"`` also with batched launches and without empty nodes, where there
        are some and the plan leaves them out, and on AMD ``"capture"`` and ``"streams"`` with any-order launches.
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
    sanitize : bool
        First run once on the CPU with every access of kernels judged, as `Graph.compile` says; it takes Linux. A node that is
        stopped is a finding, up to 20; those that depend on it are left out of this run. Nothing else is run where a kernel
        accesses memory out of bounds or divides by zero.
    device : int
        Of `runtime`.
    progress : bool
        Show what is being run, with the time since the start, on the terminal or in a notebook that has ipywidgets.

    Raises
    ------
    DeclarationError
        If there is no such runtime or backend.
    CheckError
        If the workflow cannot be run at all: it has a cycle, or breaks a limit of the device.
    HipGraphError
        If the serial run itself fails.
    """
    from .proof import Proof  # what runs workflows is imported where one is run

    proof = Proof(graph, runtime, backends, device, params, tolerance)
    return proof.report(orders, repeats, seed, audit=audit, sanitize=sanitize, progress=progress)
