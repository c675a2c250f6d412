"""What prints itself: as plain text, in rich's styles, and in notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any


class Printed(ABC):
    """Base of reports: a subclass gives its text in pieces, each with a style of rich."""

    __slots__ = ()

    @abstractmethod
    def _pieces(self) -> Iterator[tuple[str, str]]: ...

    def __str__(self) -> str:
        return "".join(text for text, _ in self._pieces())

    def __rich__(self) -> Any:
        from rich.text import Text  # rich draws only when something is printed with it

        return Text.assemble(*self._pieces())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).partition(chr(10))[0]}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self)}
