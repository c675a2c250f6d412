"""What all tests share."""

from __future__ import annotations

import ast
import faulthandler
import gc
import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from pytest_timeout import is_debugging  # type: ignore[import-untyped]

from hipgraphdsl import RuntimeUnavailable
from hipgraphdsl.parts import OWN
from hipgraphdsl.runtimes import open_runtime

# A shared machine may stall for seconds, so no example has a deadline; with a fixed seed a failure is everyone's.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


ON_GPUS = ("amd", "nvidia")

ABSENT = frozenset(name for name in OWN if (spec := find_spec(f"hipgraphdsl.parts.{name}")) is None or spec.origin is None)
"""The parts that this copy of the package lacks; none but in the copies of tests/test_parts.py."""

#: The files with the longest tests, the longest first. They begin: a worker steals half of what another has left, but not
#: its last two tests, so long tests at the end would leave a core idle.
LONGEST = (
    "property/test_changes.py", "property/test_fresh_graph.py", "property/test_backends.py", "device/test_mpi.py",
    "device/test_kernel_programs.py",
)  # fmt: skip


_SETTINGS = "_hypothesis_internal_use_settings"
_FINISHED = itertools.count(1)
_LOAD = pytest.StashKey["subprocess.Popen[str]"]()
_STDERR = pytest.StashKey[int]()
_WATCHED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--runtime", metavar="NAME", help="only the tests that are parametrised by this runtime, which must be there"
    )
    parser.addoption(
        "--examples", metavar="N", type=int, default=0, help="so many examples of each property test that runs on a GPU"
    )
    parser.addoption(
        "--part", metavar="F", type=float, default=1.0, help="of property tests only this part of their examples, at least ten"
    )
    parser.addoption("--load", action="store_true", help="keep the GPU busy from another process meanwhile")


def _choose_compiler() -> None:
    """Take the machine's own compiler where there is one: ziglang, which the extra `dev` brings, is for `make test-slow`."""
    own = next(filter(None, map(shutil.which, ("clang++", "c++", "g++"))), None)
    if own is not None:
        os.environ.setdefault("HIPGRAPHDSL_CXX", shlex.quote(own))


def pytest_configure(config: pytest.Config) -> None:
    """Choose the compiler, and start what keeps the GPU busy, once: not in each worker of xdist."""
    _choose_compiler()
    os.environ.pop("HIPGRAPHDSL_RUNTIME", None)  # a user's own choice
    config.stash[_STDERR] = os.dup(2)  # while tests run, it is captured
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes that tests start: their threads would share few cores
    if "gpu" in config.option.markexpr and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_ShowsFailures(config))
    if config.getoption("--load") and not hasattr(config, "workerinput"):
        path = Path(__file__)
        found = os.pathsep.join(filter(None, (str(path.parents[1]), os.environ.get("PYTHONPATH"))))
        load = config.stash[_LOAD] = subprocess.Popen(
            [sys.executable, str(path.with_name("gpu_load.py"))], env={**os.environ, "PYTHONPATH": found}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert load.stdout is not None
        print(f"load: {load.stdout.readline().strip() or 'none, because it has failed'}")


class _ShowsFailures:
    """Prints failures when they happen: where time on a GPU is short, a run may be ended before its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.nodeid} failed after {report.duration:.0f} s\n{report.longreprtext[-3000:]}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    load = session.config.stash.get(_LOAD, None)
    if load is not None:
        load.communicate("", timeout=60)
        if load.returncode:
            print(f"load: it has ended with status {load.returncode}, so the GPU was not busy all the time")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say once what tests on GPUs lack."""
    if "gpu" in config.option.markexpr:
        skipped = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
        for reason, count in skipped.most_common():
            terminalreporter.write_line(f"{count} skipped: {reason}")


@cache
def imported_parts(path: Path) -> set[str]:
    """Return the parts that a file of tests imports at its top, and the modules of tests/ that it imports do."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.startswith("hipgraphdsl.parts."):
                found.add(name.split(".")[2])
            for module in (name, name.rpartition(".")[0]):
                beside = Path(__file__).parent / f"{module.replace('.', '/')}.py"
                if beside.is_file():
                    found |= imported_parts(beside)
    return found


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of parts that are absent: their files import them."""
    lacks = ABSENT and collection_path.suffix == ".py" and imported_parts(collection_path) & ABSENT
    return True if lacks else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is marked to need a part that is absent, or that has the name of one as a parameter."""
    needed = {part for mark in item.iter_markers("needs") for part in mark.args}
    given = getattr(item, "callspec", None)
    if given is not None:
        needed |= {value for value in given.params.values() if isinstance(value, str)}
    if lacks := needed & ABSENT:
        pytest.skip(f"needs the part {min(lacks)!r}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: n for n, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    drawing: dict[Any, bool] = {}  # the functions of property tests, and whether they run on a GPU
    for item in items:
        if on_gpu := _is_for_a_gpu(item):
            item.add_marker("gpu")
        function = getattr(item, "function", None)
        if hasattr(function, _SETTINGS):
            item.add_marker("property")
            drawing[function] = drawing.get(function, False) or on_gpu
    for function, on_gpu in drawing.items():
        known = getattr(function, _SETTINGS)
        # On a GPU fewer than the long ones ask for: processes that share it wait for each other's time slices.
        most = (on_gpu and config.getoption("--examples")) or int(known.max_examples * config.getoption("--part"))
        setattr(function, _SETTINGS, settings(known, max_examples=max(most, min(10, known.max_examples))))
    _select_runtime(config, items)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Let a worker of xdist report only what matters of a test: else three reports are most of what a short test costs."""
    if not hasattr(item.config, "workerinput"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Watch a test by the thread of faulthandler, which shows where all threads are and ends the process.

    It takes a tenth of the time of pytest-timeout's own, and ends calls that hold the interpreter's lock too.
    """
    if settings.method != "thread" or float(item.config.getini("faulthandler_timeout") or 0) or is_debugging():
        return None
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=item.config.stash[_STDERR])
    item.stash[_WATCHED] = True
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    if not item.stash.get(_WATCHED, False):
        return None
    faulthandler.cancel_dump_traceback_later()
    return True


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections: a million objects, which each full one would visit."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Leave out what pytest and Hypothesis keep of tests, too: it grows to as many objects again."""
    if next(_FINISHED) % 300 == 0:
        gc.collect()
        gc.freeze()


def _is_for_a_gpu(item: pytest.Item) -> bool:
    """Return whether a test runs on a device: it has a runtime for GPUs as parameter, or as the fixture of its file."""
    if item.path.parent.name in ("unit", "error_checks") or item.path.name == "test_layers.py":
        return False
    given = getattr(item, "callspec", None)
    if given is not None and any(isinstance(value, str) and value in ON_GPUS for value in given.params.values()):
        return True
    return item.path.name.startswith("test_amd") and "runtime" in getattr(item, "fixturenames", ())


def _select_runtime(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("--runtime")
    if not chosen:
        return
    try:
        open_runtime(chosen)
    except RuntimeUnavailable as error:
        raise pytest.UsageError(str(error)) from error
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        params = getattr(item, "callspec", None)
        mine = params is not None and any(isinstance(value, str) and value == chosen for value in params.params.values())
        (kept if mine else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
