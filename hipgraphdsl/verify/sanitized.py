"""One serial run in which the CPU runtime's sanitizer judges each access of the kernels, before they may harm the process."""

from __future__ import annotations

import re
from typing import Any, Final

from ..errors import HipError, HipGraphError, WaitTimeout
from ..executable import Executable
from ..runtimes.base import Runtime
from ..workflow import Workflow
from .laboratory import WAIT_S, Found
from .report import Kind

_KINDS: Final[dict[str, Kind]] = {
    "out of bounds": "out of bounds",
    "unwritten memory": "uninitialised",
    "race": "race",
    "divergent barrier": "divergent barrier",
    "division by zero": "failure",
}
_FOUND: Final = re.compile(rf"({'|'.join(_KINDS)}) at ")
#: After these, kernels that nobody watches may overwrite what is not theirs.
_UNSAFE: Final = frozenset({"out of bounds", "failure"})


def try_sanitizer(workflow: Workflow, runtime: Runtime, device: int, params: dict[str, Any], found: Found) -> bool:
    """Run once by the serial backend; return whether the kernels may run unwatched."""
    if not runtime.sanitizes or not any(node.kernels for document in workflow.documents for node in document.nodes):
        return True
    try:
        executable = Executable.build(workflow, runtime, "serial", lanes=None, join=False, device=device, sanitize=True)
    except HipGraphError as error:
        found.left_out.append(f"the sanitizer: {error}")
        return True
    try:
        executable.launch(**params)
        executable.synchronize(WAIT_S)
    except HipError as error:
        said = _FOUND.match(error.text)
        if said is None:  # the serial run has it too
            return True
        kind = _KINDS[said[1]]
        arrays = tuple(dict.fromkeys(re.findall(r"array '(.*?)'", error.text)))
        found.add(kind, f"{error.node!r}, {error.text}", (error.node,) if error.node else (), arrays)
        if kind in _UNSAFE:
            found.left_out.append(f"everything else: {error.node!r} would do that while nobody watches")
        return kind not in _UNSAFE
    except WaitTimeout as error:
        found.left_out.append(f"the sanitizer: {error}")
    except HipGraphError:
        return True
    finally:
        executable.close()
    found.done.append("a serial run in which each access of kernels was judged")
    return True
