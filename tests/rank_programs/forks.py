"""Ranks that are forks of one process which has imported what they need, once: an interpreter starts longer than most run.

``forks.py`` reads requests, a line of JSON each, and answers when all ranks of a request have ended.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from rank_programs.left_alone import ring

TESTS = Path(__file__).parent.parent
#: What the package imports late, and a rank needs beside what `compile` imports.
LATE = ("parts.ranks.ranked", "parts.cpu.rtc", *(f"parts.ranks.transports.{name}" for name in ("mpi", "nccl", "store")))


class Forks:
    """The process, for tests. Requests are done one after the other."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, __file__], env={**os.environ, "PYTHONPATH": path}, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self._said: list[Path] = []

    def start(self, folder: Path, program: str, ranks: Sequence[Sequence[object]], **environment: str) -> list[int]:
        """Start one process for each list of arguments of a program's `main`; return their numbers."""
        folder.mkdir(parents=True, exist_ok=True)
        self._said = [folder / f"printed.{n}" for n in range(len(ranks))]
        given = [[str(said), *map(str, arguments)] for said, arguments in zip(self._said, ranks)]
        return list(map(int, self._ask({"program": program, "ranks": given, "environment": environment}).split()))

    def printed(self) -> list[str]:
        """Wait until those that were started last have ended; return what each printed."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ended\n", "ranks that do not end"
        return [said.read_text() for said in self._said]

    def _ask(self, request: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def forked(program: str, said: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
    """Be one rank."""
    with Path(said).open("w") as out:
        os.dup2(out.fileno(), sys.stdout.fileno())
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.environ.update(environment)
    sys.argv = [program, *arguments]
    importlib.import_module(f"rank_programs.{program}").main(*arguments)


def import_all() -> None:
    """Import what ranks need, without starting a thread."""
    for name in (*(f"hipgraphdsl.{name}" for name in LATE), "rank_programs.by_nccl", "rank_programs.by_store"):
        importlib.import_module(name)
    ring(2).compile(RecorderRuntime()).close()  # imports the rest, and builds the models of nodes


def main() -> None:
    """Fork ranks until no more are asked for."""
    import_all()
    while line := sys.stdin.readline():
        asked = json.loads(line)
        processes = []
        for said, *arguments in asked["ranks"]:
            if (process := os.fork()) == 0:
                return forked(asked["program"], said, arguments, asked["environment"])
            processes.append(process)
        print(*processes, flush=True)
        signal.alarm(240)  # ends this process, and the test that waits for it
        for process in processes:
            os.waitpid(process, 0)
        signal.alarm(0)
        print("ended", flush=True)
    return None


if __name__ == "__main__":
    main()
