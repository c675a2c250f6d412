"""One serial run in which the CPU runtime's sanitizer checks each access of the kernels, before kernels run without it."""

from __future__ import annotations

import re
from typing import Any, Final

from ...backends.serial import SerialProgram
from ...errors import HipError, HipGraphError
from ...executable import Executable
from ...nodes.workflow import Workflow
from ...plan.options import DebugOptions
from ...runtimes.base import Runtime
from .laboratory import AS_DECLARED, WAIT_S, Found, issued
from .report import Kind

_KINDS: Final[dict[str, Kind]] = {
    "out of bounds": "out of bounds",
    "unwritten memory": "uninitialised",
    "race": "race",
    "divergent barrier": "divergent barrier",
    "division by zero": "failure",
}
_FOUND: Final = re.compile(rf"({'|'.join(_KINDS)}) at ")
#: Findings after which kernels without the sanitizer may overwrite foreign memory.
_UNSAFE: Final = frozenset({"out of bounds", "failure"})
_MOST_STOPPED: Final = 20  # most steps with a finding; after the last one nothing is run


def try_sanitizer(workflow: Workflow, runtime: Runtime, device: int, params: dict[str, Any], found: Found) -> bool:
    """Run once by the serial backend under the sanitizer; return whether the kernels may also run without it."""
    if not runtime.sanitizes or not any(node.kernels for document in workflow.documents for node in document.nodes):
        return True
    try:
        executable = Executable.build(
            workflow, runtime, "serial", options=AS_DECLARED, debug=DebugOptions(sanitize=True), device=device
        )
    except HipGraphError as error:
        found.left_out.append(f"the sanitizer: {error}")
        return True
    try:
        return _judge(executable, params, found)
    except HipGraphError:
        return True  # the serial run of the laboratory raises it too
    finally:
        executable.close()


def _judge(executable: Executable, params: dict[str, Any], found: Found) -> bool:
    """Run step by step, without the steps that depend on a stopped one, whose input is incomplete; return whether it is safe."""
    program = executable.prepared(**params)
    assert isinstance(program, SerialProgram)
    stopped: set[int] = set()
    behind: list[str] = []
    unsafe = ""
    for step in program.plan.steps:
        name = program.full_name(step)
        if stopped.intersection(step.deps) or len(stopped) - len(behind) == _MOST_STOPPED:
            stopped.add(step.index)
            behind.append(name)
            continue
        try:
            if not issued(executable, program, step):
                found.left_out.append(f"the sanitizer: {name!r} has not finished after {WAIT_S:g} s")
                break
        except HipError as error:
            said = _FOUND.match(error.text)
            if said is None:
                raise
            stopped.add(step.index)
            node, kind = error.node or name, _KINDS[said[1]]
            arrays = tuple(dict.fromkeys(re.findall(r"array '(.*?)'", error.text)))
            found.add(kind, f"{node!r}, {error.text}", (node,), arrays)
            unsafe = unsafe or node * (kind in _UNSAFE)
    executable.synchronize(WAIT_S)  # raises the error of a callback, if there is one
    found.done.append("a serial run in which each access of kernels was judged")
    if behind:
        found.left_out.append(
            f"under the sanitizer: {', '.join(map(repr, behind[:5]))}{', ...' * (len(behind) > 5)} behind a finding"
        )
    if unsafe:
        found.left_out.append(f"everything else: {unsafe!r} would do that unobserved")
    return not unsafe
