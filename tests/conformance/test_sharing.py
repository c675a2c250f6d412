"""Executables that share memory run one after another, whoever launches them, and have their own results."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import HERE, other_library

import hipgraphdsl as hg

MODULE = hg.Module(r"""
extern "C" __global__ void add(const float* x, float* y, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + a;
}
extern "C" __global__ void scale(const float* w, const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = w[i % 64] * x[i];
}
""")
BACKENDS = ["explicit", "capture", "streams", "serial"]
DEPTH = 6
STEPS = ["new", "launch", "stream", "close", "clone", "rebuild", "set", "profile"]


def chain(n: int, *, seed: int = 0, cut: bool = False, name: str = "chain") -> hg.Graph:
    """Return a graph that adds `a` to each element DEPTH times, through temporaries; with `cut` the host acts in between."""
    g = hg.Graph(f"{name}{n}")
    x = g.device_array("x", np.arange(n, dtype="f4") + seed)
    y = g.device_array("y", shape=n, dtype="f4")
    a = g.param("a", "float32", 1.0)
    last: Any = x
    for i in range(DEPTH):
        t = g.alloc(f"t{i}", n, "f4")
        g.kernel(MODULE["add"], min(8, -(-n // 64)), 64, (last, hg.writes(t), a, n))
        if cut and i == DEPTH // 2:
            g.eager(lambda *_: None, reads=[t], writes=[])
        if last is not x:
            g.free(last)
        last = t
    g.memcpy(y, last)
    g.free(last)
    return g


def result(n: int, a: float, seed: int = 0) -> list[float]:
    values: list[float] = (np.arange(n, dtype="f4") + seed + DEPTH * np.float32(a)).tolist()
    return values


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_temporaries_of_an_arena_take_what_the_largest_graph_needs(name: Any, backend: Any) -> None:
    arena = hg.Arena()
    alone = {}
    for n in (100, 3000, 500):
        with chain(n).compile(name, backend, memory=hg.Arena()) as exe:
            alone[n] = exe.memory.temporaries
            assert exe.memory.unpacked == 0 == exe.plan.memory.unpacked
            assert exe.plan.memory.temporaries == alone[n]
    with ExitStack() as stack:
        made = {n: stack.enter_context(chain(n).compile(name, backend, memory=arena)) for n in (100, 3000, 500)}
        assert arena.nbytes == max(alone.values())
        for a in (1.0, 2.0, 3.0):
            for exe in made.values():
                exe.launch(a=a)
        for n, exe in made.items():
            assert exe.read("y").tolist() == result(n, 3.0)
            assert exe.memory.temporaries == arena.nbytes
    assert arena.nbytes == 0


def noting(log: list[Any], who: int, gate: threading.Event | None = None) -> hg.Graph:
    """Return a graph that notes its begin and its end, and waits in between for a gate, for a moment at most."""
    g = hg.Graph(f"noting{who}")
    x, out = g.device_array("x", np.full(64, who, "f4")), g.device_array("out", shape=64, dtype="f4")
    t = g.alloc("t", 64, "f4")

    def begin() -> None:
        log.append(("begin", who))
        if gate is not None:
            gate.wait(0.3)

    first = g.host(begin)
    g.kernel(MODULE["add"], 1, 64, (x, hg.writes(t), 0.0, 64), after=first)
    copied = g.memcpy(out, t)
    g.host(lambda: log.append(("end", who)), after=copied)
    g.free(t)
    return g


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_launches_on_any_stream_follow_each_other(name: Any, backend: Any, order: tuple[int, ...]) -> None:
    """The first launch is held until all have been enqueued: one that does not wait for it begins before its end."""
    arena, log, gate = hg.Arena(), list[Any](), threading.Event()
    with ExitStack() as stack:
        made = [stack.enter_context(noting(log, who, gate).compile(name, backend, arena=arena)) for who in range(3)]
        runtime = made[0].runtime
        streams: list[Any] = [None, runtime.stream_create(), runtime.stream_create()]
        try:
            for exe, at in zip(made, order):
                exe.launch(streams[at])
            gate.set()
            for exe in made:
                exe.synchronize()
        finally:
            for stream in streams[1:]:
                runtime.stream_destroy(stream)
        assert log == [(what, who) for who in range(3) for what in ("begin", "end")]
        assert [exe.read("out")[0] for exe in made] == [0, 1, 2]


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_no_launch_comes_between_the_calls_of_another(name: Any, backend: Any) -> None:
    """A function between two graphs lets another thread launch, by compiled code before such a graph was there."""
    arena, log = hg.Arena(), list[Any]()
    with noting(log, 0).compile(name, backend, memory=arena) as exe:
        exe.launch()
        exe.run()
        exe.run()
        cut = hg.Graph("cut")
        x, y = cut.device_array("x", np.ones(8, "f4")), cut.device_array("y", shape=8, dtype="f4")
        t = cut.alloc("t", 8, "f4")
        before = cut.memcpy(t, x)
        threads = [threading.Thread(target=exe.launch)]

        def between(_: Any) -> None:
            log.append("between")
            threads[0].start()
            threads[0].join(0.2)
            log.append("on")

        cut.eager(between, after=before)
        cut.memcpy(y, t)
        cut.free(t)
        with cut.compile(name, backend, memory=arena) as other:
            del log[:]
            other.run()
            threads[0].join()
            exe.synchronize()
            assert log == ["between", "on", ("begin", 0), ("end", 0)]
            assert other.read("y").tolist() == [1.0] * 8


@pytest.mark.parametrize("name", HERE)
def test_a_launch_in_a_function_of_a_launch_of_the_same_arena_is_refused(name: Any) -> None:
    arena, said = hg.Arena(), list[str]()
    with chain(64).compile(name, memory=arena) as exe:
        exe.run()
        exe.run()
        cut = hg.Graph("cut")
        cut.memset(cut.device_array("x", shape=8, dtype="f4"))

        def inside(_: Any) -> None:
            with pytest.raises(hg.DeclarationError) as caught:
                exe.launch(a=3.0)
            said.append(str(caught.value))

        cut.eager(inside)
        with cut.compile(name, memory=arena) as other:
            other.run()
            assert "'chain64' shares an arena with graph 'cut', whose launch is calling this function" in said[0]
            exe.run(a=2.0)
            assert exe.read("y").tolist() == result(64, 2.0)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_launch_executables_of_one_arena(name: Any, backend: Any) -> None:
    n, arena, failed = 4096, hg.Arena(), list[BaseException]()
    with ExitStack() as stack:
        made = [stack.enter_context(chain(n, seed=s, cut=s == 2).compile(name, backend, memory=arena)) for s in range(3)]

        def work(seed: int, exe: hg.Executable) -> None:
            try:
                for k in range(15):
                    exe.launch(a=float(k))
                assert exe.read("y").tolist() == result(n, 14.0, seed)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=each) for each in enumerate(made)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


@pytest.mark.parametrize("name", HERE)
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 99))),
    backend=st.sampled_from(BACKENDS),
)
def test_any_story_of_an_arena_has_the_results_of_separate_graphs(name: Any, steps: list[tuple[str, int]], backend: Any) -> None:
    """Graphs come, grow the arena, are changed, cloned and closed in any order."""
    arena = hg.Arena()
    there: list[tuple[hg.Executable, int, float]] = []
    with ExitStack() as stack:
        for k, (step, which) in enumerate([("new", 7), *steps]):
            if step == "new" or not there:
                n = 1 + which * 37
                exe = stack.enter_context(chain(n, cut=which % 7 == 3).compile(name, backend, memory=arena))
                exe.launch()
                there.append((exe, n, 1.0))
                continue
            at = which % len(there)
            exe, n, a = there[at]
            if step == "launch":
                exe.launch(a=float(k))
                there[at] = exe, n, float(k)
            elif step == "stream":
                stream = exe.runtime.stream_create()
                exe.launch(stream)
                exe.runtime.stream_synchronize(stream)
                exe.runtime.stream_destroy(stream)
            elif step == "profile":
                exe.profile()
            elif step == "close":
                exe.close()
                del there[at]
            elif step == "clone":
                there.append((stack.enter_context(exe.clone()), n, a))
                there[-1][0].launch()
            elif step == "rebuild":
                larger = n + 100
                exe.update(chain(larger), rebuild=True)
                exe.launch()
                there[at] = exe, larger, a
            else:
                exe.set("add", grid=1 + which % 3)
                exe.launch()
        for exe, n, a in there:
            assert exe.read("y").tolist() == result(n, a)
            exe.launch(a=0.5)
        for exe, n, _ in there:
            assert exe.read("y").tolist() == result(n, 0.5)
    assert arena.nbytes == 0


def step(batch: int) -> hg.Graph:
    """Return a graph that computes ``y[:batch] = w * x[:batch] + a``, for at most `batch` rows."""
    g = hg.Graph(f"step{batch}")
    w = g.device_array("w", np.arange(64, dtype="f4"))
    x, y = (g.device_array(name, shape=(batch, 64), dtype="f4") for name in "xy")
    rows, a = g.param("batch", "int32", batch, min=0, max=batch), g.param("a", "float32", 0.0)
    t = g.alloc("t", (batch, 64), "f4")
    g.kernel(MODULE["scale"], over=rows * 64, block=64, args=(w, x, hg.writes(t), rows * 64))
    g.kernel(MODULE["add"], over=rows * 64, block=64, args=(t, hg.updates(y), a, rows * 64))
    g.free(t)
    return g


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
@given(batches=st.lists(st.integers(0, 8), min_size=1, max_size=8))
def test_a_family_computes_what_each_size_computes(name: Any, backend: Any, batches: list[int]) -> None:
    with hg.Family(step, batch=[1, 2, 4, 8], runtime=name, backend=backend) as family:
        family.write("w", np.arange(64) * 2)
        for k, batch in enumerate(batches):
            rows = next(size for size in (1, 2, 4, 8) if size >= batch)
            family.write("x", np.full((rows, 64), k + 1.0), batch=batch)
            family.write("y", np.full((rows, 64), -1.0), batch=batch)
            family.launch(batch=batch, a=float(k))
            expected = np.full((rows, 64), -1.0, "f4")
            expected[:batch] = np.arange(64) * 2 * (k + 1) + k
            assert family.read("y").tolist() == expected.tolist()
        assert set(family.members) == {8} | {next(size for size in (1, 2, 4, 8) if size >= batch) for batch in batches}


@pytest.mark.parametrize("name", HERE)
def test_members_that_are_closed_to_make_room_come_back(name: Any) -> None:
    with hg.Family(step, batch=[1, 2, 4, 8, 16, 32], runtime=name, limit_bytes=30_000) as family:
        family.write("w", np.full(64, 3.0))
        for _ in range(2):
            for batch in (32, 1, 16, 2, 8, 4):
                family.write("x", np.full((batch, 64), float(batch)), batch=batch)
                family.run(batch=batch, a=1.0)
                assert family.read("y").tolist() == np.full((batch, 64), 3.0 * batch + 1).tolist()
                assert family.nbytes <= 30_000 or len(family._members) == 1
        assert {size: member.launches for size, member in family.members.items()} == dict.fromkeys((1, 2, 4, 8, 16, 32), 2)


@pytest.mark.parametrize("name", HERE)
def test_a_closed_family_and_arena_leave_nothing(name: Any) -> None:
    with hg.Family(step, batch=[1, 2, 4], runtime=name) as family:
        family.compile()
        family.run(batch=3)
        streams = [weakref.ref(member) for member in family._members.values()]
    family.close()
    with pytest.raises(hg.HipGraphError, match="is closed"):
        family.launch(batch=1)
    gc.collect()
    del family
    assert len(streams) == 3


@pytest.mark.skipif("nvidia" not in HERE, reason="the allocators of torch and CuPy need a GPU")
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_an_arena_lies_in_memory_of_another_library(library: str) -> None:
    other, blocks = other_library(library), dict[int, Any]()
    if library == "torch":
        arena = hg.Arena(
            allocate=lambda nbytes, stream: other.cuda.caching_allocator_alloc(nbytes, stream=stream),
            free=other.cuda.caching_allocator_delete,
        )
    else:

        def allocate(nbytes: int, stream: int) -> int:
            block = other.cuda.alloc(nbytes)
            blocks[block.ptr] = block
            return int(block.ptr)

        arena = hg.Arena(allocate=allocate, free=blocks.pop)
    with chain(100).compile("nvidia", memory=arena) as small, chain(5000).compile("nvidia", memory=arena) as large:
        small.run(a=2.0)
        large.run(a=2.0)
        assert small.read("y").tolist() == result(100, 2.0)
        assert large.read("y").tolist() == result(5000, 2.0)
    assert not blocks
