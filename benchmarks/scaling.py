"""``hipgraphdsl bench scaling``: how graphs would scale to thousands of devices, and what that costs each rank; no GPU is needed.

The first two tables are simulations, `Graph.simulate(ranks=...)`, of example 06 and of a training step whose gradients are
all-reduced layer by layer while the next layer is computed. Weak scaling keeps the work of each device, strong scaling that of
all. Kernels take what they take on an H200 (docs/ranks.md), and 3 us at least. The other tables are measured: CPU time of what
one rank does alone before it launches, of example 06 on so many devices; and of each call by number of nodes, on the CPU runtime.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hipgraphdsl as hg
from benchmarks.ranks import example
from hipgraphdsl.checks import check_workflow, require_sound
from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.parts.bench import shapes
from hipgraphdsl.parts.ranks.partition import partition
from hipgraphdsl.parts.ranks.sharing import Between, Layout, Sharing
from hipgraphdsl.parts.ranks.world import digest
from hipgraphdsl.plan.planning import make_plan
from hipgraphdsl.target import Target

SIDE = 8192  # cells along each side of the box of one device, weak scaling
LARGE = 32768  # of the whole box, strong scaling
CELL_US = 324.4 / SIDE**2  # of one step: docs/ranks.md, one H200
LEAST_US = 3.0  # of a kernel
LAYERS = 8
GRADIENTS = 1 << 24  # floats of a layer
SAMPLE_US = 50.0  # of a layer, forward and backward
SAMPLES = 64  # of each device, weak scaling
BATCH = 4096  # of all, strong scaling
STEP = hg.Module('extern "C" __global__ void step(float* gradients, float* weights) { weights[0] -= gradients[0]; }')["step"]


CALLS = ("declare", "check", "plan", "sm_90", "first", "second", "set", "update", "disable")
FOUND = ("nodes", "own", "declare", "digest", "share", "part", "check", "plan")


def wave_us(rows: int, columns: int, devices: int, steps: int, link: hg.Link) -> float:
    """Return how long a step of example 06 takes."""
    graph = example().build(devices, steps, (rows, columns), output=False)

    def duration(node: Any) -> float:
        if node.kind != "kernel":
            return 0.0  # the first fill, which is no part of a step
        height = next(arg for arg in node.args if isinstance(arg, int))
        return max(height * columns * CELL_US, LEAST_US)

    return float(graph.simulate(duration, ranks=devices, link=link).makespan / steps)


def training_us(samples: float, devices: int, link: hg.Link) -> float:
    """Return how long a training step takes, of so many samples on each device."""
    graph = hg.Graph("training")
    for layer in reversed(range(LAYERS)):
        x = [graph.device_array(f"gradients{layer}_{d}", shape=GRADIENTS, dtype="float32", device=d) for d in range(devices)]
        for d in range(devices):
            graph.kernel(STEP, 1, 1, (hg.writes(x[d]), hg.reads(x[d])), name=f"backward{layer}_{d}")
        if devices > 1:
            graph.all_reduce(x, name=f"sum{layer}")
    return graph.simulate({"kernel": samples * SAMPLE_US}, ranks=devices, link=link).makespan


def scaling(devices: list[int], steps: int, link: hg.Link) -> Iterator[tuple[str, str, list[float]]]:
    """Yield what scales, how, and how long it takes on so many devices, each as a part of perfect scaling."""

    def inner(d: int, rows: int) -> int:
        return rows * d + 4  # two rows at each wall

    weak = [wave_us(inner(d, SIDE), SIDE, d, steps, link) for d in devices]
    yield "wave, 8192 x 8192 cells a device", "weak", [weak[0] / us for us in weak]
    alone = (LARGE - 4) * LARGE * CELL_US
    yield "wave, 32768 x 32768 cells", "strong", [alone / (d * wave_us(LARGE, LARGE, d, steps, link)) for d in devices]
    weak = [training_us(SAMPLES, d, link) for d in devices]
    yield f"training step, {SAMPLES} samples a device", "weak", [weak[0] / us for us in weak]
    alone = LAYERS * SAMPLE_US * BATCH
    yield f"training step, {BATCH} samples", "strong", [alone / (d * training_us(BATCH / d, d, link)) for d in devices]


def _timed(found: dict[str, float], per_s: float, name: str, call: Callable[[], Any]) -> Any:
    """Return what a call returns; note the CPU time that it takes under a name, in units of which a second has `per_s`."""
    began = time.process_time()
    made = call()
    found[name] = (time.process_time() - began) * per_s
    return made


def cost_ms(devices: int, steps: int) -> dict[str, float]:
    """Return what a rank in the middle spends, in milliseconds of CPU time."""
    found: dict[str, float] = {}
    timed = partial(_timed, found, 1e3)
    target = Target.named("nvidia:sm_90")
    workflow = timed("declare", lambda: example().build(devices, steps, (8 * devices + 4, 64), output=False).workflow())
    timed("digest", lambda: digest(workflow, {}))
    between = Between(lambda does, dtype: True)
    sharing = timed("share", lambda: Sharing(workflow, Layout((1,) * devices), between))
    part = timed("part", lambda: partition(sharing, devices // 2, lambda messages, direct: print)).workflow
    timed("check", lambda: require_sound(part, target, 0, "explicit"))
    timed("plan", lambda: make_plan(part, target))
    return found | {"nodes": float(len(workflow.nodes)), "own": float(len(part.nodes))}


def chain(nodes: int, extent: int, grid: int = 1) -> hg.Workflow:
    """Return a chain of kernels over arrays of an extent; the one in the middle has another grid."""
    graph = hg.Graph("chain")
    x, y = shapes.vector(graph, "x", extent), shapes.vector(graph, "y", extent)
    for i in range(nodes):
        graph.kernel(shapes.KERNELS["axpy"], grid if i == nodes // 2 else 1, 256, (x, y, extent), name=f"n{i}")
        x, y = y, x
    return graph.workflow()


def growth_us(nodes: int) -> dict[str, float]:
    """Return the CPU time of each call for a chain, in microseconds: of `set` and of disabling in all, of the others a node."""
    found: dict[str, float] = {}
    timed = partial(_timed, found, 1e6 / nodes)
    hg.Graph.from_workflow(chain(1, 256)).compile("cpu").close()  # compiles the kernel
    workflow = timed("declare", lambda: chain(nodes, 256))
    timed("check", lambda: check_workflow(workflow))
    for name, target in (("plan", "cpu"), ("sm_90", "nvidia:sm_90")):
        timed(name, partial(make_plan, chain(nodes, 256), Target.named(target)))
    first, second = (hg.Graph.from_workflow(chain(nodes, extent)) for extent in (256, 512))
    other = chain(nodes, 256, grid=2)
    with timed("first", lambda: first.compile("cpu", check=False)) as exe:
        timed("second", lambda: second.compile("cpu", check=False)).close()
        exe.set(f"n{nodes // 2}", grid=3)
        _timed(found, 1e6 / 20, "set", lambda: [exe.set(f"n{nodes // 2}", grid=3 + i % 2) for i in range(20)])
        timed("update", lambda: exe.update(other))
        _timed(found, 1e6, "disable", lambda: exe.disable("n0"))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_devices(parser, "--devices", [1, 8, 64, 512, 4096], "how many devices are simulated")
    add_devices(parser, "--cost-devices", [16, 64, 256, 1024], "for how many devices the cost of one rank is measured")
    add_devices(parser, "--nodes", [200, 2000, 10_000, 60_000], "for how many nodes the cost of each call is measured")
    parser.add_argument("--steps", type=positive, default=4, metavar="N", help="steps of the wave in one launch (default: 4)")
    parser.add_argument("--latency-us", type=float, default=5.0, metavar="X", help="latency of a link (default: %(default)s)")
    parser.add_argument("--gb-s", type=float, default=50.0, metavar="X", help="bandwidth of a link (default: %(default)s)")


def add_devices(parser: argparse.ArgumentParser, option: str, default: list[int], meaning: str) -> None:
    """Add an option that takes numbers of devices or nodes; without a number its table is left out."""
    meaning += f"; without a number, leave this out (default: {' '.join(map(str, default))})"
    parser.add_argument(option, type=positive, nargs="*", default=default, metavar="N", help=meaning)


def main(options: argparse.Namespace) -> None:
    """Print all tables."""
    gc.disable()  # each collection visits every node
    try:
        print_simulated(options, hg.Link(options.latency_us, options.gb_s))
        print_costs(options)
    finally:
        gc.enable()
    print_growth(options)


def print_simulated(options: argparse.Namespace, link: hg.Link) -> None:
    """Print how the examples scale."""
    print(f"simulated, {link}: parts of perfect scaling")
    print(f"{'':36}{'':8}" + "".join(f"{d:>8}" for d in options.devices))
    for what, how, parts in scaling(options.devices, options.steps, link) if options.devices else ():
        print(f"{what:36}{how:8}" + "".join(f"{part:8.1%}" for part in parts), flush=True)


def print_costs(options: argparse.Namespace) -> None:
    """Print what one rank spends, with Python's garbage collector and without."""
    print("\nwhat one rank spends before it launches, ms of CPU time, measured")
    print(f"{'collector':10}{'devices':>8}" + "".join(f"{name:>9}" for name in FOUND))
    for word, choose in (("on", gc.enable), ("off", gc.disable)):
        for devices in options.cost_devices:
            gc.collect()
            choose()
            cost = cost_ms(devices, options.steps)
            print(f"{word:10}{devices:8}" + "".join(f"{cost[name]:9.1f}" for name in FOUND), flush=True)


def print_growth(options: argparse.Namespace) -> None:
    """Print what each call costs by number of nodes, with Python's garbage collector."""
    if options.nodes:
        print("\nwhat each call costs, chain of kernels, runtime cpu: us of CPU time a node, of set and disable in all; measured")
        print(f"{'nodes':>8}" + "".join(f"{name:>10}" for name in CALLS))
        growth_us(20)  # loads what the first calls load
    for nodes in options.nodes:
        gc.collect()
        cost = growth_us(nodes)
        print(f"{nodes:8}" + "".join(f"{cost[name]:10.1f}" for name in CALLS), flush=True)
