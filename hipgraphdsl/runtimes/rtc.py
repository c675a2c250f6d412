"""The common part of both GPU platforms' compilers: calls of a binding, name expressions, and the disk cache."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..cache import cache_folder, write_whole
from ..compiler import reads_files
from ..errors import HipError
from ..source import KernelName
from .data import CodeObject

_log = logging.getLogger("hipgraphdsl")


class Rtc:
    """A compiler library, called through its binding, whose functions return an error code and results."""

    prefix: ClassVar[str]
    """Prefix of its functions' names."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def _call(self, api: str, *args: Any) -> Any:
        """Return the results of a call without its error code; raise HipError if the code is not 0."""
        code, *answers = getattr(self._binding, api)(*args)
        self._require(code, api)
        return answers[0] if len(answers) == 1 else answers

    def _require(self, code: Any, api: str) -> None:
        if int(code):
            raise HipError(api, int(code), getattr(code, "name", f"{self.prefix} error {int(code)}"))

    def _add_expressions(self, program: Any, names: Sequence[str], symbols: Sequence[str]) -> dict[str, str]:
        """Register a name expression for each kernel and variable, and return the expressions by name."""
        # A variable's expression is its address, as in C++; a registered kernel or variable is not eliminated as unused.
        expressions = {name: KernelName.of(name).expression for name in names} | {symbol: f"&{symbol}" for symbol in symbols}
        for expression in expressions.values():
            self._call(f"{self.prefix}AddNameExpression", program, expression.encode())
        return expressions

    def _lowered(self, program: Any, expressions: dict[str, str]) -> dict[str, str]:
        """Return the name inside the image of each registered kernel and variable."""
        lowered = {}
        for name, expression in expressions.items():
            found = self._call(f"{self.prefix}GetLoweredName", program, expression.encode())
            lowered[name] = found if isinstance(found, str) else bytes(found).decode()
        return lowered


def kept(folder: str, key: str, source: str, options: Sequence[str], compiled: Callable[[], CodeObject]) -> CodeObject:
    """Load a code object from a folder of the disk cache, by a hash of `key`; else call `compiled` and store its result there.

    A source that may include the user's files is compiled each time, because no key covers what these files contain.
    """
    if reads_files(options, source):
        return compiled()
    path = cache_folder(folder) / f"{hashlib.sha256(key.encode()).hexdigest()}.co"
    found = _load(path)
    if found is None:
        found = compiled()
        header = {"lowered": found.lowered, "log": found.log, "sha256": hashlib.sha256(found.image).hexdigest()}
        try:
            write_whole(path, json.dumps(header).encode() + b"\n" + found.image)
        except OSError as error:
            _log.warning("compiled kernels cannot be kept in %s: %s", path.parent, error)
    return found


def _load(path: Path) -> CodeObject | None:
    # The file has a header of one line, then the image; a file that a full disk truncated is compiled again.
    try:
        head, _, image = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        found, digest = CodeObject(image, header["lowered"], header["log"]), header["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if hashlib.sha256(image).hexdigest() == digest else None
