"""A workflow as a file. The extension names the format, and each format is one module of this package.

A format's module has one function that returns what the file holds, and touches no file itself::

    def render(workflow: Workflow, **options) -> str | bytes

A format whose file needs others beside it also has ``companions(workflow, *, stem, **options) -> dict[str, bytes]``.

Options are keyword-only, with defaults. `FORMATS` below says which module and function serve an extension; it is
imported when it is first asked for, so that `import hipgraphdsl` loads no drawing library. A function that needs a
package of an extra asks for it with `need("yaml", "pyyaml")`, which says what to install.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DeclarationError
from ..workflow import Workflow

__all__ = ["FORMATS", "Format", "as_path", "export_graph", "fitting", "formats", "is_known", "made", "need", "render",
           "write_file"]  # fmt: skip


class Format(NamedTuple):
    """Where a format is made.

    Attributes
    ----------
    module : str
        Module of this package.
    function : str
        Its function ``(workflow, **options) -> str | bytes``.
    title : str
        What it is, for lists.
    """

    module: str
    function: str
    title: str


FORMATS: dict[str, Format] = {
    ".json": Format("json", "render", "the workflow itself, versioned; loads again"),
    ".yaml": Format("yaml", "render", "the same document as YAML; loads again"),
    ".graphml": Format("graphml", "render", "GraphML for graph tools; loads again"),
    ".hip": Format("hip_cpp", "render", "a HIP C++ program that builds and launches the graph"),
    ".py": Format("python", "render", "a Python program that declares the workflow"),
    ".dot": Format("dot", "render", "Graphviz"),
    ".mmd": Format("mermaid", "render", "Mermaid"),
    ".svg": Format("svg", "render", "a drawing"),
    ".png": Format("png", "render", "a drawing"),
    ".html": Format("html", "render", "one page to look around in"),
}
"""Extension -> where it is made."""

_SAME = {".yml": ".yaml", ".mermaid": ".mmd", ".gv": ".dot", ".htm": ".html"}


def formats() -> dict[str, str]:
    """Return extension -> title of the formats that are there."""
    found = {}
    for extension, entry in FORMATS.items():
        if importlib.util.find_spec(f"{__name__}.{entry.module}") is not None:
            found[extension] = entry.title
    return found


def is_known(path: str | os.PathLike[str]) -> bool:
    """Return whether the extension of a path names a format."""
    extension = Path(path).suffix.lower()
    return _SAME.get(extension, extension) in formats()


def render(workflow: Workflow, extension: str, **options: Any) -> str | bytes:
    """Return the workflow in the format of an extension.

    Raises
    ------
    DeclarationError
        If there is no such format, it takes no such option, or it needs a package that is not installed.
    """
    wanted = _SAME.get(extension.lower(), extension.lower())
    known = formats()
    if wanted not in known:
        raise DeclarationError(
            f"graph {workflow.name!r} cannot be written as {extension!r}; formats are {', '.join(known)}"
            if extension
            else f"the file needs an extension that names its format; formats are {', '.join(known)}"
        )
    return made(FORMATS[wanted], wanted, workflow, options)


def made(entry: Format, extension: str, subject: Any, options: Mapping[str, Any]) -> str | bytes:
    """Return what a format's function makes of a workflow or a timeline.

    Raises
    ------
    DeclarationError
        If the function takes no such option, or needs a package that is not installed.
    """
    function: Callable[..., str | bytes] = getattr(importlib.import_module(f"{__name__}.{entry.module}"), entry.function)
    accepted: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in accepted.values()):  # drawings hand on what they do not know
        accepted = {**accepted, **inspect.signature(importlib.import_module(f"{__name__}.picture").draw).parameters}
    names = [name for name, p in list(accepted.items())[1:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for option in options:
        if option not in names:
            raise DeclarationError(
                f"a {extension} file takes no option {option!r}; its options are {', '.join(map(repr, names)) or 'none'}"
            )
    return function(subject, **options)


def export_graph(workflow: Workflow, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a workflow to a file, whole or not at all; the extension names the format.

    Parameters
    ----------
    path : path
    **options
        Those of the format's `render` function.

    Raises
    ------
    DeclarationError
        If there is no such format or option, or the file cannot be written.
    """
    target = as_path(path)
    module = _module_of(target.suffix)
    if hasattr(module, "companions"):
        options.setdefault("stem", target.stem)
        text = render(workflow, target.suffix, **options)
        for name, content in module.companions(workflow, **options).items():
            write_file(target.with_name(name), content)
        write_file(target, text)
    else:
        write_file(target, render(workflow, target.suffix, **options))


def _module_of(extension: str) -> Any:
    entry = FORMATS.get(_SAME.get(extension.lower(), extension.lower()))
    return importlib.import_module(f"{__name__}.{entry.module}") if entry is not None else None


def as_path(path: Any) -> Path:
    """Return the path of a file.

    Raises
    ------
    DeclarationError
        If it is neither a str nor a path.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise DeclarationError(f"path is a str or a pathlib.Path (got {path!r})")
    return Path(path)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file beside and rename it, so that a reader never sees half of it.

    Raises
    ------
    DeclarationError
        If the folder is not there or cannot be written; an earlier file is then as it was.
    """
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


def fitting(svg: str) -> str:
    """Return a drawing without what precedes it, no wider than the page or notebook cell that it stands in."""
    return svg[svg.index("<svg") :].replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)


def need(package: str, distribution: str) -> Any:
    """Return a package of an extra.

    Raises
    ------
    DeclarationError
        If it is not installed; says what to install.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DeclarationError(f"{package} is not installed ({error}): pip install {distribution}") from None
