"""A progress bar for long operations, by default on terminals and in notebooks only."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_PATIENCE_S = 1.0  # seconds before a bar appears by default


#: What names a stage in each bar in progress, also in those that are not shown; the innermost is last.
_bars: list[Callable[[str], None]] = []


def no_progress(stage: str) -> None:
    """Accept the name of a stage, and show nothing."""


@contextmanager
def progress_bar(
    title: str, wanted: bool | None, total: int | None = None, *, lines: bool = False
) -> Iterator[Callable[[str], None]]:
    """Show a bar on standard error or in the notebook, erased at the end; yield a function that takes the name of each stage.

    If `wanted` is True it is shown at once; if None, after a second and only on a terminal or in a notebook. Without a `total`
    of stages the bar is indeterminate. With `lines`, stages are numbered, and printed as lines where no bar can be drawn.
    """
    stages = itertools.count()

    def described(stage: str, number: int) -> str:
        return f"{title}: {stage}" if total is None or not lines else f"{title}, {number + 1} of {total}: {stage}"

    notebook = "ipykernel" in sys.modules
    if wanted is False or (wanted is None and not (notebook or (sys.stderr is not None and sys.stderr.isatty()))):

        def line(stage: str) -> None:
            print(described(stage, next(stages)), file=sys.stderr, flush=True)

        with _innermost(no_progress):
            yield line if lines and wanted is None and sys.stderr is not None else no_progress
        return
    from rich.console import Console  # imported only to draw: importing it takes longer than compiling most graphs
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # rich warns if it cannot draw in a notebook; the plain console draws nothing there, because a bar could not be erased.
    widgets = notebook and importlib.util.find_spec("ipywidgets") is not None
    columns = (SpinnerColumn(), BarColumn(24), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True, force_jupyter=widgets), transient=True)
    task = bar.add_task(title, total=total)
    later = threading.Timer(_PATIENCE_S, bar.start)
    later.daemon = True
    if wanted:
        bar.start()
    else:
        later.start()

    def advance(stage: str) -> None:
        number = next(stages)
        bar.update(task, description=described(stage, number), completed=number)

    try:
        with _innermost(lambda stage: bar.update(task, description=f"{title}: {stage}")):
            yield advance
    finally:
        later.cancel()
        if later.ident is not None:
            later.join()
        if bar.live.is_started:
            bar.stop()


@contextmanager
def _innermost(name: Callable[[str], None]) -> Iterator[None]:
    _bars.append(name)
    try:
        yield
    finally:
        _bars.remove(name)


def hidden(unwanted: bool) -> AbstractContextManager[None]:
    """Keep `long_stage` in the block from showing a bar of its own, if it is unwanted."""
    return _innermost(no_progress) if unwanted else nullcontext()


@contextmanager
def long_stage(stage: str) -> Iterator[None]:
    """Name what takes long in the bar in progress, which may be one that is not wanted; without one, show a bar for it."""
    if _bars:
        _bars[-1](stage)
        yield
        return
    with progress_bar(stage, None):
        yield
