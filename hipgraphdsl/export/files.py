"""Shared by the formats of workflows and timelines: the table entry of a format, and atomic file writes."""

from __future__ import annotations

import html
import importlib
import inspect
import io
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays.coercion import as_int
from ..arrays.dtypes import has_extras
from ..errors import DeclarationError, HipGraphError, listed
from ..parts import module_of


class Format(NamedTuple):
    """The module and function that render a format."""

    module: str  # of `hipgraphdsl`; empty for the function of another package
    function: str | Callable[..., str | bytes]  # of the module, or itself: (workflow, **options) -> str | bytes
    title: str  # a description, for lists

    def opened(self) -> Any:
        """Import and return the module."""
        return module_of(self.module)

    def rendering(self) -> Callable[..., str | bytes]:
        """Import and return the function."""
        found: Callable[..., str | bytes] = (
            getattr(self.opened(), self.function) if isinstance(self.function, str) else self.function
        )
        return found


def made(
    formats: Mapping[str, Format],
    same: Mapping[str, str],
    extension: str,
    subject: Any,
    name: str,
    options: Mapping[str, Any],
    others: Callable[[], str] = str,
) -> str | bytes:
    """Return the output of a format's function for a workflow or a timeline, which messages call `name`.

    `same` maps alternative extensions; `others` returns what a message says of other packages. An unknown format or option is
    refused, as is whatever the function refuses.
    """
    extension, given = same.get(extension.lower(), extension.lower()), extension
    entry = formats.get(extension)
    if entry is None:
        wrong = f"{name} cannot be written as {given!r}" if given else "the file needs an extension that names its format"
        raise DeclarationError(f"{wrong}; formats are {', '.join(formats)}{others()}")
    function = entry.rendering()
    accepted: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    if entry.module and any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        # Drawing functions pass other options on to their `draw`.
        accepted = {**accepted, **inspect.signature(entry.opened().draw).parameters}
    names = [name for name, p in list(accepted.items())[1:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for option, value in options.items():
        if option not in names:
            raise DeclarationError(f"a {extension} file takes no option {option!r}; its options are {listed(names)}")
        if value is not None:
            annotation = accepted[option].annotation
            _require_kind(option, value, annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))
    content = function(subject, **options)
    if not isinstance(content, (str, bytes)):
        raise HipGraphError(f"the function of the format {extension!r} returns str or bytes (got {type(content).__name__})")
    return content


def _require_kind(option: str, value: Any, annotation: str) -> None:
    """Refuse a value of the wrong type for an option with a simple type; the formats' functions check all others."""
    kinds = {
        "bool": ("True or False", isinstance(value, bool)),
        "int | None": ("a number from 1 to 1000", 1 <= (as_int(value) or 0) <= 1000),
        "float": ("a number from 0", isinstance(value, (int, float, np.number)) and value >= 0),
        "str | None": ("text", isinstance(value, str)),
    }
    what, fits = kinds.get(annotation, ("", True))
    if not fits:
        raise DeclarationError(f"{option} is {what} (got {value!r})")


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file atomically, by renaming a temporary one: readers never see a partial file, and a failure keeps the old one."""
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    beside: Path | None = None
    try:
        if target.exists() and not target.is_file():  # a pipe or a terminal, which a rename would replace
            target.write_bytes(data)
            return
        target = target.resolve()
        beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}")
        with beside.open("xb") as file:
            file.write(data)
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
        beside = None
    except OSError as error:
        raise DeclarationError(f"{str(path)!r} cannot be written: {error.strerror or error}") from None
    finally:
        if beside is not None:
            with suppress(OSError):
                beside.unlink()


def npy_file(values: np.ndarray[Any, Any]) -> bytes:
    """Return the contents of a .npy file of these values."""
    file = io.BytesIO()
    np.save(file, values.view(npy_dtype(values.dtype)), allow_pickle=False)
    return file.getvalue()


def npy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype for a .npy file: raw bytes for unordered fields and types of ml_dtypes, which the format lacks."""
    try:
        if has_extras(dtype):
            return np.dtype(f"V{dtype.itemsize}")
        np.lib.format.dtype_to_descr(dtype)
    except ValueError:
        return np.dtype(f"V{dtype.itemsize}")
    return dtype


def fitting(svg: str, label: str) -> str:
    """Return the <svg> element alone, no wider than the page or notebook cell around it, with its alternative text."""
    opening = f'<svg role="img" aria-label="{html.escape(label)}" style="max-width:100%;height:auto" '
    return svg[svg.index("<svg") :].replace("<svg ", opening, 1)


def need(package: str, distribution: str) -> Any:
    """Import and return a package of an extra; if it is not installed, the error tells what to install."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DeclarationError(f"{package} is not installed ({error}): pip install {distribution}") from None
