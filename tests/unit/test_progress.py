"""The bar that shows where a long compile is, and what is logged of it."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import types
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import pytest

import hipgraphdsl as hg
from hipgraphdsl import compiler, progress
from hipgraphdsl.progress import hidden, progress_bar


class Terminal(io.StringIO):
    """A terminal that a thread of a bar writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Condition()
        self.wanted: dict[str, Callable[[], object]] = {}  # what to do once a text has come

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self.written:
            count = super().write(text)
            self.written.notify_all()
            wanted = [known for known in self.wanted if known in text]
            for done in [self.wanted.pop(known) for known in wanted]:
                done()
        return count

    def shows(self, text: str) -> bool:
        """Wait for a text."""
        with self.written:
            return self.written.wait_for(lambda: text in self.getvalue(), 60)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def graph() -> hg.Graph:
    g = hg.Graph("slow")
    scale = hg.Module('extern "C" __global__ void scale(float* x) { x[0] *= 2; }')["scale"]
    g.kernel(scale, 1, 1, (g.device_array("x", [1.0], dtype="float32"),))
    return g


def test_progress_bar_shows_the_stage_on_a_terminal_and_is_gone_at_the_end(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress_bar("compile slow", True, 2) as advance:
        advance("plan")
        assert terminal.shows("compile slow: plan")
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back


def test_progress_bar_waits_a_second_before_it_appears_by_itself(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stderr(terminal), progress_bar("compile slow", None) as advance:
        advance("plan")
    assert terminal.getvalue() == ""
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.01)
    with redirect_stderr(terminal), progress_bar("compile slow", None) as advance:
        advance("plan")
        assert terminal.shows("compile slow: plan")


@pytest.mark.parametrize("wanted", [None, False])
def test_progress_bar_shows_nothing_in_a_file(wanted: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(progress.threading, "Timer", None)  # type: ignore[attr-defined]  # nothing can come later
    with progress_bar("compile slow", wanted) as advance:
        advance("plan")
    assert capsys.readouterr() == ("", "")


def test_progress_bar_warns_of_nothing_in_a_notebook_without_widgets(monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with progress_bar("compile slow", True) as advance:
        advance("plan")  # the bar was drawn when it began
    assert not recwarn.list


@pytest.mark.parametrize("within", ["nothing", "a bar", "an unwanted bar", "a compile without"])
def test_a_slow_build_is_named_on_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, within: str
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(compiler, "_SLOW_S", 0.0)
    seen = tmp_path / "seen"
    os.mkfifo(seen)  # the compiler ends when someone opens it: at once, or when the bar has named it
    slow = compiler.Compiler(("/bin/sh", "-c", f": < {seen}", "g++"), "gcc", "g++ 12.2")
    said = "sh builds the CPU runtime, once"
    shown = within in ("nothing", "a bar")
    if not shown:
        threading.Thread(target=seen.write_text, args=("",)).start()
    else:
        terminal.wanted[said] = threading.Thread(target=seen.write_text, args=("",)).start
    around: dict[str, AbstractContextManager[Any]] = {
        "nothing": nullcontext(),
        "a bar": progress_bar("compile", True),
        "an unwanted bar": progress_bar("compile", False),
        "a compile without": hidden(True),
    }
    with redirect_stderr(terminal), around[within]:
        compiler._run(slow, [], tmp_path, "the CPU runtime")
    assert (said in terminal.getvalue()) == shown
    assert (f"compile: {said}" in terminal.getvalue()) == (within == "a bar")


def test_compile_names_its_stages(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        graph().compile("recorder", progress=True).close()
        assert "compile slow: lower and instantiate" in terminal.getvalue()
        before = terminal.getvalue()
        graph().compile("recorder").close()
        graph().compile("recorder", progress=False).close()
    assert terminal.getvalue() == before


def test_compile_logs_what_it_did_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "hipgraphdsl"):
        graph().compile("recorder").close()
    said = {record.levelname: record.getMessage() for record in caplog.records}
    assert "graph 'slow': compiled for" in said["INFO"]
    assert "1 step, 0 edges of 0 declared, 1 lane" in said["INFO"]
    assert any("compiled scale in" in record.getMessage() for record in caplog.records)
    assert "1 modules loaded in" in said["DEBUG"]
