"""``hipgraphdsl bench sanitizer``: what the sanitizer of the CPU runtime adds to a run and to `verify`, over the examples."""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Result
from hipgraphdsl.cli.workflows import load_graph
from hipgraphdsl.errors import HipGraphError
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.bench.arguments import add_output_arguments
from hipgraphdsl.parts.bench.measure import finish, machine
from hipgraphdsl.parts.verify import verify
from hipgraphdsl.plan.options import DebugOptions
from hipgraphdsl.progress import no_progress, progress_bar
from hipgraphdsl.runtimes import open_runtime

__all__ = ["add_arguments", "main", "run"]

_FOLDER: Final = Path(__file__).parent.parent / "examples"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--example", action="append", metavar="NUMBER", help="such as 04, and again for others (default: all)")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    with progress_bar("bench sanitizer", None) as report:
        result = run(args.example or [], report)
    finish(result, args)
    return 0


def run(chosen: list[str], report: Callable[[str], None] = no_progress) -> Result:
    """Measure processor time, compilers included; machines under load tell nothing by the clock."""
    runtime: Any = open_runtime("cpu")
    result = Result("sanitizer", machine=machine(runtime))
    devices = runtime.get_device_count()
    runtime.set_device_count(max(devices, 2))
    try:
        for path in sorted(_FOLDER.glob("[0-9]*.py")):
            if chosen and path.name[:2] not in chosen:
                continue
            graph = load_graph(str(path))
            report(path.stem)
            try:
                _run(graph, sanitize=False)
            except HipGraphError as error:
                result.notes.append(f"left out {path.stem}: {error}")
                continue
            _add(result, f"{path.stem}: a run", 20, partial(_run, graph), times=2)
            _add(result, f"{path.stem}: verify, warm", 1.5, partial(_verify, graph))
            with _empty_cache():
                _add(result, f"{path.stem}: verify, cold", 1.5, partial(_verify, graph))
    finally:
        runtime.set_device_count(devices)
    return result


def _add(result: Result, what: str, limit: float, call: Callable[..., None], times: int = 1) -> None:
    """Add the ratio of processor times with and without the sanitizer; of several calls the fastest counts."""
    without, with_it = (min(_seconds(call, sanitize) for _ in range(times)) for sanitize in (False, True))
    result.add(f"{what} with the sanitizer", with_it / without, "x", limit, f"{with_it:.2f} s against {without:.2f} s")


def _seconds(call: Callable[..., None], sanitize: bool) -> float:
    before = _used()
    call(sanitize=sanitize)
    return _used() - before


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _run(graph: Graph, *, sanitize: bool) -> None:
    with graph.compile("cpu", "serial", debug=DebugOptions(sanitize=sanitize)) as executable:
        executable.run()


def _verify(graph: Graph, sanitize: bool) -> None:
    report = verify(graph, "cpu", sanitize=sanitize)
    if not report.ok:
        raise RuntimeError(str(report))


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Keep libraries elsewhere meanwhile: all kernels are compiled anew; the runtime's own library is open already."""
    before = os.environ.get("HIPGRAPHDSL_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        os.environ["HIPGRAPHDSL_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["HIPGRAPHDSL_CACHE_DIR"]
            else:
                os.environ["HIPGRAPHDSL_CACHE_DIR"] = before
