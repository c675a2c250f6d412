"""Whether results differ because a compiler fuses ``a * b + c`` to one operation, which rounds once instead of twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ...runtimes.base import Runtime
from ...runtimes.data import CodeObject

_DECIDING = ("-ffp-contract", "--fmad", "-fmad")  # options that are replaced


class _Uncontracted:
    """A runtime whose compiler fuses nothing; all else is the runtime's own."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def rtc_compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *, name: str = "module"
    ) -> CodeObject:
        kept = [option for option in options if not option.startswith(_DECIDING)]
        return self._runtime.rtc_compile(source, names, symbols, [*kept, self._runtime.uncontracted], name=name)


def without_contraction(runtime: Runtime) -> Runtime:
    """Return the same runtime, whose compiler fuses no multiplication with an addition."""
    return cast("Runtime", _Uncontracted(runtime))


def contraction_hint(runtime: Runtime) -> str:
    """Return the advice where results are equal without contraction."""
    return (
        f"the compiler of {runtime.name} fuses multiplications and additions, and without that the results are equal:"
        f" compile with options=[{runtime.uncontracted!r}], or say how far results may differ: tolerance=1e-6"
    )
