"""Files that commands read and write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..errors import DeclarationError, HipGraphError
from ..export import write_file
from ..printed import human_bytes
from .status import Misuse


def require_place(*paths: str | None) -> None:
    """Refuse a file that cannot be written before anything is run for it."""
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


def export(write: Callable[..., None], subject: Any, path: str, options: Mapping[str, Any], **others: Any) -> None:
    """Write a file by its format's function; `options` are what ``--option`` gives, and one that the format refuses is Misuse."""
    try:
        write(subject, path, **{**options, **others})
    except DeclarationError as error:
        if options:
            with TemporaryDirectory() as folder, suppress(HipGraphError):
                write(subject, Path(folder, Path(path).name), **others)
                raise Misuse(str(error)) from None  # without the options it can be written
        raise
    say_written(path)


def say_written(path: str) -> None:
    """Say on standard error which file has been written, and how large it is."""
    with suppress(OSError):  # a pipe or a device has no size
        if Path(path).is_file():
            print(f"wrote {path} ({human_bytes(Path(path).stat().st_size)})", file=sys.stderr)


def unknown_format(path: str, known: Iterable[str]) -> Misuse:
    """Return the error for a file whose extension names no format."""
    return Misuse(f"{path!r} names no format by its extension; formats are {', '.join(known)}")


def load_npy(path: str) -> np.ndarray[Any, Any]:
    """Read an array from an .npy file."""
    try:
        with open(path, "rb") as file:
            values: np.ndarray[Any, Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Misuse(f"{path!r} cannot be read as an .npy file: {why}") from None
    return values
