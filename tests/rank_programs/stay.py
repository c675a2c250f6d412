"""Run a program as one rank, and stay until all have ended: launchers end the others when one process ends by a signal.

``stay.py FOLDER PROGRAM ARGUMENT...``
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main(folder: str, *program: str) -> None:
    """Stay while others run."""
    code = subprocess.run([sys.executable, *program], check=False, close_fds=False).returncode  # MPI's own files are its too
    Path(folder, f"ended.{os.environ['PMI_RANK']}").write_text(str(code))
    end = time.monotonic() + 60
    while len(list(Path(folder).glob("ended.*"))) < int(os.environ["PMI_SIZE"]) and time.monotonic() < end:
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
