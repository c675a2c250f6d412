"""Calls that differ between ranks, and calls that one rank alone refuses: all ranks are told at once, and stay together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from thread_ranks import on_ranks

import hipgraphdsl as hg
from hipgraphdsl.parts.ranks import ranked

N = 8


def handing(name: str = "handing") -> hg.Graph:
    """Rank 1 hands `x1` to rank 0, and has another array of the same size."""
    g = hg.Graph(name)
    x = [g.device_array(f"x{d}", np.full(N, d + 1, np.int32), device=d) for d in range(2)]
    g.memset(g.device_array("y1", shape=N, dtype="int32", device=1), 7, name="fill")
    g.memcpy(x[0], x[1], name="hand")
    return g


def refused(*calls: Callable[[hg.Ranks, Any], object]) -> list[hg.HipGraphError]:
    """Return what each rank is told when they make different calls about two Executables; afterwards they can go on."""

    def run(ranks: hg.Ranks) -> hg.HipGraphError:
        with handing().compile("cpu", ranks=ranks) as exe, handing().compile("cpu", ranks=ranks) as other:
            exe.run()
            with pytest.raises(hg.HipGraphError) as caught:
                calls[ranks.rank](ranks, (exe, other))
            exe.run()
            assert exe.gather("x0", root=1) is None or ranks.rank
            return caught.value

    found: list[hg.HipGraphError] = on_ranks(2, run, in_time=True)
    return found


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (lambda ranks, both: both[0].gather("y1", "x1"), "'x1', 'y1' to rank 0 of graph 'handing' where rank 1 has 'y1', 'x1'"),
        (lambda ranks, both: both[0].gather("x1"), "where rank 1 has 'x1' to rank 0"),
        (lambda ranks, both: both[0].gather("x1", "y1", root=1), "where rank 1 has 'x1', 'y1' to rank 1"),
        (lambda ranks, both: both[1].gather("x1", "y1"), "'x1', 'y1' to rank 0 of graph 'handing', of another Executable"),
    ],
)
def test_ranks_that_gather_different_arrays_get_no_bytes_of_another(second: Callable[..., object], said: str) -> None:
    for error in refused(lambda ranks, both: both[0].gather("x1", "y1"), second):
        assert isinstance(error, hg.DeclarationError)
        assert str(error).startswith("the ranks gather different arrays: rank 0 has 'x1', 'y1'")
        assert said in str(error)


def test_ranks_that_make_different_calls_are_told_which() -> None:
    for error in refused(
        lambda ranks, both: both[0].update(handing()), lambda ranks, both: handing().compile("cpu", ranks=ranks)
    ):
        assert str(error).startswith("the ranks make different calls: rank 0 calls update where rank 1 calls compile; make the")


def test_ranks_that_want_nccl_and_do_not_are_told() -> None:
    def made(ranks: hg.Ranks, both: Any) -> None:
        other = hg.Ranks(ranks.transport, (1, 1), ranks.timeout_s, nccl=(None, False)[ranks.rank])
        handing().compile("cpu", ranks=other)

    for error in refused(made, made):
        assert "rank 0 has option nccl=None where rank 1 has option nccl=False" in str(error)


def test_kernels_of_different_source_are_named_by_their_node() -> None:
    def made(ranks: hg.Ranks, both: Any) -> None:
        g = handing()
        source = f'extern "C" __global__ void add(int* x) {{ x[threadIdx.x] += {ranks.rank}; }}'
        g.kernel(hg.Module(source)["add"], 1, N, (g.arrays["x1"],), name="add")
        g.compile("cpu", ranks=ranks)

    for error in refused(made, made):
        assert "node 'add' of rank 0 is not that of rank 1" in str(error)
        assert isinstance(error, hg.DeclarationError)
        assert error.node == "add"


@pytest.mark.parametrize("options", [{"device": 1}, {"lanes": "measure"}, {"runtime": 3}])
def test_compile_that_one_rank_refuses_for_its_options_is_told(options: dict[str, Any]) -> None:
    def made(ranks: hg.Ranks, both: Any) -> None:
        handing().compile(**{"runtime": "cpu", "ranks": ranks, **(options if ranks.rank else {})})

    first, second = refused(made, made)
    assert str(first) == f"rank 1 has refused compile of 'handing': {type(second).__name__}: {second}"


def test_error_of_any_kind_before_ranks_compare_graphs_is_told() -> None:
    class Hostile:
        def workflow(self) -> Any:
            raise ValueError("hostile")

    def second(ranks: hg.Ranks, both: Any) -> None:
        with pytest.raises(ValueError, match="hostile"):
            both[0].update(Hostile())
        raise hg.HipGraphError("caught")

    first, _ = refused(lambda ranks, both: both[0].update(handing()), second)
    assert str(first) == "rank 1 has refused update of 'handing': ValueError: hostile"


def test_launches_that_all_refuse_again_and_again_leave_short_reports() -> None:
    def run(ranks: hg.Ranks) -> int:
        with handing().compile("cpu", ranks=ranks) as exe:
            for given in range(3):
                for _ in range(100):
                    with pytest.raises(hg.DeclarationError):
                        exe.launch(timeout_s=-1 - given)
                exe.run()
            length = len(ranks.transport.absences.told())
            with pytest.raises(hg.HipGraphError) as caught:
                exe.launch(timeout_s=-1 * ranks.rank or None)
            if ranks.rank == 0:
                assert "rank 1 has refused a launch of graph 'handing': timeout_s" in str(caught.value)
            return length

    assert max(on_ranks(2, run)) < 1500


def test_names_made_of_long_names_fit() -> None:
    """What one process takes, several ranks take, whatever the names of messages, copies and nodes of children are made of."""
    long = "n" * 199

    def declared() -> hg.Graph:
        g = hg.Graph("g" * 200)
        x = [g.device_array(f"x{d}", np.arange(2 * N).reshape(N, 2) + d, dtype="int32", device=d) for d in range(2)]
        g.memcpy(x[1][:, 0], x[0][:, 1], name=long + "a")
        g.memcpy(x[0][:, 0], x[1][:, 1], name=long + "b")
        g.memset(x[0][0], 5, name=long + "c")
        g.memset(x[1][1], 6, name=long + "d", after=[long + "c"])
        child = hg.Graph("child")
        a = [child.device_array(f"a{d}", shape=(N, 2), dtype="int32", device=d) for d in range(2)]
        kept = child.device_array(long, shape=(N, 2), dtype="int32", device=1)
        child.memcpy(kept, a[0], name=long)
        child.memset(a[1], 9, name=long + "e")
        g.child(child, {"a0": x[0], "a1": x[1]}, name=long + "f")
        g.all_reduce(x, name=long + "g")
        g.conditional("while", g.device_array("w", shape=1, dtype="int32", device=1), child, name=long + "h", decide="host")
        return g

    def run(ranks: hg.Ranks) -> Any:
        with declared().compile("cpu", ranks=ranks) as exe:
            exe.run()
            exe.disable(f"{long}f/{long}e")
            exe.run()
            return exe.gather("x0", "x1", f"{long}f/{long}")

    x0, x1, kept = on_ranks(2, run)[0]
    wanted = [np.arange(2 * N).reshape(N, 2) + d for d in range(2)]
    for filled in (True, False):
        wanted[1][:, 0], wanted[0][:, 0] = wanted[0][:, 1], wanted[1][:, 1].copy()
        wanted[0][0], wanted[1][1] = 5, 6
        before = wanted[0].copy()
        if filled:
            wanted[1][:] = 9
        wanted = [wanted[0] + wanted[1]] * 2
        wanted = [one.copy() for one in wanted]
    for got, one in zip((x0, x1, kept), (*wanted, before)):
        np.testing.assert_array_equal(got, one)


def test_array_that_is_gathered_twice_is_copied_twice() -> None:
    def run(ranks: hg.Ranks) -> Any:
        with handing().compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.gather("x0", "y1", "x0", "y1")

    found = on_ranks(2, run)[0]
    assert [array[0] for array in found] == [2, 7, 2, 7]
    found[0][:] = found[1][:] = 0
    assert [array[0] for array in found] == [0, 0, 2, 7]


@pytest.mark.parametrize("call", ["compile", "update"])
@pytest.mark.parametrize("refusing", [(1,), (0, 1)])
def test_part_that_one_rank_cannot_make_is_told(call: str, refusing: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    partition = vars(ranked)["partition"]

    def failing(sharing: Any, rank: int, *args: Any, **options: Any) -> Any:
        if sharing.workflow.name == "fails" and rank in refusing:
            raise hg.DeclarationError("it cannot be made")
        return partition(sharing, rank, *args, **options)

    monkeypatch.setattr(ranked, "partition", failing)

    def made(ranks: hg.Ranks, both: Any) -> None:
        g = handing("fails")
        g.compile("cpu", ranks=ranks) if call == "compile" else both[0].update(g)

    first, second = refused(made, made)
    assert str(second) == "it cannot be made"
    whose = "rank 1 says that it cannot compile its part" if call == "compile" else "on rank 1, so no rank takes it"
    assert str(first) == str(second) if 0 in refusing else whose in str(first)
