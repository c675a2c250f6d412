"""Kernel nodes added to a graph by compiled code (`kernel_adder.h`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from ...arrays import Access, ArrayView, Parameter
from ...backends.operations import Launch
from ...backends.resolve import PLAIN_LAUNCH
from ...nodes.facets import KernelLaunch
from ...plan.steps import Step
from ...runtimes.base import GraphSteps
from ...runtimes.data import LAUNCH_ATTRIBUTES

_KINDS: Final = (
    *(Launch, tuple(Launch._field_defaults.values())),
    tuple(LAUNCH_ATTRIBUTES),  # a node that has one of them is left to Python
    *(PLAIN_LAUNCH, ArrayView, Access, Parameter),
    *map(Step._fields.index, ("deps", "path")),
)
"""What compiled code must know of the library's own types."""


class CompiledAdder:
    """The `KernelAdder` of the extension module; `failed` raises for a method and an error code."""

    def __init__(self, module: Any, layout: bytes, steps: GraphSteps, failed: Callable[[str, int], NoReturn]) -> None:
        self._failed = failed
        self._add = module.KernelAdder(layout, steps, partial(_described, steps.function), _KINDS)

    def add(self, first: int) -> int:
        """Add steps from `first` on, as `KernelAdder.add` says."""
        index: int = self._add(first)
        if self._add.code:
            self._failed("hipGraphAddKernelNode", self._add.code)
        return index


def _described(
    function_of: Callable[[KernelLaunch], tuple[int, Any] | None], node: KernelLaunch
) -> tuple[int, Any, int, int, int, bytes] | None:
    """Return the function of a kernel node, its packer, and the memory, table, size and layout of its arguments."""
    found = function_of(node)
    if found is None:
        return None
    function, packer = found
    return function, packer, packer.memory, packer.address, packer.signature.nbytes, packer.signature.places
