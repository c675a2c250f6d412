"""An Executable built a second time from the resources of another: a copy of it, or its replacement for a changed workflow.

`build` is `Executable.build`, and the caller is in the critical section of the Executable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..nodes.workflow import Workflow
from .changing import living

Build = Callable[..., Any]


def afresh(executable: Any, build: Build, workflow: Workflow) -> Any:
    """Build a replacement of an Executable for another workflow, with the same values; change nothing of the Executable."""
    executable._own.require_sound(workflow, executable.backend)
    return twin(executable, build, workflow)


def twin(executable: Any, build: Build, workflow: Workflow | None) -> Any:
    """Return an Executable with another one's values: of another workflow with its memory, or a copy with its own."""
    own, inherit = executable._own, None if workflow is None else executable._own.memory
    executable.synchronize()  # raise the errors of its launches before anything is changed, and before another call meets them
    new, options = own.state.workflow if workflow is None else workflow, own.options
    if workflow is None:
        options["sharing"] = options["sharing"]._replace(common=None)
    made = build(new, executable.runtime, executable.backend, device=executable.device, inherit=inherit, **options)
    try:
        executable.synchronize()
        made._own.memory.copy_from(own.memory)
        made._own.shared.copy_variables(own.shared)
        made._own.take_over(own, same_graph=workflow is None)
    except BaseException:
        made.close()
        raise
    return made


def replace_by(executable: Any, other: Any) -> None:
    """Close an Executable, and let it take ownership of another one's resources."""
    try:
        executable.close()
    finally:
        if executable._closed:  # even if one of the release calls has failed
            _take_over(executable, other)
        else:
            other.close()


def _take_over(executable: Any, other: Any) -> None:
    """Take ownership of another Executable's resources and discard it; the own ones are already released."""
    other.stats.include(executable.stats)
    living.discard(other)
    other._closed = True
    other._own.compiled.take_over(executable._own.compiled)  # other threads may hold this one's `launch`
    executable._own, executable._closed = other._own, False
    executable._own.memory.keep_inherited()
    own = executable._own
    own.compiled.bind(own.program, own.in_flight.stream)
