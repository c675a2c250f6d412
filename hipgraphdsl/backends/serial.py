"""serial: one stream and a synchronise after each node; the reference that the other backends must equal."""

from __future__ import annotations

from ..errors import HipError
from ..plan import Plan
from ..runtimes.base import Runtime
from .operations import Scope, at_node
from .program import Program
from .streams import EagerProgram

__all__ = ["build"]


class _SerialProgram(EagerProgram):
    def launch(self, stream: int) -> None:
        failed = self.scope.shared.host_failed
        for step in self.plan.steps:
            self.issue(step, stream)
            try:
                self.runtime.stream_synchronize(stream)
            except HipError as error:
                if not failed():
                    raise at_node(error, step.name) from error.__cause__
            if failed():  # nothing after it starts; the next synchronize of the Executable raises it
                return


def build(plan: Plan, scope: Scope, runtime: Runtime, disabled: frozenset[int] = frozenset()) -> Program:
    """Prepare the operations; nothing runs before the first launch."""
    return _SerialProgram(plan, scope, runtime, disabled)
