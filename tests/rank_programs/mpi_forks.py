"""Ranks of mpiexec that are forks of one process which has imported all but MPI, once.

mpiexec starts ``stay.py FOLDER --fork SOCKET PROGRAM ARGUMENT...``, which hands its environment and files to
``mpi_forks.py SOCKET``, and waits for the rank that this forks. It begins MPI itself, over the connection that mpiexec made.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rank_programs.forks import TESTS, import_all

MOST_BYTES = 1 << 17  # of an environment


class MpiForks:
    """The process, for tests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(path)], env={**os.environ, "PYTHONPATH": found}, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listens\n"

    def close(self) -> None:
        """End the process, and the ranks that are left."""
        self._process.communicate(timeout=60)


def forked(connection: socket.socket) -> None:
    """Be the rank that a process of mpiexec's asks for, which stays while this process has the connection."""
    request, files, *_ = socket.recv_fds(connection, MOST_BYTES, 4)
    (program, *arguments), folder, environment = ast.literal_eval(request.decode())
    for ours, given in zip(range(3), files):
        os.dup2(given, ours)
        os.close(given)
    os.environ.clear()
    os.environ.update(environment, PMI_FD=str(files[3]))
    os.chdir(folder)
    sys.argv = [program, *arguments]
    importlib.import_module(f"rank_programs.{program}").main(*arguments)


def main(path: str) -> None:
    """Fork ranks until the standard input ends."""
    import_all()
    mpi = find_spec("mpi4py.MPI")
    assert mpi is not None
    ctypes.CDLL(mpi.origin)  # only loads MPI's library: a module that is imported would have begun MPI
    ranks: set[int] = set()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen(16)
        print("listens", flush=True)
        while sys.stdin not in (ready := select.select([sys.stdin, server], [], [], 1)[0]):
            while ranks and (ended := os.waitpid(-1, os.WNOHANG)[0]):
                ranks.remove(ended)
            if not ready:
                continue
            connection, _ = server.accept()
            if (rank := os.fork()) == 0:
                server.close()
                return forked(connection)
            connection.close()
            ranks.add(rank)
    for rank in ranks:
        os.kill(rank, signal.SIGKILL)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
