"""Files that commands read and write."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..export import write_file
from ..printed import human_bytes
from .status import Misuse


def require_place(*paths: str | None) -> None:
    """Refuse output paths that cannot be written, before anything is run."""
    for path in filter(None, paths):
        folder = Path(path).resolve().parent
        if Path(path).is_dir():
            raise Misuse(f"{path!r} cannot be written: it is a folder")
        if not folder.is_dir():
            raise Misuse(f"{path!r} cannot be written: there is no folder {str(Path(path).parent)!r}")


def put(text: str, output: str | None) -> None:
    """Write text to a file, or to standard output."""
    if output:
        write_file(output, text)
        say_written(output)
    else:
        sys.stdout.write(text)


def say_written(path: str) -> None:
    """Report on standard error which file was written, and its size."""
    with suppress(OSError):  # a pipe or a device has no size
        if Path(path).is_file():
            print(f"wrote {path} ({human_bytes(Path(path).stat().st_size)})", file=sys.stderr)


def unknown_format(path: str, known: Iterable[str], others: str = "") -> Misuse:
    """Return the error for a file whose extension names no format; `others` is what it says of other packages."""
    return Misuse(f"{path!r} names no format by its extension; formats are {', '.join(known)}{others}")


def load_npy(path: str) -> np.ndarray[Any, Any]:
    """Read an array from an .npy file."""
    try:
        with open(path, "rb") as file:
            values: np.ndarray[Any, Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Misuse(f"{path!r} cannot be read as an .npy file: {why}") from None
    return values
