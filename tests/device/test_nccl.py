"""Ranks on GPUs of one machine, one process each: messages and collectives by NCCL or RCCL, eager and captured.

The programs are those that tests/unit/test_rank_nccl.py runs on the CPU over a stand-in library. Where there is one GPU, both
ranks use it: NCCL is told that they are on two machines, and sends over the network.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import hipgraphdsl as hg

TESTS = Path(__file__).parent.parent
PROGRAM = TESTS / "rank_programs" / "by_nccl.py"
EXAMPLES = TESTS.parent / "examples"
MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
SIZE = 2
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # without which Open MPI refuses root


@cache
def devices(runtime: str) -> int:
    """Return how many GPUs there are."""
    try:
        return hg.open_runtime(runtime).get_device_count()
    except hg.RuntimeUnavailable:
        return 0


pytestmark = pytest.mark.gpu


@pytest.fixture(params=["nvidia", "amd"])
def runtime(request: pytest.FixtureRequest) -> str:
    if not (count := devices(request.param)) or (count < SIZE and request.param != "nvidia"):
        pytest.skip(f"two GPUs of runtime {request.param!r} are needed")
    return str(request.param)


def apart(rank: int) -> dict[str, str]:
    """Return what each rank needs where both use one GPU, so that they pass for ranks on two machines."""
    if devices("nvidia") != 1:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    return {"NCCL_HOSTID": f"rank{rank}", "NCCL_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": visible + "," * rank}


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **more}


def ended(commands: Sequence[Sequence[object]], *environments: dict[str, str], timeout_s: float = 150) -> list[str]:
    """Run programs side by side, and return what each prints."""
    started = [
        subprocess.Popen([str(word) for word in command], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for command, env in zip(commands, environments, strict=True)
    ]
    try:
        return [process.communicate(timeout=timeout_s)[0] for process in started]
    finally:
        for process in started:
            process.kill()


def by_files(does: str, runtime: str, folder: Path, **more: str) -> list[str]:
    """Return what the ranks print that meet by a store of files."""
    commands = [(sys.executable, PROGRAM, does, folder, rank, SIZE, runtime) for rank in range(SIZE)]
    return ended(commands, *[environment(**apart(rank), **more) for rank in range(SIZE)])


def by_torch(command: Sequence[object], **more: str) -> list[str]:
    """Return what the ranks of a program print that meet as torchrun lets them."""
    if find_spec("torch") is None:
        pytest.skip("torch is not there")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "MEET": "found", **more}
    environments = [environment(**apart(rank), **shared, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(SIZE)]
    return ended([command] * SIZE, *environments)


def by_mpi(command: Sequence[object], **more: str) -> str:
    """Return what the ranks of a program print that mpiexec starts."""
    if MPIEXEC is None or find_spec("mpi4py") is None:
        pytest.skip("mpiexec and mpi4py are needed")
    each = [("-n", 1, "env", *(f"{name}={value}" for name, value in apart(rank).items()), *command) for rank in range(SIZE)]
    (found,) = ended([(MPIEXEC, *each[0], ":", *each[1])], environment(MEET="found", **AS_ROOT, **more))
    return found


def test_collectives_of_every_type_and_count(runtime: str, tmp_path: Path) -> None:
    for said in (found := by_files("collectives", runtime, tmp_path)):
        assert "results of collectives are right" in said, "\n".join(found)


def test_messages_with_every_backend_eager_and_captured(runtime: str, tmp_path: Path) -> None:
    for said in (found := by_files("rings", runtime, tmp_path)):
        assert "rings are right" in said, "\n".join(found)


def test_host_memory_gaps_and_declared_edges_beside_device_memory(runtime: str, tmp_path: Path) -> None:
    for said in (found := by_files("mixed", runtime, tmp_path)):
        assert "mixed messages are right" in said, "\n".join(found)


def test_ranks_whose_first_groups_differ_are_connected_before_them(runtime: str, tmp_path: Path) -> None:
    for said in (found := by_files("uneven", runtime, tmp_path)):
        assert "uneven messages are right" in said, "\n".join(found)


def test_collectives_inside_children_and_loops_of_all_ranks(runtime: str, tmp_path: Path) -> None:
    for said in (found := by_files("loops", runtime, tmp_path)):
        assert "loops are right" in said, "\n".join(found)


def test_launches_go_by_compiled_code(runtime: str, tmp_path: Path) -> None:
    for said in (found := by_files("short", runtime, tmp_path)):
        assert "short launches are right" in said, "\n".join(found)


def test_threads_launch_one_after_the_other(runtime: str, tmp_path: Path) -> None:
    for said in (found := by_files("threads", runtime, tmp_path)):
        assert "threads are kept apart" in said, "\n".join(found)


@pytest.mark.parametrize("captured", ["0", "1"])
def test_rank_that_is_killed_is_named_by_the_other(runtime: str, captured: str, tmp_path: Path) -> None:
    found = by_files("stay", runtime, tmp_path, CAPTURED=captured, KILL_AFTER_S="8")
    assert "told: 1 " in found[0], "\n".join(found)
    assert "rank 1 has died" in found[0], "\n".join(found)


@pytest.mark.parametrize("captured", ["0", "1"])
def test_rank_that_does_not_come_is_named(runtime: str, captured: str, tmp_path: Path) -> None:
    found = by_files("late", runtime, tmp_path, CAPTURED=captured, TIMEOUT_S="12")
    assert "told: 1 rank 1 does not come to" in found[0], "\n".join(found)


def test_collectives_of_ranks_that_meet_by_torch(runtime: str, tmp_path: Path) -> None:
    found = by_torch((sys.executable, PROGRAM, "collectives", tmp_path, 0, 0, runtime))
    assert all("results of collectives are right" in said for said in found), "\n".join(found)


def test_rank_that_is_killed_is_named_by_one_that_met_it_by_torch(runtime: str, tmp_path: Path) -> None:
    found = by_torch((sys.executable, PROGRAM, "stay", tmp_path, 0, 0, runtime), KILL_AFTER_S="8")
    assert "told: 1 " in found[0], "\n".join(found)


@pytest.mark.parametrize("options", [(), ("--captured",)], ids=["eager", "captured"])
@pytest.mark.parametrize(
    ("example", "sizes"),
    [("06_wave2d_devices", ("--size", 512, "--steps", 60)), ("09_conjugate_gradient", ("--size", 96, "--iterations", 30))],
)
def test_example_gives_the_bits_of_one_process(
    runtime: str, example: str, sizes: tuple[object, ...], options: tuple[str, ...]
) -> None:
    command = (sys.executable, EXAMPLES / f"{example}.py", "--runtime", runtime, "--ranks", *sizes, *options)
    found = by_mpi(command)
    assert f"from {SIZE} devices of {SIZE} processes as from one" in found, found


def test_example_gives_the_bits_of_one_process_by_torch(runtime: str) -> None:
    example = EXAMPLES / "06_wave2d_devices.py"
    found = by_torch((sys.executable, example, "--runtime", runtime, "--ranks", "--size", 256, "--steps", 20))
    assert any(f"from {SIZE} devices of {SIZE} processes as from one" in said for said in found), "\n".join(found)
