"""One of several ranks that meet by a store of files, and send by NCCL or what stands for it.

``by_nccl.py DOES FOLDER RANK SIZE [RUNTIME]``; DOES is one of the functions below, or several with commas, each of which meets
anew. What a rank has to say is printed.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # NumPy knows bfloat16 through it
import numpy as np
from file_store import FileStore

import hipgraphdsl as hg
from hipgraphdsl.nodes import CapturedNode, EagerNode
from rank_programs.left_alone import SOURCE, ring

TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64")
COUNTS = (1, 7, 20_011)
BACKENDS = ("explicit", "capture", "streams", "serial")


def from_environment() -> hg.PlanOptions:
    """Return the options that the test which starts this program asks for."""
    return hg.PlanOptions(capture_collectives=os.environ.get("CAPTURED") == "1")


def values(rank: int, count: int, dtype: str) -> np.ndarray[Any, Any]:
    """Return numbers whose folds are exact in every type."""
    return ((np.arange(count) * 3 + rank) % 3 + (rank == 0)).astype(dtype)


def collectives(ranks: hg.Ranks, runtime: Any) -> None:
    """Do every collective, for types and counts, and compare with NumPy."""
    size, done = ranks.size, 0
    for dtype, captured in itertools.product(TYPES, (False, True)):
        g = hg.Graph(f"collectives_{dtype}")
        expected: dict[str, np.ndarray[Any, Any]] = {}

        def arrays(name: str, shape: tuple[int, ...], start: bool, g: hg.Graph = g, dtype: str = dtype) -> list[Any]:
            count = int(np.prod(shape))
            return [
                g.device_array(f"{name}{r}", values(r, count, dtype).reshape(shape) if start else None, device=r, shape=shape,
                               dtype=dtype)
                for r in range(size)
            ]  # fmt: skip

        for count in COUNTS:
            given = np.stack([values(r, count, dtype) for r in range(size)])
            whole = np.stack([values(r, size * count, dtype) for r in range(size)])
            for op, fold in (("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min)):
                x = arrays(f"ar_{op}_{count}_", (count,), True)
                g.all_reduce(x, op)  # type: ignore[arg-type]
                result = fold(given.astype("float64"), axis=0).astype(dtype)
                expected |= {a.name: result for a in x}
            root = count % size
            x = arrays(f"re_{count}_", (count,), True)
            g.reduce(x, "sum", root)
            expected[x[root].name] = given.astype("float64").sum(axis=0).astype(dtype)
            x = arrays(f"bc_{count}_", (count,), True)
            g.broadcast(x, root)
            expected |= {a.name: given[root] for a in x}
            x, y = arrays(f"ag_{count}_", (1, count), True), arrays(f"AG_{count}_", (size, count), False)
            g.all_gather(y, x)
            expected |= {a.name: given for a in y}
            x, y = arrays(f"rs_{count}_", (size, count), True), arrays(f"RS_{count}_", (1, count), False)
            g.reduce_scatter(y, x, "sum")
            sums = whole.astype("float64").sum(axis=0).astype(dtype).reshape(size, count)
            expected |= {a.name: sums[r : r + 1] for r, a in enumerate(y)}
            x, y = arrays(f"aa_{count}_", (size, count), True), arrays(f"AA_{count}_", (size, count), False)
            g.all_to_all(y, x)
            expected |= {a.name: whole.reshape(size, size, count)[:, r] for r, a in enumerate(y)}
        with g.compile(runtime, ranks=ranks, plan=hg.PlanOptions(capture_collectives=captured)) as exe:
            assert isinstance(exe, hg.RankExecutable)
            by_call = [message.name for message in exe.part.messages if message.together is not None]
            assert len(by_call) == len(g.nodes), (by_call, len(g.nodes))
            exe.run()
            for name, value in expected.items():
                if exe.part.owners[name] == ranks.rank:
                    np.testing.assert_array_equal(exe.read(name), value, err_msg=f"{name} {dtype}")
                    done += 1
    print(f"{done} results of collectives are right")


def rings(ranks: hg.Ranks, runtime: Any) -> None:
    """Hand values around with every backend, eager and captured."""
    for backend, captured in itertools.product(BACKENDS, (False, True)):
        with ring(ranks.size).compile(runtime, backend, ranks=ranks, plan=hg.PlanOptions(capture_collectives=captured)) as exe:  # type: ignore[arg-type]
            assert isinstance(exe, hg.RankExecutable)
            kinds = {node.kind for node in exe.workflow.nodes if node.name.startswith("hand")}
            assert kinds == {"captured" if captured else "eager"}, kinds
            for _ in range(5):
                exe.launch()
            exe.run()
            found = exe.gather("x0")
            assert found is None or (found[0] == 6 * ranks.size).all(), found
    print("rings are right")


def mixed(ranks: hg.Ranks, runtime: Any) -> None:
    """Host and device memory, gaps, declared edges; the values of one process."""
    g = hg.Graph("mixed")
    order: list[int] = []
    x = [g.device_array(f"x{r}", np.arange(24, dtype="int32").reshape(4, 6) + 100 * r, device=r) for r in range(ranks.size)]
    last = ranks.size - 1
    h = g.host_array("h", shape=(4, 6), dtype="int32", rank=last)
    for r in range(1, ranks.size):
        g.memcpy(x[r][:, 0:2], x[r - 1][:, 4:6], name=f"columns_{r}")
        g.memcpy(x[r][0], x[r - 1][3], name=f"row_{r}")
    g.memcpy(h, x[0], name="down")
    look = g.host(lambda h: order.append(int(h[0, 0])), (h,), name="look")
    g.memset(x[0], 5, name="reset", after=[look])
    g.memcpy(x[last], h, name="up")
    for captured in (False, True):
        with g.compile(runtime, ranks=ranks, plan=hg.PlanOptions(capture_collectives=captured)) as exe:
            exe.run()
            found = exe.gather(*(a.name for a in x), "h")
        if found is not None:
            wanted = [np.arange(24).reshape(4, 6) + 100 * r for r in range(ranks.size)]
            for r in range(1, ranks.size):
                wanted[r][:, 0:2] = wanted[r - 1][:, 4:6]
                wanted[r][0] = wanted[r - 1][3]
            wanted.append(wanted[0])
            wanted[0], wanted[last] = np.full((4, 6), 5), wanted[0]
            for got, want in zip(found, wanted):
                np.testing.assert_array_equal(got, want)
    assert order == ([0, 0] if ranks.rank == last else []), order
    print("mixed messages are right")


def uneven(ranks: hg.Ranks, runtime: Any) -> None:
    """Messages of different sizes in both directions, which one rank puts into a group together and the other does not."""
    for captured in (False, True):
        g = hg.Graph("uneven")
        x, y = ([g.device_array(f"{name}{r}", np.full(3000, r + 1, "int32"), device=r) for r in range(2)] for name in "xy")
        g.memcpy(y[1][:7], x[0][:7], name="few")
        g.memset(x[1], 5, name="between")
        g.memcpy(y[0], x[1], name="many")
        g.memcpy(y[1][7:1007], x[0][7:1007], name="more")
        with g.compile(runtime, ranks=ranks, plan=hg.PlanOptions(capture_collectives=captured)) as exe:
            assert isinstance(exe, hg.RankExecutable)
            groups = [node.fn.messages for node in exe.workflow.nodes if isinstance(node, (EagerNode, CapturedNode))]
            assert list(map(len, groups)) == ([3] if ranks.rank == 0 else [1, 2]), groups
            for _ in range(3):
                exe.run()
            found = exe.gather("y0", "y1")
        if found is not None:
            assert (found[0] == 5).all(), found
            assert (found[1] == [1] * 1007 + [2] * 1993).all(), found
    print("uneven messages are right")


def folds(ranks: hg.Ranks, runtime: Any) -> None:
    """Sums of floats: within rounding of the fold in order, and to the bit where `exact` is asked for."""
    given = [np.random.default_rng(r).normal(size=5000).astype("float32") for r in range(ranks.size)]
    ordered = given[0].copy()
    for more in given[1:]:
        ordered += more
    for exact in (False, True):
        g = hg.Graph("folds")
        x = [g.device_array(f"x{r}", given[r], device=r) for r in range(ranks.size)]
        g.all_reduce(x, "sum", exact=exact)
        with g.compile(runtime, ranks=ranks) as exe:
            exe.run()
            found = exe.read(f"x{ranks.rank}")
        if exact:
            assert found.tobytes() == ordered.tobytes()
        else:
            np.testing.assert_allclose(found, ordered, rtol=1e-5, atol=1e-6)
    print("sums are right")


def loops(ranks: hg.Ranks, runtime: Any) -> None:
    """A child and a loop that all ranks do, with a collective inside; the last rank decides. An equal graph may take over."""
    size = ranks.size

    def declared() -> hg.Graph:
        g = hg.Graph("loops")
        x = [g.device_array(f"x{r}", np.full(8, r + 1, "int32"), device=r) for r in range(size)]
        left = g.device_array("left", np.full(1, 3, "int32"), device=size - 1)
        child, body = hg.Graph("child"), hg.Graph("body")
        for held in (child, body):
            y = [held.device_array(f"y{r}", shape=8, dtype="int32", device=r) for r in range(size)]
            held.all_reduce(y, "sum", name="sum")
            held.memcpy(y[0][:4], y[-1][4:], name="hand")
        n = body.device_array("n", shape=1, dtype="int32")
        body.kernel(hg.Module(SOURCE)["add"], 1, 1, (n, -1), name="less")
        bind = {f"y{r}": x[r] for r in range(size)}
        g.child(child, bind=bind, name="once")
        g.conditional("while", left, body, bind={**bind, "n": left}, name="loop")
        return g

    for captured in (False, True):
        with declared().compile(runtime, ranks=ranks, plan=hg.PlanOptions(capture_collectives=captured)) as exe:
            exe.update(declared())
            exe.run()
            found = exe.gather(*(f"x{r}" for r in range(size)))
        assert found is None or all((array == sum(range(size + 1)) * size**3).all() for array in found), found
    print("loops are right")


def stay(ranks: hg.Ranks, runtime: Any) -> None:
    """Launch until another rank has died, or the library has failed; rank 1 may kill itself."""
    captured = os.environ.get("CAPTURED") == "1"
    if ranks.rank == 1 and "KILL_AFTER_S" in os.environ:
        threading.Timer(float(os.environ["KILL_AFTER_S"]), os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        with ring(ranks.size).compile(runtime, ranks=ranks, plan=hg.PlanOptions(capture_collectives=captured)) as exe:
            end = time.monotonic() + 40
            while time.monotonic() < end:
                exe.launch()
                exe.launch()
                exe.synchronize()
    except hg.RankError as error:
        print(f"told: {error.rank} {error}", flush=True)
        try:
            ring(ranks.size).compile(runtime, ranks=ranks)
        except hg.RankError:
            print("and again", flush=True)


def late(ranks: hg.Ranks, runtime: Any) -> None:
    """Rank 1 does not launch the second time, and waits until the others have been told."""
    told = Path(sys.argv[2]) / f"told.{ranks.rank}"
    with ring(ranks.size).compile(runtime, ranks=ranks, plan=from_environment()) as exe:
        exe.run()
        if ranks.rank == 1:
            end = time.monotonic() + 60
            while len(list(told.parent.glob("told.*"))) < ranks.size - 1 and time.monotonic() < end:
                time.sleep(0.02)
            return
        try:
            exe.run()
        except hg.RankError as error:
            print(f"told: {error.rank} {error}", flush=True)
            assert exe.read(f"x{ranks.rank}").shape == (64,)  # what this one has stays usable
            told.touch()


def early(ranks: hg.Ranks, runtime: Any) -> None:
    """Rank 1 refuses the third launch, or comes to the end of its program before it."""
    with ring(ranks.size).compile(runtime, ranks=ranks, plan=from_environment()) as exe:
        exe.run()
        exe.run()
        if ranks.rank != 1:
            try:
                exe.run()
            except hg.RankError as error:
                print(f"told: {error.rank} {error}", flush=True)
        elif os.environ.get("REFUSES") == "1":
            try:
                exe.run(nothing=1)
            except hg.DeclarationError:
                print("refused", flush=True)
            try:
                exe.gather("x0", root=1)
            except hg.RankError as error:
                print(f"told: {error.rank} {error}", flush=True)


def fails(ranks: hg.Ranks, runtime: Any) -> None:
    """A function of rank 1 fails; then each rank reads what it has, at once."""

    def failing(stream: Any, h: Any) -> None:
        raise RuntimeError("it fails")

    g = ring(ranks.size)
    h = g.host_array("h", shape=64, dtype="int32", rank=1)
    g.eager(failing, (h,), name="failing")
    g.memcpy(g.device_array("y", shape=64, dtype="int32", device=0), h, name="behind")
    with g.compile(runtime, ranks=ranks) as exe:
        link, _ = ranks.link(exe.runtime)
        assert link is not None
        try:
            exe.run()
        except (hg.RankError, RuntimeError) as error:
            print(f"told: {error}", flush=True)
        while not link.broken:  # another thread looks at it
            time.sleep(0.01)
        assert exe.read(f"x{ranks.rank}").shape == (64,)
        try:
            exe.run()
        except hg.RankError:
            print("and again", flush=True)
        assert exe.read(f"x{ranks.rank}").shape == (64,)
    print("own arrays are read", flush=True)


def threads(ranks: hg.Ranks, runtime: Any) -> None:
    """Two threads may not launch at once what shares a communicator; one after the other they may."""
    with ring(ranks.size).compile(runtime, ranks=ranks) as first, ring(ranks.size).compile(runtime, ranks=ranks) as second:
        first.run()
        second.run()
        for _ in range(3):  # in flight at once, on streams of their own
            first.launch()
            second.launch()
        first.synchronize()
        second.synchronize()
        link, _ = ranks.link(first.runtime)
        assert link is not None
        said = []

        def other() -> None:
            try:
                second.launch()
            except hg.DeclarationError as error:
                said.append(str(error))

        with link.watched("graph 'first'"):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert "is being launched by another thread" in said[0], said
        first.run()
    print("threads are kept apart")


def short(ranks: hg.Ranks, runtime: Any) -> None:
    """Launches by compiled code, of two graphs in turn, between other calls."""
    compiled = 0
    for captured in (False, True):
        options: dict[str, Any] = {"ranks": ranks, "plan": hg.PlanOptions(capture_collectives=captured)}
        with ring(ranks.size).compile(runtime, **options) as first, ring(ranks.size).compile(runtime, **options) as second:
            for exe, times in ((first, 4), (second, 3), (first, 1), (second, 2), (first, 2)):
                for _ in range(times):
                    exe.launch()
            first.launch(stream=second._own.in_flight.stream)
            second.launch()
            first.launch()
            second.synchronize()
            first.run()
            launcher = first._own.compiled.launcher
            compiled = 0 if launcher is None else launcher.launches
            assert launcher is None or (launcher.ready and compiled == 5), (launcher.ready, compiled)
            assert (first.stats.launches, second.stats.launches) == (10, 6)
            first.disable(f"add_{ranks.rank}")
            first.run()
            first.enable(f"add_{ranks.rank}")
            first.run()
            found = first.gather("x0"), second.gather("x0")
            assert found[0] is None or (found[0][0] == 11 * ranks.size).all(), found
            assert found[1] is None or (found[1][0] == 6 * ranks.size).all(), found
    print(f"short launches are right, {'some' if compiled else 'none'} by compiled code")


def refused(ranks: hg.Ranks, runtime: Any) -> None:
    """Say why a graph cannot be captured, or go through the host."""
    try:
        with ring(ranks.size).compile(runtime, ranks=ranks, plan=hg.PlanOptions(capture_collectives=True)) as exe:
            exe.run()
    except hg.DeclarationError as error:
        print(f"refused: {error}")
    with ring(ranks.size).compile(runtime, ranks=ranks) as exe:
        exe.run()
        found = exe.gather("x0")
        assert found is None or (found[0] == ranks.size).all()
    print("eager is right")


def main(does: str, folder: str, rank: str, size: str, runtime: str = "cpu") -> None:
    """Be one rank."""
    calls: dict[str, Callable[[hg.Ranks, Any], None]] = {
        f.__name__: f
        for f in (collectives, rings, mixed, uneven, folds, loops, stay, late, early, fails, threads, short, refused)
    }
    options: dict[str, Any] = {
        "timeout_s": float(os.environ.get("TIMEOUT_S", "20")),
        "devices_per_rank": int(os.environ.get("DEVICES_PER_RANK", "1")),
    }
    for name in does.split(","):
        if os.environ.get("MEET") != "found":  # else by what the program was started with
            options |= {"rank": int(rank), "size": int(size), "store": FileStore(Path(folder) / name)}
        ranks = hg.ranks(**options)
        began = time.perf_counter()
        calls[name](ranks, runtime)
        print(f"{name}: {time.perf_counter() - began:.1f} s, {ranks}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
