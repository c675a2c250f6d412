"""Arenas and families: what they refuse, which member runs, what is shared, and whose memory it is."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.parts.recorder import RecorderRuntime

pytestmark = pytest.mark.needs("family")

MODULE = hg.Module(r"""
extern "C" __global__ void scale(const float* w, const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = w[i % 4] * x[i] + a;
}
""")


def step(batch: int, length: int = 1) -> hg.Graph:
    n = batch * length * 4
    g = hg.Graph(f"step{batch}x{length}")
    w = g.device_array("w", np.arange(4, dtype="f4"))
    x, y = (g.device_array(name, shape=n, dtype="f4") for name in "xy")
    a = g.param("a", "float32", 0.0)
    t = g.alloc("t", n, "f4")
    g.kernel(MODULE["scale"], batch, 64, (w, x, hg.writes(t), a, n), name="scale")
    g.memcpy(y, t)
    g.free(t)
    return g


def family(**options: Any) -> hg.Family:
    return hg.Family(step, **{"runtime": "recorder", "batch": [4, 1, 2], **options})


def wrong(value: Any) -> Any:
    """Return a value of a type that is not asked for."""
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hg.Family(wrong(3), batch=[1]), "Family takes a function that returns the graph of one size"),
        (lambda: family(fit="best"), "fit is one of 'smallest', 'exact', 'refuse' \\(got 'best'\\)"),
        (lambda: hg.Family(step, runtime="recorder"), "takes the sizes that its graphs are built for, such as batch="),
        (
            lambda: hg.Family(step, batch=wrong({1}), runtime="recorder"),
            "such as batch=.* \\(got batch=.1., runtime='recorder'\\)",
        ),
        (lambda: family(stream=[1]), "stream: launch, read and write have an argument of this name; name the size otherwise"),
        (lambda: family(values=[1]), "values: launch, read and write have an argument of this name"),
        (lambda: family(limit_bytes=-1), "limit_bytes is a number of bytes \\(got -1\\)"),
        (lambda: family(batch=[]), "batch: at least one size is needed"),
        (lambda: family(batch=[1, 0]), "batch: a size is an integer from 1 \\(got 0\\)"),
        (lambda: family(batch=[1, 2.5]), "batch: a size is an integer from 1 \\(got 2.5\\)"),
        (lambda: family(limit_bytes="1 GB"), "limit_bytes is a number of bytes"),
        (lambda: family(memory=3), "memory is a hipgraphdsl.Arena"),
        (
            lambda: family(batches=3),
            "batches=3 is neither a list of sizes, as batches=\\[1, 2, 4\\], nor an option of Graph.compile",
        ),
        (lambda: family(ranks=3), "ranks=3 is neither a list of sizes"),
        (lambda: hg.Arena(allocate=wrong(len)), "two functions, allocate\\(nbytes, stream\\) and free\\(address\\), or neither"),
        (lambda: hg.Arena(allocate=wrong(3), free=wrong(len)), "takes two functions"),
        (lambda: step(1).compile("recorder", memory=wrong(3)), "memory, or arena, is one hipgraphdsl.Arena"),
        (lambda: step(1).compile("recorder", memory=hg.Arena(), arena=hg.Arena()), "memory, or arena, is one"),
    ],
)
def test_what_is_no_arena_and_no_family_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(hg.DeclarationError, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.launch(), "launch: say which size, as batch=1"),
        (lambda f: f.launch(batch=5), "batch=5 is larger than the largest of <Family of step: .*>, 4"),
        (lambda f: f.launch(batch=-1), "batch is a size, an integer from 0 \\(got -1\\)"),
        (lambda f: f.launch(batch=2.0), "batch is a size, an integer from 0 \\(got 2.0\\)"),
        (lambda f: f.member(batch=1, length=2), "member: <Family.*> has no size 'length'"),
        (lambda f: f.read("x", rows=2), "read: <Family.*> has no size 'rows'"),
        (lambda f: f.launch(batch=1, b=2.0), "b"),
    ],
)
def test_a_launch_of_no_member_is_refused_and_the_family_goes_on(call: Callable[[hg.Family], Any], message: str) -> None:
    with family() as f:
        f.run(batch=2)
        with pytest.raises(hg.DeclarationError, match=message):
            call(f)
        f.run(batch=2)
        assert f.members[2].launches == 2


def test_a_build_that_returns_no_graph_is_named() -> None:
    with (
        hg.Family(wrong(lambda batch: batch), batch=[1], runtime="recorder") as f,
        pytest.raises(hg.DeclarationError, match="build\\(batch=1\\) returns a Graph \\(got 1\\)"),
    ):
        f.launch(batch=1)


@pytest.mark.parametrize(
    ("fit", "asked", "runs"),
    [("smallest", 3, 4), ("smallest", 0, 1), ("smallest", 4, 4), ("exact", 3, 3), ("exact", 2, 2), ("refuse", 2, 2)],
)
def test_fit_says_which_member_runs(fit: Any, asked: int, runs: int) -> None:
    with family(fit=fit) as f:
        f.run(batch=asked)
        assert list(f.members) == [runs]
        assert f.member(batch=asked) is f._members[(runs,)]


def test_exact_and_refusing_families_refuse() -> None:
    with family(fit="refuse") as f, pytest.raises(hg.DeclarationError, match="has no member of batch=3; it has 1, 2, 4"):
        f.launch(batch=3)
    with family(fit="exact") as f, pytest.raises(hg.DeclarationError, match="with fit='exact' the smallest size is 1"):
        f.launch(batch=0)


def test_sizes_of_several_names_are_combined() -> None:
    with family(length=[1, 8]) as f:
        assert f.sizes == [(4, 8), (2, 8), (1, 8), (4, 1), (2, 1), (1, 1)]
        f.run(batch=3, length=2)
        f.run(length=1, batch=1)
        assert {key: member.launches for key, member in f.members.items()} == {(1, 1): 1, (4, 8): 1}


@pytest.mark.needs("cpu")
def test_arrays_of_one_shape_are_shared_and_others_are_not() -> None:
    with family(runtime="cpu") as f:
        one, two = f.member(batch=1), f.member(batch=2)
        assert one.array("w").ptr == two.array("w").ptr
        assert one.array("x").ptr != two.array("x").ptr
        f.write("w", [5.0, 6.0, 7.0, 8.0])
        assert two.read("w").tolist() == one.read("w").tolist() == f.read("w").tolist() == [5.0, 6.0, 7.0, 8.0]
        assert f.nbytes == f.sharing.arena.nbytes + 16 + 2 * (16 + 32 + 64)  # type: ignore[union-attr]


@pytest.mark.needs("cpu")
def test_a_clone_of_a_member_has_its_own_arrays() -> None:
    with family(runtime="cpu") as f, f.member(batch=2).clone() as clone:
        clone.write("x", np.ones(8))
        clone.write("w", 5.0)
        assert f.read("x", batch=2).tolist() == [0.0] * 8
        assert f.read("w").tolist() == [0.0, 1.0, 2.0, 3.0]


def test_members_may_not_begin_with_other_values() -> None:
    def build(batch: int) -> hg.Graph:
        g = hg.Graph("g")
        g.memset(g.device_array("w", np.full(4, batch, "f4")), 1)
        return g

    with hg.Family(build, batch=[1, 2], runtime="recorder") as f:
        f.run(batch=2)
        with pytest.raises(hg.DeclarationError, match="array 'w' begins with other values than in the member"):
            f.run(batch=1)
        f.run(batch=2)


def test_arrays_that_depend_on_one_of_two_sizes_are_shared_by_the_members_of_that_size() -> None:
    def build(batch: int, length: int) -> hg.Graph:
        g = step(batch, length)
        g.memset(g.device_array("cache", shape=length, dtype="f4"), 1)
        return g

    with hg.Family(build, batch=[1, 2], length=[4, 8], runtime="recorder") as f:
        f.compile()
        at = {(batch, length): f.member(batch=batch, length=length).array("cache").ptr for batch, length in f.sizes}
        assert at[1, 4] == at[2, 4] != at[1, 8] == at[2, 8]
        assert f.nbytes == f.sharing.arena.nbytes + 16 + (16 + 32) + 2 * (64 + 128 + 256)  # type: ignore[union-attr]


def test_a_member_that_could_not_be_compiled_has_initialised_nothing() -> None:
    value, runtime = [1.0], RecorderRuntime()

    def build(batch: int) -> hg.Graph:
        g = hg.Graph("g")
        g.memset(g.device_array("w", np.full(4, value[0], "f4")), 1)
        return g

    with hg.Family(build, batch=[1], runtime=runtime) as f:
        runtime.fail_at(1, api="hipGraphCreate")
        with pytest.raises(hg.HipError):
            f.run(batch=1)
        assert f.nbytes == 0
        value[0] = 2.0
        f.run(batch=1)


@pytest.mark.filterwarnings("ignore:.*never closed:ResourceWarning")
def test_a_family_that_is_collected_leaves_nothing() -> None:
    runtime = RecorderRuntime()
    f = hg.Family(step, batch=[1, 2], runtime=runtime)
    f.run(batch=1)
    f.run(batch=2)
    del f
    gc.collect()
    assert not runtime.live


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # the child only closes
def test_closing_in_a_forked_process_touches_nothing() -> None:
    runtime, read_write = RecorderRuntime(), os.pipe()
    with hg.Family(step, batch=[1, 2], runtime=runtime) as f:
        f.run(batch=1)
        runtime.clear()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(f._lock.acquire).result()  # by a thread that the fork has not
            child = os.fork()
            if not child:
                try:
                    f.close()
                    os.write(read_write[1], b"%d" % len(runtime.calls))
                finally:
                    os._exit(0)
            assert os.read(read_write[0], 8) == b"0"
            os.waitpid(child, 0)
            pool.submit(f._lock.release).result()
    for end in read_write:
        os.close(end)


@pytest.mark.parametrize("make", [hg.Arena, family])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_families_and_arenas_are_not_copied(make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="holds device handles and cannot be copied or pickled; make"):
        copied(make())


def test_a_parameter_keeps_its_value_in_all_members() -> None:
    with family() as f:
        f.run(batch=1, a=3.0)
        f.run(batch=2)
        assert f.member(batch=2).parameters["a"] == 3.0
        f.run(batch=2, a=4.0)
        f.run(batch=1)
        assert f.member(batch=1).parameters["a"] == 4.0


def test_a_launch_may_give_values_while_another_thread_takes_them_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Table(dict[str, Any]):
        def __contains__(self, name: object) -> bool:
            f._given[f"given by another thread {len(f._given)}"] = 0
            return super().__contains__(name)

    with family() as f:
        f.run(batch=1, a=3.0)
        parameters = f.member(batch=2)._own.parameters
        monkeypatch.setattr(parameters, "table", Table(parameters.table))
        f.run(batch=2)
        assert f.member(batch=2).parameters["a"] == 3.0


def copying(batch: int) -> hg.Graph:
    """Return a graph that copies one parameter, which is memory, and one whose values are copied."""
    g = hg.Graph(f"copying{batch}")
    y, z, other = (g.device_array(name, shape=4, dtype="f4") for name in ("y", "z", "other"))
    of = g.param("of", "f4", shape=4, default=other)
    values = g.param("values", "f4", shape=4, default=np.zeros(4, "f4"), copy=True)
    g.memcpy(y, values)
    copied = g.memcpy(z, of)
    if batch == 1 and FAILS:
        g.eager(lambda _: 1 / FAILS.pop(), after=copied)
    return g


FAILS = list[int]()


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("how", ["name", "declared", "view", "external", "array"])
def test_an_array_parameter_keeps_its_memory_and_its_values_in_all_members(how: str, fails: bool) -> None:
    memory, values = np.full(4, 3.0, "f4"), np.full(4, 5.0, "f4")
    FAILS[:] = [0] if fails else []
    with hg.Family(copying, batch=[1, 2], runtime="cpu") as f:
        graph = f.graph(batch=1)
        given: Any = {
            "name": "other",
            "declared": graph.workflow().arrays["other"],
            "view": graph.workflow().arrays["other"][:],
            "external": graph.external_array("mine", memory),
            "array": memory,
        }[how]
        f.write("other", memory, batch=1)
        if fails:
            with pytest.raises(ZeroDivisionError):
                f.run(batch=1, of=given, values=values)
        else:
            f.run(batch=1, of=given, values=values)
        values[:] = 6.0  # they have been copied
        if how in ("external", "array"):
            memory[:] = 4.0  # it is used in place
        f.run(batch=2)
        assert f.read("y").tolist() == [5.0] * 4
        assert f.read("z").tolist() == [4.0 if how in ("external", "array") else 3.0] * 4


@pytest.mark.needs("cpu")
def test_a_failed_launch_has_given_its_values_to_all_members_and_a_refused_one_none() -> None:
    def build(batch: int) -> hg.Graph:
        g = step(batch)
        if batch == 1:
            g.eager(lambda _: 1 / 0)
        return g

    with hg.Family(build, batch=[1, 2], runtime="cpu") as f:
        with pytest.raises(ZeroDivisionError):
            f.run(batch=1, a=5.0)
        f.run(batch=2)
        assert f.read("y").tolist() == [5.0] * 8
        with pytest.raises(hg.DeclarationError):
            f.run(batch=1, a=6.0, b=1)
        f.run(batch=2)
        assert f.read("y").tolist() == [5.0] * 8


def test_a_limit_closes_the_member_that_was_not_used_for_longest() -> None:
    with family(limit_bytes=470, batch=[1, 2, 4, 8]) as f:
        for batch in (8, 1, 2, 4):
            f.run(batch=batch)
        assert [key for (key,) in f._members] == [2, 4]
        assert f.nbytes == 464
        assert {size: member.launches for size, member in f.members.items()} == {1: 1, 2: 1, 4: 1, 8: 1}
        assert [size for size, member in f.members.items() if not member.nbytes] == [1, 8]


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("waits", ["synchronize", "close"])
def test_an_error_of_a_member_that_was_closed_to_make_room_is_told_by_the_next_wait(waits: str) -> None:
    def build(batch: int) -> hg.Graph:
        g = step(batch)
        if batch == 1:
            g.host(lambda: 1 / 0)
        return g

    with hg.Family(build, batch=[1, 2], runtime="cpu", limit_bytes=1) as f:
        f.launch(batch=1)
        f.launch(batch=2, a=3.0)
        assert {size: member.launches for size, member in f.members.items()} == {1: 1, 2: 1}
        with pytest.raises(ZeroDivisionError):
            getattr(f, waits)()
        f.close() if waits == "close" else f.run(batch=2)
    assert f.nbytes == 0


def test_a_wait_passes_over_a_member_that_is_closed_to_make_room_meanwhile() -> None:
    with family(limit_bytes=1) as f:
        f.launch(batch=1)
        before = f._open()
        f.launch(batch=2)
        assert [member._closed for member in before] == [True]
        f._open = lambda: before  # type: ignore[method-assign]  # as another thread has found them
        f.synchronize()
        assert f.done()


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("held_by", ["build", "launch"])
def test_a_time_limit_holds_for_launches_that_wait_for_members(held_by: str) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def build(batch: int) -> hg.Graph:
        g = step(batch)
        if batch == 1 and held_by == "launch":
            g.host(lambda: go_on.wait(60))
        elif batch == 1:
            entered.set()
            go_on.wait(60)
        return g

    runtime, limit = ("cpu", 1) if held_by == "launch" else ("recorder", None)
    with hg.Family(build, batch=[1, 2], runtime=runtime, limit_bytes=limit) as f, ThreadPoolExecutor(1) as pool:
        first = pool.submit(f.launch, batch=1)
        if held_by == "launch":
            first.result()
        else:
            assert entered.wait(60)
        with pytest.raises(hg.WaitTimeout):
            f.launch(batch=2, timeout_s=0.05, a=2.0)
        go_on.set()
        first.result()
        f.run(batch=2, timeout_s=60)
        assert f.member(batch=2).parameters["a"] == 0.0


@pytest.mark.parametrize("known", [False, True])
def test_a_member_that_its_user_has_closed_is_compiled_again(known: bool) -> None:
    with family() as f:
        f.member(batch=2).close()
        if known:
            f.run(batch=2)
            f.member(batch=2).close()
        f.run(batch=2)
        f.run(batch=1)
        f.synchronize()
        assert f.done()


@pytest.mark.needs("cpu")
def test_threads_use_a_family_whose_members_are_closed_to_make_room() -> None:
    with family(limit_bytes=700, batch=[1, 2, 4, 8], runtime="cpu") as f, ThreadPoolExecutor(4) as pool:

        def work(seed: int) -> None:
            for k in range(20):
                f.launch(batch=1 << (seed + k) % 4)
                assert f.read("w").tolist() == [0.0, 1.0, 2.0, 3.0]
                f.synchronize()
                f.done()

        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result()
        assert sum(member.launches for member in f.members.values()) == 80


def test_members_are_compiled_in_the_background_largest_first() -> None:
    built, done = list[int](), threading.Event()

    def build(batch: int) -> hg.Graph:
        built.append(batch)
        if batch == 1:
            done.set()
        return step(batch)

    with hg.Family(build, batch=[1, 2, 4], runtime="recorder", background=True) as f:
        assert done.wait(60)
        f.run(batch=1)
        assert built == [4, 2, 1]
        assert sorted(f.members) == [1, 2, 4]


def test_compile_makes_all_members_and_close_frees_all() -> None:
    f = family()
    assert f.compile(progress=False) is f
    assert sorted(f.members) == [1, 2, 4]
    assert all(member.seconds > 0 and member.nbytes > 0 for member in f.members.values())
    f.close()
    f.close()
    assert f.nbytes == 0
    with pytest.raises(hg.HipGraphError, match=r"<Family of step.*> is closed; make it again"):
        f.launch(batch=1)


@pytest.mark.needs("cpu")
def test_ctrl_c_that_leaves_a_family_waits_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipgraphdsl.executable.executable._ABORT_S", 0.05)
    go_on, left = threading.Event(), list[bool]()

    def build(batch: int) -> hg.Graph:
        g = step(batch)
        g.host(lambda: left.append(go_on.wait(60)))
        return g

    f = hg.Family(build, batch=[1, 2], runtime="cpu")
    f.launch(batch=1)
    member = f.member(batch=1)
    f.__exit__(KeyboardInterrupt)
    assert not left
    go_on.set()
    with pytest.raises(hg.HipGraphError, match="is closed"):
        member.launch()


def test_a_family_that_a_function_of_a_launch_may_not_close_stays_open() -> None:
    refused = list[str]()

    def close(_: Any) -> None:
        with pytest.raises(hg.HipGraphError) as caught:
            f.close()
        refused.append(str(caught.value))

    def build(batch: int) -> hg.Graph:
        g = step(batch)
        if batch == 1:
            g.eager(close)
        return g

    with hg.Family(build, batch=[1, 2], runtime="recorder") as f:
        f.run(batch=2)
        f.run(batch=1)
        f.run(batch=2)
        f.run(batch=1)
        assert len(refused) == 2
        assert "close: the function of eager node 'close' calls it" in refused[0]
        assert f.members[2].launches == 2
    assert f.nbytes == 0


def test_check_says_whether_all_sizes_are_right() -> None:
    f = family()
    reports = f.check("amd:gfx942")
    assert list(reports) == [4, 2, 1]
    assert reports.ok
    assert "4: graph 'step4x1'" in str(reports)

    def wrong(batch: int) -> hg.Graph:
        g = step(batch)
        if batch == 2:
            t = g.alloc("lost", 4, "f4")
            g.memset(t, 1)
            g.free(t)
            g.memset(t, 2)
        return g

    faulty = hg.Family(wrong, batch=[1, 2], runtime="recorder").check()
    assert not faulty.ok
    assert faulty[1].ok


@pytest.mark.needs("verify")
@pytest.mark.needs("cpu")
def test_verify_proves_each_size() -> None:
    reports = family(batch=[1, 2]).verify("cpu", orders=1, repeats=1)
    assert list(reports) == [2, 1]
    assert reports.ok


def test_an_arena_takes_memory_from_another_allocator() -> None:
    asked, given = list[tuple[int, int]](), list[int]()
    with step(1).compile("recorder") as exe:
        runtime = exe.runtime

    def allocate(nbytes: int, stream: int) -> int:
        asked.append((nbytes, stream))
        return runtime.malloc(nbytes)

    def free(address: int) -> None:
        given.append(address)
        runtime.free(address)

    arena = hg.Arena(allocate=allocate, free=free)
    with step(1).compile("recorder", memory=arena) as one, step(100).compile("recorder", memory=arena) as two:
        one.run()
        two.run()
        assert [nbytes for nbytes, _ in asked] == [256, 1792]
        assert {stream for _, stream in asked} == {arena.stream}
        assert len(given) == 1
    assert len(given) == 2
    del given[:]
    for wrong_address in (17, 0, -256, None, 2.5, "256"):
        with pytest.raises(hg.DeclarationError, match=f"returns an address that 256 divides \\(got {wrong_address!r}\\)"):
            step(1).compile("recorder", memory=hg.Arena(allocate=wrong(lambda *_, at=wrong_address: at), free=given.append))
    assert given == [17]


def test_an_arena_is_of_one_runtime() -> None:
    arena = hg.Arena()
    with step(1).compile("recorder", memory=arena) as exe:
        with pytest.raises(hg.DeclarationError, match="the arena has Executables on 'recorder' device 0, and this one would be"):
            step(1).compile(RecorderRuntime(), memory=arena)
        exe.run()
    assert arena.nbytes == 0
    with step(1).compile(RecorderRuntime(), memory=arena) as exe:
        exe.run()


def test_a_graph_that_fails_to_compile_leaves_the_arena_as_it_was() -> None:
    def fail(nbytes: int, stream: int) -> int:
        if nbytes > 1000:
            raise MemoryError(f"{nbytes} bytes")
        return runtime.malloc(nbytes)

    with step(1).compile("recorder") as exe:
        runtime = exe.runtime
    arena = hg.Arena(allocate=fail, free=runtime.free)
    with step(1).compile("recorder", memory=arena) as one:
        one.run()
        with pytest.raises(MemoryError, match="1792 bytes"):
            step(100).compile("recorder", memory=arena)
        assert arena.nbytes == 256
        one.run()
        assert one.stats.instantiations == 1
    assert arena.nbytes == 0 == arena.stream


def test_whatever_call_fails_in_a_compile_leaves_the_arena_as_it_was() -> None:
    moving = ("hipFree", "hipGetDevice", "hipSetDevice")  # after which the smaller graph may have moved
    failed = list[str]()
    for n in itertools.count(1):
        runtime, arena = RecorderRuntime(), hg.Arena()
        with step(1).compile(runtime, memory=arena) as one:
            one.run()
            runtime.fail_at(n)
            try:
                larger = step(100).compile(runtime, memory=arena)
            except hg.HipError as error:
                failed.append(error.api)
            else:
                runtime._failures.clear()
                larger.close()
                break
            assert arena.nbytes == 256 or failed[-1] in moving
            with step(2).compile(runtime, memory=arena) as two:
                two.run()
                one.run()
                assert arena.nbytes == 256
        assert not runtime.live
        assert arena.nbytes == 0 == arena.stream
    assert {"hipMalloc", "hipGraphCreate", *moving} <= set(failed)


def test_a_graph_that_an_eager_function_compiles_lets_its_caller_move_later() -> None:
    arena, made = hg.Arena(), list[hg.Executable]()
    g = step(1)
    g.eager(lambda _: made.append(step(100).compile("recorder", memory=arena)) if not made else None)
    with g.compile("recorder", memory=arena) as one:
        one.run()
        with made[0] as two:
            assert arena.nbytes == 256 + 1792
            two.run()
            one.run()
            assert arena.nbytes == 1792


def test_a_launch_that_does_not_come_to_its_turn_in_time_gives_no_values() -> None:
    arena, entered, go_on = hg.Arena(), threading.Event(), threading.Event()
    g = step(1)
    g.eager(lambda _: [wait() for wait in (entered.set, go_on.wait)])
    with (
        g.compile("recorder", memory=arena) as slow,
        step(2).compile("recorder", memory=arena) as exe,
        ThreadPoolExecutor(1) as pool,
    ):
        exe.run(a=1.0)
        running = pool.submit(slow.launch)
        assert entered.wait(60)
        with pytest.raises(
            hg.WaitTimeout, match="another thread launches graph 'step1x1', which shares an arena with graph 'step2x1'"
        ):
            exe.launch(timeout_s=0.01, a=2.0)
        go_on.set()
        running.result()
        assert exe.parameters == {"a": 1.0}
        assert exe.stats.launches == 1
        exe.launch(timeout_s=60, a=3.0)
        assert exe.parameters == {"a": 3.0}
        assert exe.stats.launches == 2


def test_an_executable_that_another_thread_uses_moves_at_its_next_launch() -> None:
    arena = hg.Arena()
    with step(1).compile("recorder", memory=arena) as one:
        one.run()
        with ThreadPoolExecutor(1) as pool, one._lock:
            two = pool.submit(step(100).compile, "recorder", memory=arena).result()
        with two:
            assert arena.nbytes == 256 + 1792
            one.enable("scale")
            one.run()
            assert arena.nbytes == 1792


@pytest.mark.parametrize("backend", ["explicit", "streams"])
def test_a_launch_into_a_capture_is_refused(backend: Any) -> None:
    with step(1).compile("recorder", backend, memory=hg.Arena()) as exe:
        runtime = exe.runtime
        stream = runtime.stream_create()
        runtime.stream_begin_capture(stream)
        with pytest.raises(hg.DeclarationError, match="shares memory with other graphs, which nobody can order"):
            exe.launch(stream)
        runtime.graph_destroy(runtime.stream_end_capture(stream))
        runtime.stream_destroy(stream)
        exe.run()


@pytest.mark.needs("cpu")
def test_plans_and_executables_say_what_memory_they_take() -> None:
    plan = step(100).plan(target="nvidia:sm_90", options=hg.PlanOptions(pack="all"))
    use = plan.memory
    assert (use.arrays, use.temporaries, use.unpacked, use.staging) == (16 + 2 * 1600, 1792, 0, 0)
    assert use.graph == 2300 * len(plan.steps)
    assert use.total == use.arrays + use.temporaries + use.graph
    assert "temporaries 1.8 KiB" in str(use)
    apart = step(100).plan(target="cpu", options=hg.PlanOptions(pack=False)).memory
    assert (apart.temporaries, apart.unpacked, apart.graph) == (0, 1600, 0)
    g = hg.Graph("hosts")
    g.memcpy(g.device_array("x", shape=4, dtype="f4"), g.param("p", "float32", shape=4, default=np.zeros(4, "f4"), copy=True))
    g.memset(g.host_array("h", shape=2, dtype="f4"), 0)
    with step(100).compile("cpu", debug=hg.DebugOptions(watch=True)) as exe:
        assert exe.memory.staging == exe.plan.memory.staging > 0
    with g.compile("recorder") as exe:
        assert (exe.memory.arrays, exe.memory.staging) == (16, 24) == (exe.plan.memory.arrays, exe.plan.memory.staging)
