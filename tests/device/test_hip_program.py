"""Exported programs, built with nvcc and run on an NVIDIA GPU: the bytes of the Python run on the same GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import hip_programs
import pytest
from hip_programs import MAKERS
from places import HERE

NVCC = shutil.which("nvcc")
BACKENDS = ("explicit", "capture")
AT_ONCE = 8  # compilers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NVCC is None, reason="needs nvcc"),
    pytest.mark.skipif("nvidia" not in HERE, reason="needs runtime 'nvidia': a GPU, a driver and cuda-bindings"),
]


def _driver() -> str:
    """Return the driver's library, which runtime 'nvidia' has loaded: not all machines have the link that ``-lcuda`` needs."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libcuda.so" in line:
            return line.split(maxsplit=5)[5]
    return "-lcuda"


class Builder:
    """Compiles programs ahead of the tests that run them, several at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.started: dict[tuple[str, str], Future[Path]] = {}

    def start(self, name: str, backend: str) -> Future[Path]:
        key = (name, backend)
        if key not in self.started:
            # The source is written here and now: only compilers run beside the tests.
            path = hip_programs.export(MAKERS[name](), self.folder / f"{name}-{backend}", backend)
            self.started[key] = self.pool.submit(self._compile, path)
        return self.started[key]

    @staticmethod
    def _compile(path: Path) -> Path:
        assert NVCC is not None
        executable = path.with_suffix("")
        driver = "cuGraphAddBatchMemOpNode" in path.read_text()
        libraries = ["-Xlinker", "--no-as-needed", "-Xlinker", _driver()] if driver else []
        done = subprocess.run(
            [NVCC, "-std=c++17", "-O0", "-arch=sm_90", "-x", "cu", str(path), "-o", str(executable), *libraries],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return executable


@pytest.fixture(scope="module")
def builder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    made = Builder(tmp_path_factory.mktemp("programs"))
    if "PYTEST_XDIST_WORKER" not in os.environ:  # else each worker would compile what the others test
        for item in request.session.items:
            params = getattr(getattr(item, "callspec", None), "params", {})
            if item.path == request.path and {"name", "backend"} <= params.keys():
                try:
                    made.start(params["name"], params["backend"])
                except Exception:  # the test itself will say
                    continue
    yield made
    made.pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("runtime", ["nvidia"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MAKERS)
def test_program_on_the_gpu_leaves_the_bytes_of_the_python_run(builder: Builder, name: str, backend: str, runtime: str) -> None:
    future = builder.start(name, backend)
    expected = hip_programs.outputs(MAKERS[name](), runtime, backend)
    hip_programs.run(MAKERS[name](), future.result(timeout=280), expected)


@pytest.mark.parametrize("runtime", ["nvidia"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_program_of_all_640_steps_can_be_launched_again(tmp_path: Path, backend: str, runtime: str) -> None:
    written = hip_programs.of_example("04_wave2d", steps=640, side=64)
    path = hip_programs.export(written, tmp_path, backend)
    executable = Builder._compile(path)
    done = subprocess.run([executable, "--repeat", "5", "--warm-up", "2"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("5 launches, us: submit ")
    hip_programs.run(written, executable, hip_programs.outputs(written, runtime, backend))
