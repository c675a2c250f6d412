"""Dynamic verification: `verify` runs a workflow and reports wrong results.

First, the kernels run once under the CPU runtime's sanitizer. A laboratory then holds one Executable of the serial backend
and runs its steps one at a time, in any order, and reads and sets all memory between them. It provides the serial reference,
tries other topological orders and names the pair of nodes whose order matters, and runs each node alone to compare its
accesses with its declarations and with the bounds of its arrays. Finally each backend compiles the graph and launches it
repeatedly, and the results are compared with the reference byte for byte. All of this is done on the CPU; the backends of
another runtime are compared with the CPU's reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...runtimes.base import Runtime
    from ...update import HasWorkflow
    from .laboratory import Tolerance
    from .report import VerifyReport

__all__ = ["verify"]


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

    Host callbacks are called many times. External arrays, and memory that array parameters are given, are used in place; their
    values are restored at the end.

    Parameters
    ----------
    graph : Graph or Workflow
    runtime : str or Runtime
        Its backends are compared too; by default the runtime that `compile` selects. A workflow that the CPU cannot run is
        verified on this runtime instead, and `left_out` says why; so is one that uses device memory from outside.
    backends : sequence of str
        Backends to compare with the serial run on the CPU. ``"explicit"`` also runs with batched launches, and without empty
        nodes where the plan can omit them.
    orders : int
        Number of topological orders to try one node at a time, and of seeded schedules where the runtime supports them.
    repeats : int
        Number of launches of each backend.
    tolerance : float or mapping of str to float, optional
        Largest difference of two elements, relative to the larger one or absolute below 1; for all arrays, or by name.
        Without it all bytes must be equal.
    params : mapping, optional
        Values of launch parameters.
    seed : int
        First seed of the orders and schedules.
    audit : bool
        Run each node alone, compare its accesses with its declarations, and find accesses outside arrays.
    sanitize : bool
        First run once on the CPU under the sanitizer, which checks every access of kernels (see `Graph.compile`; Linux only).
        Each node that it stops is a finding, up to 20; nodes that depend on it are left out of this run. If a kernel accesses
        memory out of bounds or divides by zero, nothing else is run.
    device : int
        Device number of `runtime`.
    progress : bool
        Show the current run and the elapsed time on the terminal, or in a notebook that has ipywidgets.

    Raises
    ------
    DeclarationError
        If there is no such runtime or backend.
    CheckError
        If the workflow cannot be run at all: it has a cycle, or breaks a limit of the device.
    HipGraphError
        If the serial run itself fails.
    """
    from .proof import Proof  # deferred: the modules that run workflows are imported on first use

    proof = Proof(graph, runtime, backends, device, params, tolerance)
    return proof.report(orders, repeats, seed, audit=audit, sanitize=sanitize, progress=progress)
