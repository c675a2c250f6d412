"""Ranks that meet by a store: what they exchange, and how failures and deaths are told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_store import FileStore
from rank_programs.forks import Forks

import hipgraphdsl as hg
from hipgraphdsl.parts.ranks.transports import Transfer, neighbours
from hipgraphdsl.parts.ranks.transports import store as stores
from hipgraphdsl.parts.ranks.transports.store import StoreTransport

TESTS = Path(__file__).parent.parent


class Shared:
    """A store in memory, for ranks that are threads."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.broken = False

    def set(self, key: str, value: bytes) -> None:
        if self.broken:
            raise ConnectionResetError("gone")
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: Sequence[str]) -> bool:
        if self.broken:
            raise ConnectionResetError("gone")
        return all(key in self.values for key in keys)

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


def together(size: int, do: Callable[[StoreTransport], Any], store: Any = None) -> list[Any]:
    """Return what a function returns for each rank, of a store of their own."""
    shared = store or Shared()

    def one(rank: int) -> Any:
        transport = StoreTransport(shared, rank, size, 5)
        try:
            return do(transport)
        finally:
            transport.close()

    with ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(one, rank) for rank in range(size)]]


def test_all_gather_gives_all_what_each_gave() -> None:
    shared = Shared()

    def do(transport: StoreTransport) -> list[list[bytes]]:
        return [transport.all_gather(b"%d:%d" % (transport.rank, k), "test", 5) for k in range(4)]

    expected = [[b"%d:%d" % (rank, k) for rank in range(3)] for k in range(4)]
    assert together(3, do, shared) == [expected] * 3
    assert len([key for key in shared.values if "gather" in key]) == 3  # of the last one alone


def test_threads_with_ranks_of_their_own_compile_and_update_at_once() -> None:
    """In another order on each rank."""

    def do(transport: StoreTransport) -> list[Any]:
        worlds = [hg.Ranks(transport, (1, 1), 5) for _ in range(2)]

        def work(world: int) -> Any:
            time.sleep(0.3 * (world ^ transport.rank))
            g = hg.Graph(f"of thread {world}")
            x = [g.device_array(f"x{d}", shape=4, dtype="uint8", device=d) for d in range(2)]
            g.memset(x[0], world + 1)
            g.memcpy(x[1], x[0], name="hand")
            with g.compile("cpu", ranks=worlds[world]) as exe:
                exe.update(g)
                exe.run()
                return exe.gather("x1")

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(work, range(2)))

    found = together(2, do)[0]
    assert [values.tolist() for (values,) in found] == [[1] * 4, [2] * 4]


def test_exchange_sends_bytes_of_every_length_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_PART", 1000)
    shared = Shared()

    def do(transport: StoreTransport) -> list[bytes]:
        other = 1 - transport.rank
        found = []
        for nbytes in (0, 1, 999, 1000, 2500, 2500):
            sent = np.full(nbytes, 7 + transport.rank, np.uint8)
            got = np.zeros(nbytes, np.uint8)
            transfers = [
                Transfer("get", other, False, other, got.ctypes.data, nbytes),
                Transfer("put", other, True, transport.rank, sent.ctypes.data, nbytes),
            ]
            transport.exchange(transfers, 5)
            found.append(got.tobytes())
        return found

    found = together(2, do, shared)
    for rank in range(2):
        assert found[rank] == [bytes([8 - rank]) * nbytes for nbytes in (0, 1, 999, 1000, 2500, 2500)]
    assert not [key for key in shared.values if "message" in key]


def test_store_is_joined_once_by_threads_that_begin_together() -> None:
    class Slow(Shared):
        def check(self, keys: Sequence[str]) -> bool:
            time.sleep(0.02)
            return super().check(keys)

    store, ready = Slow(), threading.Barrier(3)

    def join(_: int) -> hg.Ranks:
        ready.wait(5)
        return hg.ranks(rank=0, size=1, store=store, timeout_s=5)

    with ThreadPoolExecutor(3) as pool:
        transports = {ranks.transport for ranks in pool.map(join, range(3))}
    assert len(transports) == 1
    transports.pop().close()


def test_rank_that_is_interrupted_while_it_waits_tells_the_others() -> None:
    """They would take what it sends next for what they wait for."""

    class Interrupting(Shared):
        waits: str | None = None

        def check(self, keys: Sequence[str]) -> bool:
            if threading.current_thread().name == self.waits:
                self.waits = None
                raise KeyboardInterrupt
            return super().check(keys)

    store = Interrupting()

    def do(transport: StoreTransport) -> None:
        transport.all_gather(b"", "ready", 5)
        if transport.rank:
            with pytest.raises(hg.RankError, match="rank 0 has stopped: KeyboardInterrupt: "):
                transport.all_gather(b"", "more", 5)
            return
        threading.Timer(0.3, setattr, (store, "waits", threading.current_thread().name)).start()
        memory = np.zeros(4, np.uint8)
        with pytest.raises(KeyboardInterrupt):
            transport.exchange([Transfer("hand", 1, False, 0, memory.ctypes.data, 4)], 5)
        with pytest.raises(hg.RankError, match="the ranks have come apart: KeyboardInterrupt"):
            transport.all_gather(b"", "more", 5)

    together(2, do, store)


def test_sender_does_not_fill_the_store() -> None:
    """It waits until its last message of the same name has been taken."""

    def do(transport: StoreTransport) -> str:
        if transport.rank:
            transport.all_gather(b"", "ready", 5)
            return ""
        value = np.zeros(1, np.uint8)
        transfer = Transfer("put", 1, True, 0, value.ctypes.data, 1)
        transport.exchange([transfer], 5)
        with pytest.raises(hg.RankError, match=r"rank 1 does not take 'put', after 0\.1 s"):
            transport.exchange([transfer], 0.1)
        return transport.broken

    with pytest.raises(hg.RankError):
        together(2, do)


def test_rank_that_gives_up_says_why_to_all() -> None:
    def do(transport: StoreTransport) -> str:
        if transport.rank == 1:
            transport.fail("it has had enough")
            return ""
        with pytest.raises(hg.RankError, match="rank 1 has stopped: it has had enough") as caught:
            transport.all_gather(b"", "more", 5)
        assert caught.value.rank == 1
        with pytest.raises(hg.RankError, match="the ranks have come apart"):
            transport.exchange([], 5)
        return "told"

    assert together(3, do) == ["told", "", "told"]  # a time-out would have said something else


@pytest.mark.parametrize("culprit", [2, None])
def test_rank_that_names_another_one_is_quoted(culprit: int | None) -> None:
    def do(transport: StoreTransport) -> str:
        if transport.rank == 1:
            transport.fail("rank 2 has died, and is needed for 'hand'", culprit)
            return ""
        with pytest.raises(hg.RankError) as caught:
            transport.all_gather(b"", "more", 5)
        assert caught.value.rank == culprit
        return str(caught.value)

    said = "rank 2 has died, and is needed for 'hand' (as rank 1 says)"
    assert together(3, do) == [said, "", said]


@pytest.mark.parametrize("meets", [False, True])
def test_rank_that_is_late_is_named_by_those_that_wait_for_ranks_that_wait_for_it(meets: bool) -> None:
    """Rank 3 waits for rank 2, that for rank 1 and that for rank 0, which comes when the others have given up."""
    given_up = threading.Barrier(4)

    def do(transport: StoreTransport) -> str:
        if transport.rank == 0:
            given_up.wait(20)
            return ""
        memory = np.zeros(4, np.int32)
        before = transport.rank - 1
        transfer = Transfer(f"hand_{before}", before, False, 0, memory.ctypes.data, memory.nbytes)
        meeting = meets and transport.rank == 1
        with pytest.raises(hg.RankError) as caught:
            transport.all_gather(b"", "compile of 'g'", 1) if meeting else transport.exchange([transfer], 1)
        assert caught.value.rank == 0, caught.value
        given_up.wait(20)
        return str(caught.value)

    missed = "does not come to compile of 'g'" if meets else "does not send 'hand_0'"
    for said in together(4, do)[1:]:
        assert said.startswith(f"rank 0 {missed}"), said


@pytest.mark.parametrize("what", ["message", "meeting"])
def test_rank_that_ends_its_program_early_is_named(what: str) -> None:
    def do(transport: StoreTransport) -> str:
        if transport.rank == 1:
            return ""
        memory = np.zeros(4, np.int32)
        transfer = Transfer("hand", 1, False, 0, memory.ctypes.data, memory.nbytes)
        with pytest.raises(hg.RankError) as caught:
            transport.exchange([transfer], 60) if what == "message" else transport.all_gather(b"", "compile of 'g'", 60)
        assert caught.value.rank == 1
        return str(caught.value)

    missed = {"message": "does not send 'hand'", "meeting": "does not come to compile of 'g'"}[what]
    assert together(2, do) == [f"rank 1 has come to the end of its program, and {missed}", ""]


def test_silent_rank_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine, where no process can be looked at."""
    monkeypatch.setattr(stores, "_SILENT_S", 0.3)
    monkeypatch.setattr(stores, "_BEAT_S", 0.05)
    monkeypatch.setattr(neighbours.Neighbours, "__contains__", lambda self, rank: False)

    def do(transport: StoreTransport) -> str:
        if transport.rank == 2:
            transport._ended.set()  # it says nothing any more
            return ""
        with pytest.raises(hg.RankError, match="rank 2 has died") as caught:
            transport.all_gather(b"", "more", 5)
        assert caught.value.rank == 2
        return "told"

    assert together(3, do) == ["told", "told", ""]


def test_store_that_answers_no_more_is_an_error() -> None:
    store, ready = Shared(), threading.Barrier(2)

    def do(transport: StoreTransport) -> None:
        ready.wait(5)
        store.broken = True
        with pytest.raises(hg.RankError, match=r"the store does not answer.*gone"):
            transport.all_gather(b"", "more", 5)

    together(2, do, store)


def test_store_that_has_ended_with_a_rank_is_an_error_that_names_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    store, ready = Shared(), threading.Barrier(2)
    monkeypatch.setattr(neighbours, "_has_ended", lambda process: store.broken)

    def do(transport: StoreTransport) -> int | None:
        ready.wait(5)
        store.broken = True
        with pytest.raises(hg.RankError, match=r"rank \d has died, and the store does not answer.*gone") as caught:
            transport.all_gather(b"", "more", 5)
        return caught.value.rank

    assert together(2, do, store) == [1, 0]


def test_arguments_of_ranks_are_checked() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"rank": 0},
        {"rank": 0, "size": 1},
        {"rank": 2, "size": 2, "store": Shared()},
        {"store": Shared()},
    )
    for given in wrong:
        with pytest.raises(hg.DeclarationError, match="rank, size and store go together"):
            hg.ranks(**given)
    with pytest.raises(hg.DeclarationError, match=r"store has the methods .* without set, check, delete_key"):
        hg.ranks(rank=0, size=1, store={})


@pytest.mark.parametrize(
    ("method", "gives", "said"),
    [
        ("get", "text", r"get\(key\) gives these bytes \(got True and 'text' from"),
        ("get", None, r"get\(key\) gives these bytes \(got True and None from"),
        ("get", b"garbage", r"get\(key\) gives these bytes \(got True and b'garbage' from"),
        ("get", 7, r"get\(key\) gives these bytes \(got True and 7 from"),
        ("check", False, r"check\(\[key\]\) is true and .* \(got False and"),
        ("delete_key", False, r"after store\.delete_key\(key\), check\(\[key\]\) is false"),
    ],
)
def test_store_that_does_not_keep_what_it_is_given_is_refused(method: str, gives: Any, said: str) -> None:
    store = Shared()
    setattr(store, method, lambda *_: gives)
    with pytest.raises(hg.DeclarationError, match=said):
        StoreTransport(store, 0, 1, 5)


def test_store_of_an_earlier_run_is_refused() -> None:
    store = Shared()
    together(2, lambda transport: None, store)
    for rank in range(2):
        with pytest.raises(hg.DeclarationError, match=f"rank {rank} has used this store before, in an earlier run or another"):
            StoreTransport(store, rank, 2, 5)


@pytest.mark.parametrize("change", [-1, 1])
def test_message_of_another_length_writes_nothing(change: int) -> None:
    """Fewer bytes would be followed by those of other memory."""

    class Damaged(Shared):
        def get(self, key: str) -> bytes:
            value = super().get(key)
            return (value + b"x")[: len(value) + change] if "message" in key else value

    def do(transport: StoreTransport) -> None:
        values = np.ones(4, np.uint8) * transport.rank
        transfer = Transfer("hand", 1 - transport.rank, transport.rank == 0, 0, values.ctypes.data, 4)
        expected = pytest.raises(hg.RankError, match=rf"the store gives {4 + change} bytes of 'hand', of which 4 were sent")
        with expected if transport.rank else nullcontext():
            transport.exchange([transfer], 5)
        assert values.tolist() == [transport.rank] * 4

    together(2, do, Damaged())


def test_store_is_joined_once() -> None:
    store = Shared()
    first, second = hg.ranks(rank=0, size=1, store=store), hg.ranks(rank=0, size=1, store=store)
    assert first.transport is second.transport
    assert repr(first) == "Ranks(0 of 1, by store)"
    with pytest.raises(hg.DeclarationError, match=r"this process is rank 0 of 1 of this store already \(got rank=1, size=2\)"):
        hg.ranks(rank=1, size=2, store=store)
    first.transport.close()


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.mark.parametrize("size", [2, 3])
def test_processes_give_the_bits_of_one(size: int, forks: Forks, tmp_path: Path) -> None:
    forks.start(tmp_path, "by_store", [("run", tmp_path, rank, size) for rank in range(size)])
    ended = forks.printed()
    assert f"the same bits from {size} ranks" in ended[0], ended
    for rank, printed in enumerate(ended):
        assert f"rank {rank}: graph 'ring (rank {rank} of {size})': compiled for" in printed


def test_process_that_is_killed_is_named_by_the_others(forks: Forks, tmp_path: Path) -> None:
    started = forks.start(tmp_path, "by_store", [("stay", tmp_path, rank, 3) for rank in range(3)])
    end = time.monotonic() + 60
    while not (tmp_path / "launched.1").exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(started[1], signal.SIGKILL)
    ended = forks.printed()
    for rank in (0, 2):
        assert "told: 1 " in ended[rank], ended
        assert "rank 1 has died" in ended[rank], ended


def test_fork_of_a_rank_says_nothing_to_the_others(forks: Forks, tmp_path: Path) -> None:
    forks.start(tmp_path, "by_store", [("fork", tmp_path, rank, 2) for rank in range(2)])
    ended = forks.printed()
    assert all("goes on" in printed and "told" not in printed for printed in ended), ended
    assert re.search(
        r"fork: RankError: gather of 'ring': process \d+ is a fork of rank 1, process \d+, and cannot act for", ended[1]
    )
    assert ended[1].count("fork: ") == 3, ended


def test_torchrun_without_torch_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not here')\n")
    environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    path = os.pathsep.join([str(tmp_path), str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "-c", "import hipgraphdsl as hg; hg.ranks()"],
        env={**os.environ, **environment, "PYTHONPATH": path}, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert "RuntimeUnavailable: this program was started as several ranks with torchrun's environment" in done.stderr


@pytest.mark.parametrize("absent", [("MASTER_PORT",), ("RANK",), ("MASTER_ADDR", "MASTER_PORT")])
def test_part_of_the_environment_of_torchrun_is_refused(absent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every process would take itself for one rank alone."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        if name in absent:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(hg.DeclarationError, match=f"has WORLD_SIZE=2, as torchrun sets it, and not {' and '.join(absent)}; set"):
        hg.ranks()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert hg.ranks().size == 1


def test_torchrun_is_met_by_the_store_of_torch(tmp_path: Path) -> None:
    """With a module in torch's place that hands out a store of files, as `torch.distributed.rendezvous` does torch's."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "distributed.py").write_text(
        "import os\nfrom pathlib import Path\nfrom file_store import FileStore\n\n"
        "def rendezvous(url, timeout):\n"
        "    assert url == 'env://'\n"
        "    yield FileStore(Path(os.environ['FOLDER'])), int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    )
    path = os.pathsep.join([str(tmp_path), str(TESTS.parent), str(TESTS)])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "FOLDER": str(tmp_path / "store")}
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}  # srun has started torchrun, once on each machine
    program = "import hipgraphdsl as hg; r = hg.ranks(timeout_s=20); print(r, len(r.transport.before_here))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, **shared, **slurm, "PYTHONPATH": path, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    printed = [process.communicate(timeout=60)[0] for process in started]
    assert printed == [f"Ranks({rank} of 2, by store) {rank}\n" for rank in range(2)]


def test_store_of_files_is_a_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    store.set("a/b", b"1")
    assert (store.get("a/b"), store.check(["a/b"]), store.check(["a/b", "c"])) == (b"1", True, False)
    store.delete_key("a/b")
    assert not store.check(["a/b"])


def test_memory_of_a_message_that_may_still_arrive_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed exchange whose receive cannot be cancelled `close` returns no memory."""
    ranks = hg.ranks()
    g = hg.Graph("kept")
    g.memset(g.device_array("x", shape=64, dtype="int32"), 1)
    runtime = hg.open_runtime("cpu")
    freed: list[int] = []
    free = type(runtime).free

    def freeing(self: Any, pointer: int) -> None:
        freed.append(pointer)
        free(self, pointer)

    monkeypatch.setattr(type(runtime), "free", freeing)
    for still, kept in ((True, True), (False, False)):
        exe = g.compile(runtime, ranks=ranks)
        pointer = exe.array("x").ptr
        monkeypatch.setattr(ranks.transport, "still_writes", still)
        exe.close()
        with pytest.raises(hg.HipGraphError, match="is closed"):
            exe.run()
        assert (pointer not in freed) == kept
