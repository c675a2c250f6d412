"""NCCL's ABI over host memory: the library that ranks on the CPU's devices, and on AMD's stand-in device, use in its place."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nccl.cpp"


@cache
def library() -> Path:
    """Return the library, built where it has not been."""
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        pytest.importorskip("ziglang", reason="no C++ compiler")
    command = [found] if found else [sys.executable, "-m", "ziglang", "c++"]
    key = hashlib.blake2b(SOURCE.read_bytes() + str(found).encode(), digest_size=8).hexdigest()
    made = Path(tempfile.gettempdir()) / f"hipgraphdsl_nccl_on_cpu_{key}.so"
    if not made.exists():
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder, "library.so")
            options = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-pthread"]
            subprocess.run([*command, *options, str(SOURCE), "-o", str(beside), "-ldl", "-lrt"], check=True)
            shutil.copy(beside, made.with_suffix(f".{Path(folder).name}"))
            made.with_suffix(f".{Path(folder).name}").replace(made)
    return made
