"""Finding the workflow that a command line names."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..document.text import MAX_BYTES
from ..errors import DeclarationError, HipGraphError, listed
from ..graph import Graph
from ..nodes import UnboundCallback
from ..nodes.workflow import Workflow
from ..parts import module_of
from .status import Misuse, UserCodeFailed

FILES = (".json", ".yaml", ".yml", ".graphml")

WORKFLOW_HELP = (
    "a JSON, YAML or GraphML file, or file.py[:name] or package.module[:name], where name is a Graph, a Workflow or a function"
    " that returns one (default: build, else the file's only Graph, or without any its only Workflow)"
)

_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def load_graph(spec: str, arrays: Mapping[str, Any] | None = None, import_callbacks: bool = False) -> Graph:
    """Return the graph that a command line names.

    Parameters
    ----------
    spec : str
        A JSON, YAML or GraphML file; ``file.py[:name]``; ``package.module[:name]``.
    arrays : mapping, optional
        Values for a file's arrays.
    import_callbacks : bool
        Import the callbacks that a file names.

    Raises
    ------
    HipGraphError
        If the file does not hold a workflow.
    """
    path = Path(spec)
    suffix = path.suffix.lower()
    if suffix in FILES:
        return _graph_of_file(path, suffix, arrays or {}, import_callbacks)
    place, name = spec, ""
    if not path.exists() and ":" in spec:
        place, _, name = spec.rpartition(":")
        if not name:
            raise Misuse(f"{spec!r} ends with ':'; write file.py:name, or leave the ':' out")
    path = Path(place)
    if path.is_dir():
        raise Misuse(f"{place!r} is a folder; give {WORKFLOW_HELP}")
    if path.suffix == ".py" or os.sep in place:
        if not path.exists():
            raise Misuse(f"there is no file {place!r}")
        if path.suffix != ".py":
            raise Misuse(f"{place!r} is not a workflow; give {WORKFLOW_HELP}")
        module = _module_of_file(path)
    elif path.exists() and path.suffix:
        raise Misuse(f"{place!r} is not a workflow; give {WORKFLOW_HELP}")
    else:
        module = _module_named(place)
    return _graph_in(module, place, name)


def file_of(spec: str) -> Path | None:
    """Return the file that a command line names; None for a module."""
    return next((path for path in (Path(spec), Path(spec.rpartition(":")[0])) if path.is_file()), None)


def _graph_of_file(path: Path, suffix: str, arrays: Mapping[str, Any], import_callbacks: bool) -> Graph:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Misuse(f"{str(path)!r} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DeclarationError(f"{str(path)!r} is not UTF-8 text: {error.reason} at byte {error.start}") from None

    def load(callbacks: Mapping[str, Callable[..., Any]]) -> Graph:
        if suffix == ".json":
            return Graph.from_json(text, arrays, callbacks, file=path)
        if suffix == ".graphml":
            return Graph.from_workflow(module_of("parts.formats.graphml").loads(text, arrays, callbacks))
        return Graph.from_workflow(module_of("parts.formats.yaml").loads(text, arrays, callbacks))

    try:
        graph = load({})
        if import_callbacks:
            paths = _callback_paths(graph.workflow())
            if paths:
                sys.path.insert(0, str(path.resolve().parent))
                print(f"hipgraphdsl: importing {', '.join(sorted({p.partition(':')[0] for p in paths}))}", file=sys.stderr)
                graph = load({path: _imported(path) for path in paths})
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}", node=error.node, array=error.array) from None
    return graph


def _callback_paths(workflow: Workflow) -> dict[str, None]:
    functions = (node.callback for _, node in workflow.walk() if node.callback is not None)
    return {fn.path: None for fn in functions if isinstance(fn, UnboundCallback)}


def _imported(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    found = _member(_module_named(module_name), name)
    if not callable(found):
        raise DeclarationError(f"callback {path!r} is named by the file, and module {module_name!r} has no such function")
    function: Callable[..., Any] = found
    return function


@contextmanager
def _user_code(what: str) -> Iterator[None]:
    """Turn what the user's own code raises into one message with the line where it happened."""
    try:
        yield
    except (HipGraphError, Misuse):
        raise
    except SystemExit as error:
        raise UserCodeFailed(f"{what} ended the program (SystemExit {error.code})") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        outside = [frame for frame in frames if not frame.filename.startswith((_PACKAGE, "<frozen"))]
        where = f" at {outside[-1].filename}:{outside[-1].lineno}" if outside else ""
        if isinstance(error, SyntaxError) and error.filename:
            where = f" at {error.filename}:{error.lineno}"
        raise UserCodeFailed(f"{what} failed: {type(error).__name__}: {error}{where}") from error


def _module_of_file(path: Path) -> ModuleType:
    """Run a Python file as a module of its own name, so that its functions have an import path."""
    path = path.resolve()
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None or not re.fullmatch(r"\w+", name):
        name = "workflow_" + re.sub(r"\W", "_", name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        with _user_code(f"{path.name!r}"):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _module_named(name: str) -> ModuleType:
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise Misuse(f"{name!r} is neither a file nor a module; give {WORKFLOW_HELP}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with _user_code(f"module {name!r}"):
            return importlib.import_module(name)
    except UserCodeFailed as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name and f"{name}.".startswith(f"{cause.name}."):
            raise Misuse(f"there is no file and no module {name!r}") from None
        raise


def _member(module: Any, name: str) -> Any:
    """Return the object that a dotted name refers to in a module; None if there is none."""
    return functools.reduce(lambda found, part: getattr(found, part, None), name.split("."), module)


def _graph_in(module: ModuleType, place: str, name: str) -> Graph:
    found = _member(module, name or "build")
    if found is None and not name:
        for kind in (Graph, Workflow):
            there = {id(value): (key, value) for key, value in vars(module).items() if isinstance(value, kind)}
            if there:
                break
        if len(there) == 1:
            ((name, found),) = there.values()
    name = name or "build"
    if found is None:
        names = [
            key
            for key, value in vars(module).items()
            if isinstance(value, (Graph, Workflow))
            or (inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_"))
        ]
        raise Misuse(
            f"{place!r} has no {name!r}; its Graphs, Workflows and functions are {listed(names)}: name one as {place}:NAME"
        )
    if callable(found) and not isinstance(found, Graph):
        required = [
            p.name
            for p in inspect.signature(found).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if required:
            raise Misuse(f"{place}:{name} needs the arguments {', '.join(required)}; name a function that can be called without")
        with _user_code(f"{place}:{name}"):
            found = found()
    if isinstance(found, Workflow):
        return Graph.from_workflow(found)
    if not isinstance(found, Graph):
        raise Misuse(f"{place}:{name} is of type {type(found).__name__}, not a Graph, a Workflow or a function that returns one")
    return found
