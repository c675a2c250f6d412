"""Ranks as processes that mpiexec has started, by the extra `mpi`."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rank_programs.mpi_forks import MpiForks

TESTS = Path(__file__).parent.parent
PROGRAMS = TESTS / "rank_programs"
MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")

pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="mpiexec is not there; the extra `mpi` brings it")


def mpiexec(size: int, *program: object, options: tuple[str, ...] = (), timeout_s: float = 120) -> str:
    """Return what a program prints as so many ranks."""
    pytest.importorskip("mpi4py")
    assert MPIEXEC is not None
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [MPIEXEC, *options, "-n", str(size), sys.executable, *map(str, program)],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=False,
    )  # fmt: skip
    return done.stdout


SLOW = pytest.mark.slow


@pytest.mark.parametrize("size", [pytest.param(2, marks=SLOW), 4])
def test_example_gives_the_bits_of_one_process(size: int) -> None:
    example = TESTS.parent / "examples" / "06_wave2d_devices.py"
    printed = mpiexec(size, example, "--runtime", "cpu", "--ranks", "--size", 64, "--steps", 20)
    assert f"The same bits from {size} devices of {size} processes as from one" in printed, printed


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=SLOW)])
def test_sums_over_all_give_the_bits_of_one_process(size: int) -> None:
    example = TESTS.parent / "examples" / "09_conjugate_gradient.py"
    printed = mpiexec(size, example, "--runtime", "cpu", "--ranks", "--size", 24, "--iterations", 12)
    assert f"The same residuals from {size} devices of {size} processes as from one, to the bit." in printed, printed


def test_ranks_that_differ_are_told_the_node() -> None:
    printed = mpiexec(3, PROGRAMS / "differ.py")
    for rank in range(3):
        assert (
            f"rank {rank}: graph 'differs' is not the same on all ranks: node 'fill' of rank 0 is not that of rank 1" in printed
        )


def test_rank_that_never_comes_is_not_waited_for() -> None:
    printed = mpiexec(2, PROGRAMS / "late.py")
    assert "other ranks have not called hg.ranks(), after 1 s: MPI_Init waits for them" in printed, printed


def test_launcher_of_another_mpi_is_refused() -> None:
    """Else every process would take itself for one rank alone."""
    pytest.importorskip("mpi4py")
    program = "import hipgraphdsl as hg\ntry: hg.ranks()\nexcept hg.RuntimeUnavailable as error: print(error)"
    env = {**os.environ, "PYTHONPATH": str(TESTS.parent), "MV2_COMM_WORLD_SIZE": "4"}
    done = subprocess.run([sys.executable, "-c", program], env=env, text=True, capture_output=True, timeout=60, check=False)
    assert "has started several processes (MV2_COMM_WORLD_SIZE=4), and mpi4py's MPI (" in done.stdout, done
    assert "belongs to another MPI" in done.stdout


def test_rank_that_ends_its_program_early_is_named() -> None:
    printed = mpiexec(2, PROGRAMS / "ends.py")
    assert "1: eager node 'bring': RankError: rank 1 has come to the end of its program, and does not send 'bring'" in printed
    assert "1: compile of 'ends': the ranks have come apart: rank 1 has come to the end" in printed


def test_threads_with_ranks_of_their_own_get_their_own_messages() -> None:
    printed = mpiexec(2, PROGRAMS / "threads.py")
    assert all(f"rank {rank}: 0 wrong" in printed for rank in range(2)), printed
    assert len(kept := re.findall(r"(\d+) reports are kept", printed)) == 2, printed
    assert all(int(count) < 10 for count in kept), printed  # and not all 41


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MpiForks]:
    pytest.importorskip("mpi4py")
    made = MpiForks(tmp_path_factory.mktemp("forks") / "socket")
    yield made
    made.close()


def killed(folder: Path, size: int, victim: int, seconds: float, forks: MpiForks | None = None) -> None:
    """Kill one rank, and look what the others say."""
    stay = PROGRAMS / "stay.py"
    if forks is None:
        program: tuple[object, ...] = (stay, folder, PROGRAMS / "left_alone.py")
    else:
        program = ("-S", "-E", stay, folder, "--fork", forks.path, "left_alone")
    mpiexec(size, *program, folder, victim, seconds, options=("-disable-auto-cleanup",))
    said = {rank: (folder / f"said.{rank}").read_text() for rank in range(size) if rank != victim}
    for text in said.values():
        assert text.startswith(f"{victim} "), said
        assert f"rank {victim} has died, and is needed for" in text, said


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=SLOW)])
def test_rank_that_dies_is_an_error_of_the_others(size: int, tmp_path: Path) -> None:
    killed(tmp_path, size, size // 2, 1.0)


#: A trial takes as long as its victim lives, in which its ranks keep all cores busy: trials beside each other share that time.
AT_ONCE = 3


def trials() -> list[tuple[int, int, float]]:
    """Return sizes, victims and times at which these die."""
    chance = random.Random(1)
    return [(size := chance.choice([2, 3, 4]), chance.randrange(size), chance.uniform(0, 1.5)) for _ in range(100)]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_rank_that_dies_at_any_time_is_an_error_of_the_others(first: int, forks: MpiForks, tmp_path: Path) -> None:
    def one(trial: int) -> None:
        folder = tmp_path / str(trial)
        folder.mkdir()
        killed(folder, *trials()[trial], forks)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(first, first + 25)))
