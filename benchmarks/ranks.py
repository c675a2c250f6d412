"""``hipgraphdsl bench ranks``: two processes with a GPU each, against one process and against NCCL called from C++.

It needs two NVIDIA GPUs; mpiexec with mpi4py, or torch; and for the comparison with C++ nvcc and nccl.h. It starts the
processes itself, and prints a table of medians and ratios.

With `--one-gpu` both processes use one GPU, and NCCL takes them for two machines and sends over the network's loopback. Without
MPS they would take turns on the GPU, for milliseconds each, so MPS's control daemon runs during the benchmark. Comparisons of
one GPU with two are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

import hipgraphdsl as hg
from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.errors import lacks

HERE = Path(__file__).parent
ROWS = (  # name, what is measured, against what, aim
    ("wave, a step, two processes, eager", "ranks_eager", "two_devices", 1.05),
    ("wave, a step, two processes, captured", "ranks_captured", "two_devices", 1.05),
    ("wave, one device against two processes, captured", "one_device", "ranks_captured", 1.85),
    ("exchange of {exchange}, eager, against C++", "exchange_eager", "cpp_exchange_eager", 1.1),
    ("submit an exchange, eager, against C++", "submit_eager", "cpp_exchange_submit_eager", 1.1),
    ("exchange of {exchange}, captured, against C++ on a stream", "exchange_captured", "cpp_exchange_eager", 1.1),
    ("exchange of {exchange}, captured, against a captured graph in C++", "exchange_captured", "cpp_exchange_captured", 1.1),
    ("all-reduce of {reduced}, eager, against C++", "all_reduce_eager", "cpp_all_reduce_eager", 1.03),
    ("all-reduce of {reduced}, captured, against C++ on a stream", "all_reduce_captured", "cpp_all_reduce_eager", 1.03),
    ("compile on ranks against the rank's part", "compile_ranks", "compile_part", 1.3),
)
OPTIONS = {  # name -> default, meaning
    "size": (8192, "cells along each side of the wave"),
    "steps": (50, "steps of the wave in one launch"),
    "rounds": (9, "launches of the wave that are measured"),
    "bytes": (65536, "bytes of an exchange"),
    "floats": (1 << 24, "floats of an all-reduce"),
    "less": (1, "divide the number of exchanges and all-reduces by this"),
    "runs": (3, "runs of all processes, of which medians are taken: they begin on other cores each time"),
}


def example() -> Any:
    """Return example 06."""
    spec = spec_from_file_location("wave", HERE.parent / "examples" / "06_wave2d_devices.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def median_us(once: Callable[[], object], rounds: int) -> float:
    """Return the median of how long something takes, in microseconds."""
    for _ in range(rounds // 5 + 2):
        once()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def exchange(nbytes: int) -> hg.Graph:
    """Two devices send each other so many bytes."""
    g = hg.Graph("exchange")
    x, y = ([g.device_array(f"{name}{d}", shape=nbytes, dtype="uint8", device=d) for d in range(2)] for name in "xy")
    for d in range(2):
        g.memcpy(y[1 - d], x[d], name=f"send_{d}")
    return g


def all_reduce(count: int) -> hg.Graph:
    """Two devices add so many floats."""
    g = hg.Graph("all_reduce")
    g.all_reduce([g.device_array(f"x{d}", shape=count, dtype="float32", device=d) for d in range(2)])
    return g


def single(options: argparse.Namespace) -> dict[str, float]:
    """Measure one process."""
    wave, found = example(), {}
    for devices, name in ((1, "one_device"), (2, "two_devices")):
        g = wave.build(devices, options.steps, options.size, output=False)
        with g.compile(options.runtime) as exe:
            found[name] = median_us(exe.run, options.rounds) / options.steps
    return found


def ranked(options: argparse.Namespace) -> dict[str, float]:
    """Measure one of two processes."""
    if options.one_gpu:  # what tells ranks of two machines apart
        rank = next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK") if name in os.environ)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
        os.environ |= {"NCCL_HOSTID": f"rank{rank}", "CUDA_VISIBLE_DEVICES": visible + "," * int(rank)}
    ranks = hg.ranks(timeout_s=60, nccl=True)
    runtime, found = hg.open_runtime(options.runtime), {}
    wave = example().build(2, options.steps, options.size, output=False)
    for captured in (False, True):
        name = "captured" if captured else "eager"
        given: dict[str, Any] = {"ranks": ranks, "plan": hg.PlanOptions(capture_collectives=captured)}
        if not options.one_gpu:
            with wave.compile(runtime, **given) as exe:
                found[f"ranks_{name}"] = median_us(exe.run, options.rounds) / options.steps
        with exchange(options.bytes).compile(runtime, **given) as exe:
            found[f"exchange_{name}"] = median_us(exe.run, 2000 // options.less)
            found[f"submit_{name}"] = median_us(exe.launch, 200 // options.less)
            exe.synchronize()
        with all_reduce(options.floats).compile(runtime, **given) as exe:
            found[f"all_reduce_{name}"] = median_us(exe.run, (30 if options.one_gpu else 300) // options.less)
    times: dict[str, list[float]] = {"compile_ranks": [], "compile_part": []}
    for _ in range(5):
        ranks.transport.all_gather(b"", "the next compile", ranks.timeout_s)  # else the wait for the other rank counts
        began = time.perf_counter()
        exe = wave.compile(runtime, ranks=ranks)
        times["compile_ranks"].append(time.perf_counter() - began)
        assert isinstance(exe, hg.RankExecutable)
        began = time.perf_counter()
        part = hg.Graph.from_workflow(exe.part.workflow).compile(runtime, device=exe.part.layout.first_local)
        times["compile_part"].append(time.perf_counter() - began)
        part.close()
        exe.close()
    found |= {name: statistics.median(values) * 1e6 for name, values in times.items()}
    return found if ranks.rank == 0 else {}


def by_hand(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Measure the program in C++."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    made = folder / "ranks"
    if not made.exists():
        subprocess.run([nvcc, "-O2", "-std=c++17", "-o", str(made), str(HERE / "ranks.cpp"), "-lnccl"], check=True)
    given = [str(options.bytes), str(options.floats), *(["one"] if options.one_gpu else [])]
    done = subprocess.run([made, *given], text=True, capture_output=True, check=True, timeout=120)
    return {f"cpp_{name}": float(value) for name, value in map(str.split, done.stdout.splitlines())}


def run_all(command: list[str], env: dict[str, str]) -> None:
    """Run a command to its end; if it fails, end this program with what it said, and with what to set if it refuses root."""
    done = subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, check=False, timeout=180)
    if done.returncode:
        root = "OMPI_ALLOW_RUN_AS_ROOT" if "allow-run-as-root" in done.stderr else ""
        asked = (
            f"\nOpen MPI runs as root only where {root}=1 and {root}_CONFIRM=1 are set: set both, or be another user."
            if root
            else ""
        )
        sys.exit(f"{done.stderr}{command[0]} has ended with status {done.returncode}.{asked}")


def workers(count: int, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Start a worker in each of so many processes, and return what the first one has measured."""
    out = folder / f"found{count}.json"
    given = [f"--{name}={getattr(options, name)}" for name in ("runtime", *OPTIONS)]
    if options.one_gpu:
        given.append("--one-gpu")
    command = [sys.executable, __file__, "--worker", str(out), *given]
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "WORKERS": str(count)}
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if count == 1:
        run_all(command, env)
    elif mpiexec is not None and find_spec("mpi4py") is not None:
        binding = [] if options.bind else ["-bind-to", "none"]
        run_all([mpiexec, *binding, "-n", str(count), *command], env)
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            env |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        each = [{**env, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
        started = [subprocess.Popen(command, env=more) for more in each]
        for process in started:
            process.wait(timeout=180)
    return dict(json.loads(out.read_text()))


def measured(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Measure everything once, in processes that are new."""
    found = ({} if options.one_gpu else workers(1, options, folder)) | workers(2, options, folder)
    return found if options.without_cpp else found | by_hand(folder, options)


@contextmanager
def shared_gpu() -> Iterator[None]:
    """Let processes use one GPU at the same time, by MPS."""
    control = shutil.which("nvidia-cuda-mps-control", path=os.pathsep.join([os.environ["PATH"], "/usr/local/nvidia/bin"]))
    if control is None:
        sys.exit("--one-gpu needs nvidia-cuda-mps-control, which comes with NVIDIA's driver")
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder, "NCCL_SOCKET_IFNAME": "lo"}
        subprocess.run([control, "-d"], check=True, timeout=30)
        try:
            yield
        finally:
            subprocess.run([control], input="quit\n", text=True, check=False, timeout=30)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--runtime", default="nvidia", help="amd, nvidia or cpu (default: nvidia)")
    for name, (default, meaning) in OPTIONS.items():
        parser.add_argument(f"--{name}", type=positive, default=default, metavar="N", help=f"{meaning} (default: {default})")
    parser.add_argument("--without-cpp", action="store_true", help="leave C++ out")
    parser.add_argument("--one-gpu", action="store_true", help="let both processes use one GPU, by MPS")
    parser.add_argument("--bind", action="store_true", help="let mpiexec bind the processes to cores as it does by default")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)  # this process is one of those that are measured


def main(options: argparse.Namespace) -> None:
    """Measure everything, or be a worker."""
    if options.worker is not None:
        found = single(options) if os.environ["WORKERS"] == "1" else ranked(options)
        if found:
            options.worker.write_text(json.dumps(found))
        return
    if not options.one_gpu and hg.open_runtime(options.runtime).get_device_count() < 2:
        raise lacks(options.runtime, "device", "has one device, and this benchmark needs two or --one-gpu")
    with tempfile.TemporaryDirectory() as name, shared_gpu() if options.one_gpu else nullcontext():
        folder = Path(name)
        runs = [measured(folder, options) for _ in range(options.runs)]
    found = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    for name, value in found.items():
        print(f"{name:24} {value:12.2f} us")
    print(f"{'what':62} {'us':>10} {'against':>10} {'ratio':>7}  aim")
    sizes = {"exchange": f"{options.bytes / 1024:g} KB", "reduced": f"{options.floats * 4 / 2**20:g} MB"}
    for what, mine, other, aim in ROWS:
        if mine in found and other in found:
            print(f"{what.format(**sizes):62} {found[mine]:10.1f} {found[other]:10.1f} {found[mine] / found[other]:7.3f}  {aim}")
    assert np.isfinite(list(found.values())).all()


if __name__ == "__main__":
    worker = argparse.ArgumentParser()
    add_arguments(worker)
    main(worker.parse_args())
