"""The command line: info, check, show, run, timeline, verify, bench, diff, schema.

Exit status: 0 good, 1 the workflow is faulty, 2 used wrongly, 3 the runtime is not there.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import os
import pkgutil
import platform
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .arrays import AllocArray, Array, ExternalArray, HostArray, Parameter
from .defects import DEFECTS, defects_for
from .errors import DeclarationError, HipGraphError, RuntimeUnavailable
from .export import export_graph, formats, is_known, timelines, write_file
from .export import json as json_format
from .export.diff import compare
from .export.json_text import MAX_BYTES
from .export.schema import schema
from .export.style import human_bytes
from .export.timelines import FORMATS as TIMELINE_FORMATS
from .export.timelines import export_timeline
from .graph import Graph
from .nodes import CapturedNode, ChildGraphNode, ConditionalNode, HostNode, Node, UnboundCallback, held
from .plan import Lanes
from .runtimes import explain_auto, open_runtime
from .runtimes.base import Runtime
from .runtimes.cpu.program import build_program
from .target import Target
from .verify import verify
from .workflow import Workflow

__all__ = ["load_graph", "main"]

_RUNTIMES = ("auto", "amd", "nvidia", "cpu")

GOOD, FAULTY, MISUSED, UNAVAILABLE = 0, 1, 2, 3
_INTERRUPTED, _PIPE = 130, 141  # what a shell reports for a program that SIGINT or SIGPIPE ended

_log = logging.getLogger("hipgraphdsl")

_FILES = (".json", ".yaml", ".yml", ".graphml")

_WORKFLOW_HELP = (
    "a JSON, YAML or GraphML file, or file.py[:name] or package.module[:name], where name is a Graph or a function"
    " that returns"
    " one (default: build)"
)


class _Misuse(Exception):
    """The command line is wrong; ends with status 2."""


class _UserCodeFailed(Exception):
    """The user's own module or function raised; ends with status 1."""


# -- entry -------------------------------------------------------------------------------------------------------------


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    verbose = False
    try:
        with _logging():
            options = _parse(arguments)
            verbose = options.verbose
            if verbose:
                _log.setLevel(logging.DEBUG)
            status: int = options.command(options)
        sys.stdout.flush()
        return status
    except _Misuse as error:
        return _complain(str(error), MISUSED)
    except RuntimeUnavailable as error:
        return _complain(str(error), UNAVAILABLE, verbose)
    except (HipGraphError, _UserCodeFailed) as error:
        return _complain(str(error), FAULTY, verbose)
    except KeyboardInterrupt:
        return _complain("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # What reads the output has gone; the interpreter must not complain when it flushes at exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE


def _complain(message: str, status: int, verbose: bool = False) -> int:
    if verbose:
        traceback.print_exc()
    with suppress(BrokenPipeError):
        print(f"hipgraphdsl: {message}", file=sys.stderr)
    return status


@contextmanager
def _logging() -> Iterator[None]:
    """Show the package's messages on stderr while a command runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("hipgraphdsl: %(levelname)s: %(message)s"))
    level = _log.level
    _log.addHandler(handler)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(level)


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(110, max(60, Console(stderr=True).width)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hipgraphdsl",
        description="Check, show, run and compare GPU workflows, on AMD, NVIDIA or any CPU.",
        epilog="examples:\n"
        "  hipgraphdsl info\n"
        "  hipgraphdsl check examples/04_wave2d.py --target amd:gfx942\n"
        "  hipgraphdsl show examples/04_wave2d.py -o wave.svg\n"
        "  hipgraphdsl run wave.json --runtime cpu --param dt=0.01 --repeat 100\n"
        "  hipgraphdsl timeline examples/03_overlap_pipeline.py --runtime cpu -o pipeline.html\n"
        "  hipgraphdsl diff old.json new.json\n"
        "\nexit status: 0 good, 1 the workflow is faulty, 2 used wrongly, 3 the runtime is not there",
        formatter_class=_Help,
    )
    version = importlib.import_module("hipgraphdsl").__version__
    parser.add_argument("--version", action="version", version=f"hipgraphdsl {version}")
    parser.add_argument("-v", "--verbose", action="store_true", help="show tracebacks and debug messages")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, command: Callable[[argparse.Namespace], int], text: str, *examples: str
    ) -> argparse.ArgumentParser:
        shown = "examples:\n" + "\n".join(f"  hipgraphdsl {name} {example}".rstrip() for example in examples)
        sub = commands.add_parser(
            name,
            help=re.split(r"[.:](?:\s|$)", text[0].lower() + text[1:])[0],
            description=text,
            epilog=shown,
            formatter_class=_Help,
        )
        sub.set_defaults(command=command)
        return sub

    def add_workflow(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("workflow", metavar="WORKFLOW", help=_WORKFLOW_HELP)

    def add_supplies(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--array",
            action="append",
            default=[],
            metavar="NAME=FILE.npy",
            help="values of an array that a file holds only as a hash",
        )
        sub.add_argument(
            "--import-callbacks",
            action="store_true",
            help="import the Python callbacks that a JSON file names; only for files that you trust",
        )

    info = add(
        "info",
        _info,
        "Say what is on this machine: versions, runtimes, devices, compilers, known defects.",
        "",
        "--json",
    )
    info.add_argument("--device", type=int, default=0, metavar="N", help="number of the device (default: 0)")
    info.add_argument(
        "--target", type=_target, metavar="NAME", help="list the known defects of this target instead, e.g. amd:gfx942@7.2"
    )
    info.add_argument("--json", action="store_true", help="print JSON")

    check = add(
        "check",
        _check,
        "Look for faults in a workflow: races, lifetimes, arguments, limits. Nothing is compiled or run.",
        "wave.py",
        "wave.json --target amd:gfx942@7.2",
        "wave.py --format sarif -o wave.sarif",
    )
    add_workflow(check)
    check.add_argument(
        "--target",
        type=_target,
        metavar="NAME",
        help="also check the limits and defects of a device: cpu, amd:gfx942, nvidia:sm_90, ...",
    )
    check.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="(default: text)")
    check.add_argument("--strict", action="store_true", help="end with status 1 for warnings too")
    check.add_argument("-o", "--output", metavar="FILE", help="write there instead of to the terminal")

    show = add(
        "show",
        _show,
        f"Show a workflow as text, or write it as a file: {' '.join(formats())}.",
        "wave.py",
        "wave.py --plan --target cpu",
        "wave.json -o wave.svg --option lanes=true",
        "wave.py -o wave.hip --backend capture",
        "wave.py -o wave.json",
    )
    add_workflow(show)
    show.add_argument("-o", "--output", metavar="FILE", help="write a file; its extension names the format")
    show.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="option of that format, e.g. direction=LR"
    )
    show.add_argument(
        "--backend", choices=("explicit", "capture"), help="of a .hip program: whether it builds the graph or records it"
    )
    show.add_argument("--plan", action="store_true", help="show the plan: reduced edges, order and lanes")
    show.add_argument("--target", type=_target, metavar="NAME", help="target of the plan (default: the device that run takes)")
    show.add_argument(
        "--lanes",
        type=_lanes,
        default="auto",
        metavar="N",
        help="lanes of the plan: auto, declared or a number (default: auto)",
    )
    show.add_argument(
        "--rows", type=_count_from(0), default=200, metavar="N", help="at most so many rows of a table (default: 200; 0: all)"
    )

    run = add(
        "run",
        _run,
        "Compile a workflow, launch it and print what it left in its host arrays. This compiles and runs native code.",
        "examples/04_wave2d.py --runtime cpu",
        "wave.json --param a=3.0 --repeat 1000 --backend capture",
        "wave.json --array initial=field.npy --save result=out.npy",
        "wave.py --dry-run --runtime amd",
    )
    add_workflow(run)
    run.add_argument("--runtime", default="auto", choices=_RUNTIMES, help="(default: auto)")
    run.add_argument(
        "--backend",
        default="explicit",
        choices=("explicit", "capture", "streams", "serial"),
        help="(default: explicit)",
    )
    run.add_argument(
        "--lanes", type=_lanes, default="auto", metavar="N", help="auto, measure, declared or a number (default: auto)"
    )
    run.add_argument("--device", type=int, default=0, metavar="N", help="number of the device (default: 0)")
    run.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a parameter; of an array parameter @FILE.npy",
    )
    add_supplies(run)
    run.add_argument("--watch", action="store_true", help="let a timeout, Ctrl-C or a fault name the nodes that had not finished")
    run.add_argument("--repeat", type=int, default=1, metavar="N", help="launch N times (default: 1)")
    run.add_argument(
        "--read",
        action="append",
        default=[],
        metavar="NAME",
        help="print this array (default: host arrays that nodes write)",
    )
    run.add_argument(
        "--save", action="append", default=[], metavar="NAME=FILE.npy", help="write an array to a file afterwards"
    )
    run.add_argument("--timeout", type=float, metavar="SECONDS", help="give up waiting after so long")
    run.add_argument("--profile", action="store_true", help="also measure one launch node by node")
    run.add_argument(
        "--dry-run", action="store_true", help="print the calls that would be made; nothing is compiled or run"
    )
    run.add_argument("--no-check", action="store_true", help="run even if check finds errors")
    run.add_argument("--json", action="store_true", help="print JSON")

    timeline = add(
        "timeline",
        _timeline,
        "Say when each node runs: measured in one launch, or with --duration predicted. Measuring compiles and runs native code.",
        "examples/03_overlap_pipeline.py --runtime cpu",
        "wave.py --runtime cpu -o wave.html",
        "wave.py -o wave.trace.json --option by=lane",
        "examples/03_overlap_pipeline.py --duration H2D=1 --duration kernel=1 --duration D2H=1 --engine kernel=2 -o pipeline.svg",
    )
    add_workflow(timeline)
    timeline.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"write a file; its extension names the format: {' '.join(TIMELINE_FORMATS)}",
    )
    timeline.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="option of that format, e.g. by=lane"
    )
    timeline.add_argument(
        "--duration",
        action="append",
        default=[],
        metavar="KEY=TIME",
        help="predict instead: how long a node takes, or nodes of a kind or direction (kernel, H2D, ...), in any unit",
    )
    timeline.add_argument(
        "--engine", action="append", default=[], metavar="NAME=N", help="engines of the prediction, e.g. kernel=2 or copy=1"
    )
    timeline.add_argument("--runtime", default="auto", choices=_RUNTIMES, help="of the measurement (default: auto)")
    timeline.add_argument(
        "--lanes", type=_lanes, default="auto", metavar="N", help="auto, measure, declared or a number (default: auto)"
    )
    timeline.add_argument("--device", type=int, default=0, metavar="N", help="number of the device (default: 0)")
    timeline.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a parameter; of an array parameter @FILE.npy",
    )
    add_supplies(timeline)

    proof = add(
        "verify",
        _verify,
        "Run a workflow in several ways and compare the results. This compiles and runs native code.",
        "examples/04_wave2d.py",
        "wave.json --runtime cpu",
    )
    add_workflow(proof)
    add_supplies(proof)
    _verify_arguments(proof)

    bench = add(
        "bench",
        _bench,
        "Measure how fast hipgraphdsl itself is.\n\nbenchmarks:\n" + _benchmark_list(),
        "",
        "cpu",
        "cpu --help",
    )
    bench.add_argument("name", nargs="?", metavar="NAME", help="which benchmark (default: all of them)")

    diff = add(
        "diff",
        _diff,
        "Say what differs between two workflows, by name.",
        "old.json new.json",
        "wave.py:build wave.py:build_fused --json",
    )
    diff.add_argument("old", metavar="A", help=_WORKFLOW_HELP)
    diff.add_argument("new", metavar="B", help="likewise")
    diff.add_argument("--json", action="store_true", help="print JSON")
    diff.add_argument("--exit-code", action="store_true", help="end with status 1 if they differ")

    program = add(
        "build",
        _build,
        "Compile a .hip program that `show` has written for this machine's CPU. For GPUs, hipcc or nvcc compile it.",
        "wave.hip -o wave",
    )
    program.add_argument("program", metavar="FILE", help="the program")
    program.add_argument("-o", "--output", metavar="FILE", help="the executable (default: FILE without its extension)")
    program.add_argument(
        "--cxx-option", action="append", default=[], metavar="OPTION", help="for the C++ compiler, e.g. --cxx-option=-g"
    )

    add("schema", _schema, "Print the JSON schema of a workflow file.", "", "> workflow.schema.json")
    return parser


def _parse(arguments: list[str]) -> argparse.Namespace:
    own: list[str] = []
    first = next((i for i, argument in enumerate(arguments) if not argument.startswith("-")), 0)
    if arguments[first : first + 1] == ["bench"]:
        at = first + 2
        if not arguments[at - 1 : at] or not arguments[at - 1].startswith("-"):
            arguments, own = arguments[:at], arguments[at:]  # what follows the name belongs to the benchmark
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        sys.exit(MISUSED)
    options = parser.parse_args(arguments)
    options.arguments = own
    return options


def _lanes(text: str) -> Lanes:
    if text in ("auto", "measure"):
        return text  # type: ignore[return-value]  # just compared with the literals
    if text in ("declared", "none"):
        return None
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"lanes is auto, measure, declared or a number from 1 (got {text!r})")


def _target(text: str) -> str:
    try:
        Target.named(text)
    except HipGraphError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _count_from(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"it is a number from {least} (got {text!r})")
        return int(text)

    return parse


def _require_place(*paths: Optional[str]) -> None:
    """Refuse a file that cannot be written before anything is run for it."""
    for path in filter(None, paths):
        folder = Path(path).resolve().parent
        if Path(path).is_dir():
            raise _Misuse(f"{path!r} cannot be written: it is a folder")
        if not folder.is_dir():
            raise _Misuse(f"{path!r} cannot be written: there is no folder {str(Path(path).parent)!r}")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let `main` end the program; rich would end it with status 1."""
        raise BrokenPipeError


def _columns() -> Optional[int]:
    """Return how wide the terminal is; None where there is none."""
    return Console().width if sys.stdout.isatty() else None


def _console() -> Console:
    return _Console(file=sys.stdout, highlight=False, soft_wrap=True)


# -- finding a workflow ------------------------------------------------------------------------------------------------


def load_graph(
    spec: str,
    arrays: Optional[Mapping[str, Any]] = None,
    import_callbacks: bool = False,
) -> Graph:
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
        If the file is no workflow.
    """
    path = Path(spec)
    suffix = path.suffix.lower()
    if suffix in _FILES:
        return _graph_of_file(path, suffix, arrays or {}, import_callbacks)
    place, name = spec, "build"
    if not path.exists() and ":" in spec:
        place, _, name = spec.rpartition(":")
        if not name:
            raise _Misuse(f"{spec!r} ends with ':'; write file.py:name, or leave the ':' out")
    path = Path(place)
    if path.is_dir():
        raise _Misuse(f"{place!r} is a folder; give {_WORKFLOW_HELP}")
    if path.suffix == ".py" or os.sep in place:
        if not path.exists():
            raise _Misuse(f"there is no file {place!r}")
        if path.suffix != ".py":
            raise _Misuse(f"{place!r} is no workflow; give {_WORKFLOW_HELP}")
        module = _module_of_file(path)
    elif path.exists() and path.suffix:
        raise _Misuse(f"{place!r} is no workflow; give {_WORKFLOW_HELP}")
    else:
        module = _module_named(place)
    return _graph_in(module, place, name)


def _graph_of_file(path: Path, suffix: str, arrays: Mapping[str, Any], import_callbacks: bool) -> Graph:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _Misuse(f"{str(path)!r} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DeclarationError(f"{str(path)!r} is no UTF-8 text: {error.reason} at byte {error.start}") from None

    def load(callbacks: Mapping[str, Callable[..., Any]]) -> Graph:
        if suffix == ".json":
            return json_format.loads(text, Graph, arrays, callbacks)
        module = importlib.import_module(".export.graphml" if suffix == ".graphml" else ".export.yaml", __package__)
        graph: Graph = module.loads(text, Graph, arrays, callbacks)
        return graph

    try:
        graph = load({})
        if import_callbacks:
            paths = _callback_paths(graph.workflow())
            if paths:
                sys.path.insert(0, str(path.resolve().parent))
                print(
                    f"hipgraphdsl: importing {', '.join(sorted({p.partition(':')[0] for p in paths}))}", file=sys.stderr
                )
                graph = load({path: _imported(path) for path in paths})
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}", node=error.node, array=error.array) from None
    return graph


def _callback_paths(workflow: Workflow) -> dict[str, None]:
    found: dict[str, None] = {}
    for node in workflow.nodes:
        if isinstance(node, (HostNode, CapturedNode)) and isinstance(node.fn, UnboundCallback):
            found[node.fn.path] = None
        elif isinstance(node, ChildGraphNode):
            found.update(_callback_paths(node.workflow))
        elif isinstance(node, ConditionalNode):
            for body in node.bodies:
                found.update(_callback_paths(body))
    return found


def _imported(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    found: Any = _module_named(module_name)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise DeclarationError(
            f"callback {path!r} is named by the file, and module {module_name!r} has no such function"
        )
    function: Callable[..., Any] = found
    return function


@contextmanager
def _user_code(what: str) -> Iterator[None]:
    """Turn what the user's own code raises into one message with the line where it happened."""
    try:
        yield
    except (HipGraphError, _Misuse):
        raise
    except SystemExit as error:
        raise _UserCodeFailed(f"{what} ended the program (SystemExit {error.code})") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        here = os.path.dirname(__file__)
        outside = [frame for frame in frames if not frame.filename.startswith((here, "<frozen"))]
        where = f" at {outside[-1].filename}:{outside[-1].lineno}" if outside else ""
        if isinstance(error, SyntaxError):
            where = f" at {error.filename}:{error.lineno}"
        raise _UserCodeFailed(f"{what} failed: {type(error).__name__}: {error}{where}") from error


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
        raise _Misuse(f"{name!r} is neither a file nor a module; give {_WORKFLOW_HELP}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with _user_code(f"module {name!r}"):
            return importlib.import_module(name)
    except _UserCodeFailed as error:
        cause = error.__cause__
        if (
            isinstance(cause, ModuleNotFoundError)
            and cause.name
            and (name == cause.name or name.startswith(f"{cause.name}."))
        ):
            raise _Misuse(f"there is no file and no module {name!r}") from None
        raise


def _graph_in(module: ModuleType, place: str, name: str) -> Graph:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        names = [
            key
            for key, value in vars(module).items()
            if isinstance(value, Graph)
            or (inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_"))
        ]
        shown = ", ".join(repr(key) for key in names) or "none"
        raise _Misuse(f"{place!r} has no {name!r}; its Graphs and functions are {shown}: name one as {place}:NAME")
    if callable(found) and not isinstance(found, Graph):
        required = [
            p.name
            for p in inspect.signature(found).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if required:
            raise _Misuse(
                f"{place}:{name} needs the arguments {', '.join(required)}; name a function that can be called without"
            )
        with _user_code(f"{place}:{name}"):
            found = found()
    if isinstance(found, Workflow):
        return json_format.loads(json_format.dumps(found), Graph)
    if not isinstance(found, Graph):
        raise _Misuse(f"{place}:{name} is of type {type(found).__name__}, not a Graph or a function that returns one")
    return found


def _pairs(items: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise _Misuse(f"{option} takes NAME=VALUE (got {item!r})")
        if name in found:
            raise _Misuse(f"{option} gives {name!r} twice")
        found[name] = value
    return found


def _load_npy(path: str) -> np.ndarray[Any, Any]:
    try:
        values: np.ndarray[Any, Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise _Misuse(f"{path!r} cannot be read as an .npy file: {why}") from None
    return values


# -- info --------------------------------------------------------------------------------------------------------------

_PACKAGES = (
    "numpy",
    "networkx",
    "pydantic",
    "rich",
    "hip-python",
    "cuda-bindings",
    "ziglang",
    "matplotlib",
    "pygraphviz",
    "PyYAML",
)


def _info(options: argparse.Namespace) -> int:
    if options.target:
        return _info_target(Target.named(options.target), options.json)
    version = importlib.import_module("hipgraphdsl").__version__
    report: dict[str, Any] = {
        "hipgraphdsl": version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _package_version(name) for name in _PACKAGES},
    }
    reasons = dict(explain_auto(options.device))
    runtimes: dict[str, Any] = {}
    for name in ("amd", "nvidia", "cpu"):
        try:
            runtime = open_runtime(name, options.device)
        except HipGraphError as error:
            runtimes[name] = {"available": False, "why": str(error)}
            continue
        chosen = reasons.get(name, "").startswith("chosen")
        runtimes[name] = {"available": True, "auto": chosen, **_runtime_facts(runtime)}
    report["runtimes"] = runtimes
    report["environment"] = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("HIPGRAPHDSL_")}
    if options.json:
        print(json.dumps(report, indent=1, default=str))
        return GOOD
    console = _console()
    console.print(
        Text(f"hipgraphdsl {version}", style="bold"), Text(f"Python {report['python']} on {report['platform']}")
    )
    console.print(
        "packages: " + ", ".join(f"{name} {found or 'not installed'}" for name, found in report["packages"].items())
    )
    for name, facts in runtimes.items():
        if not facts["available"]:
            console.print(Text(f"\n{name}: not available", style="yellow"))
            console.print(Text(f"  {facts['why']}"))
            continue
        auto = ", taken by runtime='auto'" if facts["auto"] else ""
        console.print(Text(f"\n{name}: {facts['target']}{auto}", style="green"))
        for key, value in facts.items():
            if key not in ("available", "auto", "target", "defects", "runtime"):
                console.print(Text(f"  {key}: {_plain(value)}"))
        for defect in facts["defects"]:
            console.print(Text(f"  known defect {defect['id']}: {defect['title']}; {defect['handling']}"))
    for name, value in report["environment"].items():
        console.print(Text(f"{name}={value}"))
    return GOOD


def _runtime_facts(runtime: Runtime) -> dict[str, Any]:
    target = runtime.target
    facts: dict[str, Any] = {"target": target.name}
    facts.update(
        (key, value) for key, value in runtime.describe().items() if key not in ("runtime", "target", "defects")
    )
    facts["devices"] = [f"{n}: {runtime.get_device_name(n)}" for n in range(runtime.get_device_count())]
    facts["limits"] = (
        f"{target.max_threads} threads a block, {human_bytes(target.max_shared_bytes)} shared memory, warp size"
        f" {target.warp_size}"
    )
    facts["defects"] = [_defect_facts(defect) for defect in defects_for(target)]
    return facts


def _defect_facts(defect: Any) -> dict[str, str]:
    return {"id": defect.id, "title": defect.title, "handling": defect.handling, "source": defect.source}


def _info_target(target: Target, as_json: bool) -> int:
    found = [_defect_facts(defect) for defect in defects_for(target)]
    if as_json:
        print(json.dumps({"target": target.name, "version": list(target.version), "defects": found}, indent=1))
        return GOOD
    print(f"{target.name}: {len(found)} of {len(DEFECTS)} known defects and limits")
    for defect in found:
        print(
            f"  {defect['id']}\n    {defect['title']}\n    handling: {defect['handling']}\n    source:"
            f" {defect['source']}"
        )
    if not target.version:
        print("  (without a version, only those that all versions have; add one: amd:gfx942@7.2)")
    return GOOD


def _package_version(name: str) -> Optional[str]:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value)) or "none"
    return str(value)


# -- check, show, diff, schema -----------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    _require_place(options.output)
    target = Target.named(options.target) if options.target else None
    report = load_graph(options.workflow).check(target)
    if options.format == "text":
        if options.output:
            write_file(options.output, f"{report}\n")
            _say_written(options.output)
        else:
            _console().print(report)
    else:
        text = report.to_json() if options.format == "json" else report.to_sarif()
        _put(text.rstrip("\n") + "\n", options.output)
    return FAULTY if report.errors or (options.strict and report.warnings) else GOOD


def _put(text: str, output: Optional[str]) -> None:
    if output:
        write_file(output, text)
        _say_written(output)
    else:
        sys.stdout.write(text)


def _show(options: argparse.Namespace) -> int:
    if options.output and not is_known(options.output):
        raise _unknown_format(options.output, formats())
    _require_place(options.output)
    graph = load_graph(options.workflow)
    if options.output:
        given = {name: _option_value(value) for name, value in _pairs(options.option, "--option").items()}
        if options.backend:
            given["backend"] = options.backend
        export_graph(graph.workflow(), options.output, **given)
        _say_written(options.output)
        return GOOD
    if options.option or options.backend:
        raise _Misuse(f"--{'option' if options.option else 'backend'} belongs to -o FILE")
    if options.plan:
        print(graph.plan(target=options.target, lanes=options.lanes))
        return GOOD
    for part in _pictured(graph.workflow(), options.rows or sys.maxsize):
        _print_part(part)
    return GOOD


def _say_written(path: str) -> None:
    """Say on standard error which file has been written, and how large it is."""
    with suppress(OSError):  # a pipe or a device has no size
        if Path(path).is_file():
            print(f"wrote {path} ({human_bytes(Path(path).stat().st_size)})", file=sys.stderr)


def _unknown_format(path: str, known: Iterable[str]) -> _Misuse:
    return _Misuse(f"{path!r} names no format by its extension; formats are {', '.join(known)}")


def _build(options: argparse.Namespace) -> int:
    source = Path(options.program)
    if not source.is_file():
        raise _Misuse(f"there is no file {options.program!r}")
    output = Path(options.output) if options.output else source.with_suffix("")
    if output == source:
        raise _Misuse(f"{options.program!r} has no extension, so the executable needs a name: -o FILE")
    _require_place(str(output))
    build_program(source, output, options.cxx_option)
    _say_written(str(output))
    return GOOD


def _print_part(part: Any) -> None:
    """Print text as it is, and a table so that it fits the terminal."""
    if isinstance(part, Table):
        print()
        _Console(file=sys.stdout, highlight=False).print(part)
    else:
        _console().print(part)


def _option_value(text: str) -> Any:
    """Return an option's value: true, false, a number, or text."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _pictured(workflow: Workflow, rows: int) -> Iterator[Any]:
    """Yield the parts of the text form: a heading, arrays, parameters, nodes."""
    edges = sum(map(len, workflow.predecessors))
    infer = "" if workflow.infer else ", declared edges only"
    total = sum(array.nbytes for array in workflow.arrays.values())
    yield Text(
        f"{workflow.name}: {_count(len(workflow.nodes), 'node')}, {_count(edges, 'edge')}{infer},"
        f" {_count(len(workflow.arrays), 'array')} of {human_bytes(total)}",
        style="bold",
    )
    if workflow.arrays:
        lines = [
            (
                array.name,
                _array_kind(array),
                str(array.dtype),
                " x ".join(map(str, array.shape)),
                human_bytes(array.nbytes),
                _initial_text(array),
            )
            for array in workflow.arrays.values()
        ]
        yield _table(("array", "kind", "dtype", "shape", "size", "initial"), lines, rows, right=(4,))
    if workflow.parameters:
        values = [
            (
                p.name,
                str(p.dtype),
                " x ".join(map(str, p.shape)) or "scalar",
                "must be given" if p.default is None else _short(p.default),
            )
            for p in workflow.parameters.values()
        ]
        yield _table(("parameter", "dtype", "shape", "default"), values, rows)
    if workflow.nodes:
        yield _table(("node", "kind", "what", "after"), _node_rows(workflow), rows)


def _array_kind(array: Array) -> str:
    if isinstance(array, HostArray):
        return "host" if array.pinned else "host, pageable"
    if isinstance(array, ExternalArray):
        return f"external, {array.location}"
    return array.kind


def _initial_text(array: Array) -> str:
    values = getattr(array, "initial", None)
    if isinstance(array, ExternalArray):
        return "" if array.obj is not None else "not supplied"
    if values is None:
        return ""
    return "given" if isinstance(values, np.ndarray) else "not supplied"


def _node_rows(workflow: Workflow, indent: str = "") -> list[tuple[str, str, str, str]]:
    """Return a row for each node; a child's nodes stand below it, once."""
    nodes = workflow.nodes
    rows = []
    seen: set[int] = set()
    for node, sources in zip(nodes, workflow.predecessors):
        after = ", ".join(nodes[source].name for source in sources[:6])
        more = f" and {len(sources) - 6} more" if len(sources) > 6 else ""
        rows.append((indent + node.name, node.kind, _short(node.describe(), 60), after + more))
        for inner in _inner(node):
            if id(inner) not in seen:
                seen.add(id(inner))
                rows += _node_rows(inner, indent + "  ")
    return rows


def _inner(node: Node) -> tuple[Workflow, ...]:
    if isinstance(node, ChildGraphNode):
        return (node.workflow,)
    return node.bodies if isinstance(node, ConditionalNode) else ()


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], limit: int, right: Sequence[int] = ()) -> Any:
    """Return a table: drawn by rich in a terminal, as aligned text elsewhere, so that no name is ever cut."""
    left_out = len(rows) - limit
    rows = rows[:limit]
    tail = f"... {left_out} more rows (--rows 0 shows all)" if left_out > 0 else ""
    if not sys.stdout.isatty():
        widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
        lines = [
            "  ".join(
                f"{cell:>{width}}" if i in right else f"{cell:<{width}}"
                for i, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in (heads, *rows)
        ]
        return Text("\n" + "\n".join([*lines, *([tail] if tail else [])]))
    table = Table(box=None, header_style="bold", pad_edge=False, caption=tail or None, caption_justify="left")
    for i, head in enumerate(heads):
        table.add_column(
            head, justify="right" if i in right else "left", overflow="fold", style="cyan" if i == 0 else None
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _short(value: Any, most: int = 40) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _diff(options: argparse.Namespace) -> int:
    found = compare(load_graph(options.old), load_graph(options.new))
    if options.json:
        sys.stdout.write(found.to_json())
    else:
        _console().print(found)
    return FAULTY if options.exit_code and not found.same else GOOD


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(schema(), indent=1))
    return GOOD


# -- run and verify ----------------------------------------------------------------------------------------------------


def _supplied_graph(options: argparse.Namespace) -> tuple[Graph, dict[str, np.ndarray[Any, Any]]]:
    """Return the graph, and the given arrays that are still to be written."""
    given = {name: _load_npy(path) for name, path in _pairs(options.array, "--array").items()}
    is_file = Path(options.workflow).suffix.lower() in _FILES
    runs = not getattr(options, "dry_run", False)
    if options.import_callbacks and not is_file:
        raise _Misuse("--import-callbacks is for workflow files; a Python file brings its own")
    graph = load_graph(options.workflow, given if is_file else None, options.import_callbacks)
    missing = graph.workflow().unbound()
    if missing and runs:
        lines = [f"graph {graph.name!r} cannot run: its file names what is not there:"]
        lines += [f"  {name}: {what}" for name, what in missing[:20]]
        lines.append("give arrays with --array NAME=FILE.npy and callbacks with --import-callbacks")
        raise DeclarationError("\n".join(lines))
    if is_file and runs:
        print(
            f"hipgraphdsl: {options.workflow} holds native code, which is compiled and run now; run only files that"
            " you trust",
            file=sys.stderr,
        )
    return graph, {} if is_file else given


def _parameter_values(graph: Graph, items: Sequence[str]) -> dict[str, Any]:
    """Return the values of --param, each read as its parameter's dtype."""
    found = {}
    for name, text in _pairs(items, "--param").items():
        parameter = _parameter(graph.workflow(), name)
        found[name] = _parameter_value(parameter, text)
    for parameter in dict.fromkeys(used for node in graph.nodes for used in node.parameters):
        if parameter.default is None and parameter.name not in found:
            value = "@FILE.npy" if parameter.shape else "VALUE"
            raise _Misuse(f"parameter {parameter.name!r} has no default: give --param {parameter.name}={value}")
    return found


def _parameter(workflow: Workflow, name: str) -> Parameter:
    outer = name.partition("/")[0]
    for inner, document, _ in held(workflow.nodes[workflow.index[outer]]) if outer in workflow.index else ():
        if name.startswith(f"{inner}/"):
            return _parameter(document, name.removeprefix(f"{inner}/"))
    if name not in workflow.parameters:
        shown = ", ".join(map(repr, workflow.parameters)) or "none"
        raise _Misuse(f"graph {workflow.name!r} has no parameter {name!r}; its parameters are {shown}")
    return workflow.parameters[name]


def _parameter_value(parameter: Parameter, text: str) -> Any:
    dtype = parameter.dtype
    if parameter.shape:
        if not text.startswith("@"):
            raise _Misuse(
                f"parameter {parameter.name!r} is an array of {dtype}{list(parameter.shape)}: give --param"
                f" {parameter.name}=@FILE.npy"
            )
        return np.ascontiguousarray(_load_npy(text[1:]))
    try:
        if dtype.kind == "b":
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if dtype.kind in "iu":
            return int(text, 0)
        if dtype.kind == "c":
            return complex(text)
        if dtype.names is None:
            return float(text)
        return tuple(ast.literal_eval(text))
    except (KeyError, ValueError, TypeError, SyntaxError):
        raise _Misuse(f"parameter {parameter.name!r} is {dtype}, and {text!r} is no value of that") from None


def _run(options: argparse.Namespace) -> int:
    if options.repeat < 1:
        raise _Misuse(f"--repeat is a number from 1 (got {options.repeat})")
    saves = _pairs(options.save, "--save")
    _require_place(*saves.values())
    graph, given = _supplied_graph(options)
    params = _parameter_values(graph, options.param)
    if options.dry_run:
        return _dry_run(graph, params, options)
    names = list(dict.fromkeys((*options.read, *saves))) or _results(graph.workflow())
    for name in (*options.read, *saves):
        if name not in graph.arrays and "/" not in name:
            shown = ", ".join(repr(a) for a, array in graph.arrays.items() if not isinstance(array, AllocArray))
            raise _Misuse(f"graph {graph.name!r} has no array {name!r}; its arrays are {shown or 'none'}")
    start = time.perf_counter()
    with graph.compile(
        runtime=options.runtime,
        backend=options.backend,
        lanes=options.lanes,
        device=options.device,
        check=not options.no_check,
        watch=options.watch,
    ) as exe:
        for name, values in given.items():
            exe.write(name, values)
        built = time.perf_counter()
        exe.launch(**params)
        exe.synchronize(options.timeout)
        first = time.perf_counter()
        _relaunch(exe, options.repeat - 1, options.timeout, first - built, options.json)
        end = time.perf_counter()
        profile = exe.profile() if options.profile else None
        results = {name: exe.read(name) for name in names}
        facts = {
            "graph": graph.name,
            "runtime": exe.runtime.name,
            "target": exe.runtime.target.name,
            "backend": options.backend,
            "nodes": len(exe.plan.steps),
            "edges": exe.plan.edges,
            "lanes": len(exe.plan.lanes),
            "launches": options.repeat,
            "compile_ms": (built - start) * 1e3,
            "first_launch_us": (first - built) * 1e6,
        }
        if options.repeat > 1:
            facts["launch_us"] = (end - first) * 1e6 / (options.repeat - 1)
    for name, path in saves.items():
        try:
            with open(path, "wb") as file:
                np.save(file, results[name], allow_pickle=False)
        except OSError as error:
            raise _Misuse(f"{path!r} cannot be written: {error.strerror}") from None
    summaries = [_summary(name, values) for name, values in results.items()]
    if options.json:
        facts["arrays"] = summaries
        if profile is not None:
            facts["profile"] = json.loads(profile.to_json())
        print(json.dumps(facts, indent=1, allow_nan=False))
        return GOOD
    console = _console()
    console.print(
        Text(
            f"{graph.name}: {_count(facts['nodes'], 'node')}, {_count(facts['edges'], 'edge')},"
            f" {_count(facts['lanes'], 'lane')} on"
            f" {facts['target']}, backend {options.backend}",
            style="bold",
        )
    )
    again = f", then {facts['launch_us']:.1f} us each" if options.repeat > 1 else ""
    console.print(
        f"compiled in {facts['compile_ms']:.1f} ms; {options.repeat} launch{'es' * (options.repeat != 1)}:"
        f" the first took {facts['first_launch_us']:.1f} us{again}"
    )
    if summaries:
        heads = ("array", "dtype", "shape", "min", "max", "mean")
        rows = [
            (
                str(s["name"]),
                str(s["dtype"]),
                " x ".join(map(str, s["shape"])),
                *(_number(s.get(key)) for key in ("min", "max", "mean")),
            )
            for s in summaries
        ]
        _print_part(_table(heads, rows, sys.maxsize, right=(3, 4, 5)))
    if profile is not None:
        console.print(Text(f"\n{profile.text(_columns())}"))
    return GOOD


def _results(workflow: Workflow) -> list[str]:
    """Return the host arrays that nodes write; where there is none, the device arrays that nodes write."""
    written = {access.view.root for access in workflow.accesses if access.is_write}
    arrays = [array for array in workflow.arrays.values() if array in written and not isinstance(array, AllocArray)]
    hosts = [array.name for array in arrays if array.on_host]
    return hosts or [array.name for array in arrays]


def _relaunch(exe: Any, count: int, timeout: Optional[float], expected_s: float, quiet: bool) -> None:
    """Launch again and again; where that takes long and somebody watches, with a progress bar."""
    if count <= 0:
        return
    if quiet or not sys.stderr.isatty() or expected_s * count < 1.0:
        for _ in range(count):
            exe.launch()
        exe.synchronize(timeout)
        return
    columns = (TextColumn("launching"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("launching", total=count)
        done, batch = 0, 1
        while done < count:
            batch = min(batch, count - done)
            began = time.perf_counter()
            for _ in range(batch):
                exe.launch()
            exe.synchronize(timeout)
            took = time.perf_counter() - began
            done += batch
            progress.update(task, completed=done)
            if took < 0.1:  # enough launches between two waits that waiting costs nothing
                batch *= 2


def _summary(name: str, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name, "dtype": str(values.dtype), "shape": list(values.shape)}
    kind = "f" if values.dtype.name == "bfloat16" else values.dtype.kind
    if kind in "biuf":
        numbers = values.astype("f8")
        finite = numbers[np.isfinite(numbers)]
        out["finite"] = int(finite.size)
        if finite.size:
            out["min"], out["max"], out["mean"] = float(finite.min()), float(finite.max()), float(finite.mean())
        if finite.size < numbers.size:
            out["not_finite"] = int(numbers.size - finite.size)
    elif kind == "c":
        magnitude = np.abs(values)
        out["min"], out["max"], out["mean"] = (float(f(magnitude)) for f in (np.min, np.max, np.mean))
        out["of"] = "magnitude"
    return {key: value for key, value in out.items() if not (isinstance(value, float) and not np.isfinite(value))}


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.6g}"


def _dry_run(graph: Graph, params: Mapping[str, Any], options: argparse.Namespace) -> int:
    """Print the calls that compiling and launching make, recorded by a runtime without a device."""
    recorder_module = importlib.import_module(".runtimes.recorder", __package__)
    target = {"amd": "amd:gfx942", "nvidia": "nvidia:sm_90", "cpu": "cpu", "auto": "amd:gfx942"}[options.runtime]
    runtime = recorder_module.RecorderRuntime(options.device, target=target)
    sections: list[tuple[str, list[Any]]] = []
    with graph.compile(
        runtime=runtime, backend=options.backend, lanes=options.lanes, device=options.device, check=not options.no_check,
        watch=options.watch,
    ) as exe:
        sections.append(("compile", list(runtime.calls)))
        runtime.calls.clear()
        for _ in range(options.repeat):
            exe.launch(**params)
        exe.synchronize()
        sections.append(("launch", list(runtime.calls)))
        runtime.calls.clear()
    sections.append(("close", list(runtime.calls)))
    if options.json:
        data = {
            title: [{"api": call.api, "args": [_call_argument(a) for a in call.args]} for call in calls]
            for title, calls in sections
        }
        print(json.dumps({"graph": graph.name, "target": target, "backend": options.backend, **data}, indent=1))
        return GOOD
    for title, calls in sections:
        print(f"# {title}: {_count(len(calls), 'call')}")
        for call in calls:
            print(f"{call.api}({', '.join(_call_argument(a) for a in call.args)})")
    return GOOD


def _call_argument(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return hex(value) if value >= 2**16 else str(int(value))
    return _short(value, 100).replace("\n", "\\n")


def _timeline(options: argparse.Namespace) -> int:
    options.dry_run = bool(options.duration)  # a prediction runs nothing
    given = {name: _option_value(value) for name, value in _pairs(options.option, "--option").items()}
    if given and not options.output:
        raise _Misuse("--option belongs to -o FILE")
    if options.output and not timelines.is_known(options.output):
        raise _unknown_format(options.output, TIMELINE_FORMATS)
    _require_place(options.output)
    if options.engine and not options.duration:
        raise _Misuse("--engine belongs to a prediction: give each kind's time with --duration")
    if options.param and options.duration:
        raise _Misuse("--param belongs to a measurement: leave --duration out")
    durations = _numbers(options.duration, "--duration", float)
    engines = _numbers(options.engine, "--engine", int)
    graph, arrays = _supplied_graph(options)
    if durations:
        found = graph.simulate(durations, engines)
    else:
        params = _parameter_values(graph, options.param)
        with graph.compile(runtime=options.runtime, lanes=options.lanes, device=options.device) as exe:
            for name, values in arrays.items():
                exe.write(name, values)
            exe.run(**params)  # what is compiled and placed at the first launch is not measured
            found = exe.profile()
    if options.output:
        export_timeline(found, options.output, **given)
        _say_written(options.output)
    else:
        print(found.text(_columns()))
    return GOOD


def _numbers(items: Sequence[str], option: str, kind: Callable[[str], Any]) -> dict[str, Any]:
    found = {}
    for name, text in _pairs(items, option).items():
        try:
            found[name] = kind(text)
        except ValueError:
            raise _Misuse(f"{option} {name} takes a number (got {text!r})") from None
    return found


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    backends = ("explicit", "capture", "streams")
    parser.add_argument(
        "--runtime", default="auto", choices=_RUNTIMES, help="compare its backends with the proof on the CPU too (default: auto)"
    )
    parser.add_argument(
        "--backend", action="append", choices=backends, help="compare this one with the serial run (default: all three)"
    )
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number of the runtime's device (default: 0)")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="value of a parameter")
    parser.add_argument("--orders", type=_count_from(0), default=20, metavar="N", help="orders that are tried (default: 20)")
    parser.add_argument("--repeats", type=_count_from(1), default=5, metavar="N", help="launches of each backend (default: 5)")
    parser.add_argument("--tolerance", type=float, metavar="X", help="largest difference (default: every byte counts)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the orders (default: 0)")
    parser.add_argument("--no-audit", action="store_true", help="do not run each node alone")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _verify(options: argparse.Namespace) -> int:
    graph, given = _supplied_graph(options)
    if given:
        raise _Misuse("--array is for workflow files; a Python file gives its own initial values")
    report = verify(
        graph,
        options.runtime,
        options.backend or ("explicit", "capture", "streams"),
        orders=options.orders,
        repeats=options.repeats,
        tolerance=options.tolerance,
        params=_parameter_values(graph, options.param),
        seed=options.seed,
        audit=not options.no_audit,
        device=options.device,
        progress=sys.stderr.isatty() and not options.json,
    )
    if options.json:
        sys.stdout.write(report.to_json().rstrip("\n") + "\n")
    else:
        _console().print(report)
    return GOOD if report.ok else FAULTY


# -- bench -------------------------------------------------------------------------------------------------------------


def _benchmarks() -> dict[str, tuple[str, str]]:
    """Return the benchmarks: name -> module and first line of its docstring; none is imported."""
    package = Path(__file__).parent
    folders = {f"{__package__}.bench": package / "bench"}
    if (package.parent / "pyproject.toml").exists():  # a checkout, which has the developers' own beside the package
        folders["benchmarks"] = package.parent / "benchmarks"
    found = {}
    for parent, folder in folders.items():
        for module in pkgutil.iter_modules([str(folder)]):
            path = folder / f"{module.name}.py"
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(item, ast.FunctionDef) and item.name == "main" for item in tree.body):
                title = (ast.get_docstring(tree) or "").replace("``", "").partition("\n")[0]
                title = re.sub(r"^hipgraphdsl bench [^:]*: ", "", title)
                found[module.name] = (f"{parent}.{module.name}", title[:1].upper() + title[1:])
    return dict(sorted(found.items()))


def _benchmark_list() -> str:
    known = _benchmarks()
    width = max(map(len, known), default=0)
    return "\n".join(f"  {name:<{width}}  {title}" for name, (_, title) in known.items()) or "  none is installed"


def _bench(options: argparse.Namespace) -> int:
    known = _benchmarks()
    if options.name is not None and options.name not in known:
        raise _Misuse(f"there is no benchmark {options.name!r}; benchmarks are {', '.join(known) or 'none'}")
    status = GOOD
    for name in [options.name] if options.name else list(known):
        if not options.name:
            print(f"== {name}: {known[name][1]}", flush=True)
        module = importlib.import_module(known[name][0])
        parser = argparse.ArgumentParser(
            prog=f"hipgraphdsl bench {name}", description=(module.__doc__ or "").replace("``", ""), formatter_class=_Help
        )
        module.add_arguments(parser)
        parser.set_defaults(load_graph=load_graph)  # for benchmarks of the user's own workflows
        arguments = parser.parse_args(options.arguments if options.name else [])
        given = vars(arguments)
        plots = [path for name in ("plot", "plot_submit") for path in given.get(name) or ()]
        _require_place(given.get("output"), given.get("markdown"), *plots)
        try:
            status = max(status, int(module.main(arguments) or GOOD))
        except RuntimeUnavailable as error:
            if options.name:
                raise
            print(f"left out: {error}")
    return status


if __name__ == "__main__":
    sys.exit(main())
