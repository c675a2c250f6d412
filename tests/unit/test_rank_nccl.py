"""Messages and collectives by NCCL's ABI, of ranks that are processes on the CPU, over a stand-in library (tests/nccl_on_cpu).

The programs are rank_programs/by_nccl.py; tests/device/test_nccl.py runs them on GPUs. On AMD's own runtime over a stand-in
device (tests/amd_on_cpu) the library is what the package finds by itself: librccl.so.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nccl_on_cpu import library
from rank_programs.forks import Forks

import hipgraphdsl as hg
from hipgraphdsl.parts.ranks.transports import nccl

Printed = Callable[..., list[str]]

ON_AMD = pytest.param("amd", marks=pytest.mark.skipif("AMD_ON_CPU_HOME" not in os.environ, reason="not on AMD's stand-in device"))


@pytest.fixture(scope="module", params=["cpu", ON_AMD])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.fixture(scope="module")
def printed(runtime: str, forks: Forks) -> Printed:
    """Return what gives what each rank prints."""

    def ended(does: str, size: int, folder: Path, **environment: str) -> list[str]:
        where = {nccl.LIBRARY: str(library())} if runtime == "cpu" else {"AMD_ON_CPU_DEVICES": str(size)}
        forks.start(folder, "by_nccl", [(does, folder, rank, size, runtime) for rank in range(size)], **{**where, **environment})
        return forks.printed()

    return ended


SHARED = {2: ("uneven", "rings", "mixed", "threads", "short", "loops"), 3: ("rings", "mixed", "folds", "loops")}
"""What ranks of one start do one after the other, by their number. Each has a communicator of its own."""


class Job:
    """Ranks that were started once for several tests."""

    def __init__(self, printed: Printed, size: int, folder: Path) -> None:
        log = folder / "log"
        self.ranks = printed(",".join(SHARED[size]), size, folder, NCCL_ON_CPU_LOG=str(log), HIPGRAPHDSL_NATIVE="1")
        self.communicators = sorted(log.read_text().split())

    def all_said(self, line: str) -> bool:
        """Return whether each rank has printed a line."""
        return all(line in said.splitlines() for said in self.ranks)


@pytest.fixture(scope="module")
def job(printed: Printed, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Job]:
    return cache(lambda size: Job(printed, size, tmp_path_factory.mktemp(f"job_{size}")))


# On AMD's stand-in device only `make test-amd` runs them, which leaves out what is slow.
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=() if "AMD_ON_CPU_HOME" in os.environ else pytest.mark.slow)])
def test_collectives_of_every_type_and_count(printed: Printed, size: int, tmp_path: Path) -> None:
    for said in (found := printed("collectives", size, tmp_path)):
        assert "results of collectives are right" in said, found


@pytest.mark.parametrize("size", [2, 3])
def test_messages_with_every_backend_eager_and_captured(size: int, job: Callable[[int], Job]) -> None:
    found = job(size)
    assert found.all_said("rings are right"), found.ranks
    times = len(SHARED[size])
    assert found.communicators == sorted([*["init", "destroy"] * size * times, *map(str, [*range(size)] * 2 * times)])


@pytest.mark.parametrize("size", [2, 3])
def test_host_memory_gaps_and_declared_edges_beside_device_memory(size: int, job: Callable[[int], Job]) -> None:
    assert job(size).all_said("mixed messages are right"), job(size).ranks


@pytest.mark.parametrize("size", [2, 3])
def test_collectives_inside_children_and_loops_of_all_ranks(size: int, job: Callable[[int], Job]) -> None:
    assert job(size).all_said("loops are right"), job(size).ranks


def test_ranks_whose_first_groups_differ_are_connected_before_them(job: Callable[[int], Job]) -> None:
    assert job(2).all_said("uneven messages are right"), job(2).ranks


def test_sums_of_floats_are_exact_where_that_is_asked_for(job: Callable[[int], Job]) -> None:
    assert job(3).all_said("sums are right"), job(3).ranks


@pytest.mark.parametrize("captured", ["0", "1"])
@pytest.mark.parametrize("seconds", ["0.2", "0.7"])
def test_rank_that_is_killed_is_named_by_the_others(printed: Printed, captured: str, seconds: str, tmp_path: Path) -> None:
    found = printed("stay", 3, tmp_path, CAPTURED=captured, KILL_AFTER_S=seconds)
    for rank in (0, 2):
        assert "told: 1 " in found[rank], found
        assert "rank 1 has died" in found[rank], found
        assert "and again" in found[rank], found


@pytest.mark.parametrize("captured", ["0", "1"])
@pytest.mark.parametrize("where", ["DIES", "ABSENT"])
def test_rank_whose_death_fails_a_call_before_it_is_seen_is_named(
    printed: Printed, where: str, captured: str, tmp_path: Path
) -> None:
    found = printed("stay", 3, tmp_path, CAPTURED=captured, **{f"NCCL_ON_CPU_{where}": "1"})
    for rank in (0, 2):
        assert "told: 1 " in found[rank], found
        assert "rank 1 has died" in found[rank], found


@pytest.mark.parametrize(("size", "captured"), [(2, "0"), (2, "1"), (3, "0"), (4, "1")])
def test_rank_that_does_not_come_is_named(printed: Printed, size: int, captured: str, tmp_path: Path) -> None:
    found = printed("late", size, tmp_path, CAPTURED=captured, TIMEOUT_S="2")
    for rank in {*range(size)} - {1}:
        assert "told: 1 rank 1 does not come to" in found[rank], found


@pytest.mark.parametrize("captured", ["0", "1"])
def test_rank_that_ends_its_program_early_is_named(printed: Printed, captured: str, tmp_path: Path) -> None:
    found = printed("early", 3, tmp_path, CAPTURED=captured, TIMEOUT_S="60")
    for rank in (0, 2):
        assert "told: 1 rank 1 has come to the end of its program, without a launch of graph 'ring'" in found[rank], found


@pytest.mark.parametrize("captured", ["0", "1"])
def test_launch_that_one_rank_refuses_is_an_error_of_the_others(printed: Printed, captured: str, tmp_path: Path) -> None:
    found = printed("early", 2, tmp_path, CAPTURED=captured, REFUSES="1", TIMEOUT_S="60")
    why = "rank 1 has refused a launch of graph 'ring': graph 'ring (rank 1 of 2)' has no parameter 'nothing'"
    assert f"told: 1 {why}" in found[0], found
    assert "refused\ntold: " in found[1], found
    assert why in found[1], found


def test_arrays_of_each_rank_are_read_after_the_failure_of_a_function(printed: Printed, tmp_path: Path) -> None:
    for said in (found := printed("fails", 2, tmp_path)):
        assert "it fails" in said, found
        assert said.endswith("and again\nown arrays are read\n"), found


def test_threads_launch_one_after_the_other(job: Callable[[int], Job]) -> None:
    assert job(2).all_said("threads are kept apart"), job(2).ranks


def test_launches_go_by_compiled_code_where_there_is_some(printed: Printed, job: Callable[[int], Job], tmp_path: Path) -> None:
    assert job(2).all_said("short launches are right, some by compiled code"), job(2).ranks
    found = printed("short", 2, tmp_path, HIPGRAPHDSL_NATIVE="0")
    assert found == ["short launches are right, none by compiled code\n"] * 2


@pytest.mark.parametrize("captured", ["0", "1"])
def test_asynchronous_error_of_the_library_ends_every_rank(printed: Printed, captured: str, tmp_path: Path) -> None:
    found = printed("stay", 3, tmp_path, CAPTURED=captured, NCCL_ON_CPU_FAILS="1")
    for said in found:
        assert "told: " in said, found
        assert "failed: internal error: the link of rank 1 is down (3)" in said, found
        assert "and again" in said, found


@pytest.mark.parametrize("native", ["0", "1"])
def test_call_that_the_library_refuses_ends_every_rank(printed: Printed, native: str, tmp_path: Path) -> None:
    found = printed("stay", 3, tmp_path, NCCL_ON_CPU_REFUSES="1", HIPGRAPHDSL_NATIVE=native)
    for said in found:
        assert "ncclGroupEnd failed: internal error (3)" in said, found
        assert "and again" in said, found


def test_rank_whose_death_a_network_notices_first_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Transport:
        heard = 0

        def listen(self) -> None:
            self.heard += 1
            if self.heard > 3:
                raise hg.RankError("rank 1 has died", rank=1)

    def remote_error(handle: object, error: Any) -> None:
        error._obj.value = 6

    link = nccl.Nccl.__new__(nccl.Nccl)
    said = {"ncclGetErrorString": lambda code: b"remote error", "ncclGetLastError": lambda handle: b""}
    library = SimpleNamespace(ncclCommGetAsyncError=remote_error, **said)
    known = {"_transport": Transport(), "_library": library, "_handle": None, "_what": "'a'", "broken": ""}
    for name, value in known.items():
        monkeypatch.setattr(link, name, value, raising=False)
    with pytest.raises(hg.RankError, match="rank 1 has died") as caught:
        link._look()
    assert caught.value.rank == 1


def test_capture_is_refused_where_it_does_not_work(runtime: str, printed: Printed, tmp_path: Path) -> None:
    found = printed("refused", 2, tmp_path / "old", NCCL_ON_CPU_VERSION="22707")
    name = "NCCL" if runtime == "cpu" else "RCCL"
    assert f"refused: compile: PlanOptions(capture_collectives=True) needs {name} 2.28.0 or later (got 2.27.7)" in found[0], found
    assert all("eager is right" in said for said in found), found
    found = printed("refused", 2, tmp_path / "none", **{nccl.LIBRARY: "/nowhere.so"})
    assert "needs NCCL or RCCL on all ranks: rank 0: no library for messages between devices: /nowhere.so" in found[0], found
    devices = {"HIPGRAPHDSL_CPU_DEVICES": "2", "AMD_ON_CPU_DEVICES": "4"}
    found = printed("refused", 2, tmp_path / "two", DEVICES_PER_RANK="2", **devices)
    assert "a rank has several devices" in found[0], found
    assert all("eager is right" in said for said in found), found


def test_capture_without_ranks_is_refused() -> None:
    with pytest.raises(hg.DeclarationError, match=r"ranks is what hipgraphdsl\.ranks\(\) returns"):
        hg.Graph("alone").compile("cpu", plan=hg.PlanOptions(capture_collectives=True))
    with pytest.raises(hg.DeclarationError, match="nccl is True, False or None"):
        hg.ranks(nccl="no")  # type: ignore[arg-type]
    with pytest.raises(hg.DeclarationError, match=r"nccl is True, False or None \(got 0\)"):
        hg.ranks(nccl=0)  # type: ignore[arg-type]


def test_collectives_that_the_library_lacks_are_unfolded() -> None:
    assert nccl.does("all_reduce", "float32")
    assert not nccl.does("all_reduce", "int16")
    assert nccl.does("all_gather", "int16")
    assert nccl.does("broadcast", "complex64")
