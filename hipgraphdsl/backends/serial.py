"""serial: one stream and a synchronise after each node; the reference that the other backends must equal."""

from __future__ import annotations

from ..plan import Plan
from ..runtimes.base import Runtime
from .operations import Scope
from .program import Program
from .streams import EagerProgram

__all__ = ["build"]


class _SerialProgram(EagerProgram):
    def launch(self, stream: int) -> None:
        for step in self.plan.steps:
            self.issue(step, stream)
            self.runtime.stream_synchronize(stream)

    def close(self) -> None:
        """Nothing is held."""


def build(plan: Plan, scope: Scope, runtime: Runtime, disabled: frozenset[int] = frozenset()) -> Program:
    """Prepare the operations; nothing runs before the first launch."""
    return _SerialProgram(plan, scope, runtime, disabled)
