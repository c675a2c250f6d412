"""What building graphs costs in the hipgraphdsl that is imported: a program that `benchmarks.build` runs for each checkout.

It is started by its path, because a checkout may have benchmarks of its own, and takes the shapes that stand beside it; so two
checkouts build the same graphs.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import hipgraphdsl as hg

_HERE: Final = Path(__file__).resolve().parent


def _loaded(name: str, path: Path) -> ModuleType:
    """Return the module of this file, which is imported under this name from now on."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _shapes() -> dict[str, Callable[[int], Any]]:
    shapes = _loaded("hipgraphdsl.parts.bench.shapes", _HERE.parent / "hipgraphdsl" / "parts" / "bench" / "shapes.py")
    more = _loaded("benchmarks.shapes", _HERE / "shapes.py")
    return {
        "chain": shapes.chain,
        "layers": lambda nodes: more.layers(nodes, 100),
        "halos": more.halos,
        "decoder": lambda nodes: shapes.decode(max(1, nodes // 13)),
        "independent": shapes.parallel,
    }


def _best_us(call: Callable[..., Any], repeats: int, prepare: Callable[[], tuple[Any, ...]] = tuple) -> tuple[float, Any]:
    """Return the least microseconds of processor time that a call takes with what is prepared, and what it returned last."""
    best, made = float("inf"), None
    for _ in range(repeats):
        made = None
        given = prepare()
        gc.collect()
        began = time.process_time_ns()
        made = call(*given)
        best = min(best, (time.process_time_ns() - began) / 1e3)
    return best, made


def _phases(build: Callable[[int], Any], nodes: int, phases: list[str], repeats: int, runtime: str) -> dict[str, float]:
    """Return the microseconds a node of each phase of one graph, with Python's collector as users have it."""
    took, graph = _best_us(lambda: build(nodes), repeats)
    count = len(graph.nodes)
    found = {"declare": took / count}
    text = graph.to_json()

    def compiled(graph: Any) -> Any:
        return graph.compile(runtime, check=False)

    calls: dict[str, Callable[[], Any]] = {
        "check": lambda: graph.check("nvidia:sm_90"),
        "plan": lambda: graph.plan(target="nvidia:sm_90"),
        "load": lambda: hg.Graph.from_json(text),
    }
    for phase in phases:
        if phase in calls:
            found[phase] = _best_us(calls[phase], repeats)[0] / count
    if "compile" in phases:
        found["compile"] = _best_us(compiled, repeats, lambda: (build(nodes),))[0] / count
    if "second" in phases:
        with compiled(graph):  # whose plan lives meanwhile
            found["second"] = _best_us(compiled, repeats, lambda: (build(nodes),))[0] / count
    return found


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    known = _shapes()
    same = asked["nodes"], asked["phases"], asked["repeats"], asked["runtime"]
    made = {shape: _phases(known[shape], *same) for shape in asked["shapes"]}
    print(json.dumps(made))
