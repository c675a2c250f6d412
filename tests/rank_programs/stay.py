"""Run a program as one rank, and stay until all have ended: launchers end the others when one process ends by a signal.

``stay.py FOLDER PROGRAM ARGUMENT...``, or ``stay.py FOLDER --fork SOCKET PROGRAM ARGUMENT...`` as a fork of `mpi_forks.py`.
"""

from __future__ import annotations

import os
import sys
import time


def run(*program: str) -> int:
    """Run a program in an interpreter of its own."""
    import subprocess

    return subprocess.run([sys.executable, *program], check=False, close_fds=False).returncode  # MPI's own files are its too


def fork(path: str, *program: str) -> int:
    """Run a program as a fork, which has the environment and the files of this process; return 0 when it has ended."""
    import _socket  # modules `socket` and `json` would take longer than all else here
    from array import array

    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    server.connect(path)
    request = repr((program, os.getcwd(), dict(os.environ)))
    files = array("i", [0, 1, 2, int(os.environ["PMI_FD"])])
    server.sendmsg([request.encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    return len(server.recv(1))


def main(folder: str, *program: str) -> None:
    """Stay while others run."""
    code = fork(*program[1:]) if program[0] == "--fork" else run(*program)
    with open(os.path.join(folder, f"ended.{os.environ['PMI_RANK']}"), "w") as ended:
        ended.write(str(code))
    end = time.monotonic() + 60
    while sum(name.startswith("ended.") for name in os.listdir(folder)) < int(os.environ["PMI_SIZE"]) and time.monotonic() < end:
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
