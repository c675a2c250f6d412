"""``hipgraphdsl bench walks``: how much of the package a program walks through, in lines and in calls.

Counts, not times: the same on every machine. The first rows are the sizes of the package, and what the README's program loads
(with `check` and JSON, without its page) with the compiled path off. The others count the calls of the package's own Python
functions in one call of the API, and the files that these functions stand in: on the recorder, for a graph of two kernels one of
which takes a scalar parameter, after a first round that imports and fills caches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hipgraphdsl.parts.bench.arguments import add_output_arguments
from hipgraphdsl.parts.bench.measure import Column, Sheet, finish

_ROOT = Path(__file__).parent.parent

_LOADS = """
import json, pathlib, sys
import numpy as np
import hipgraphdsl as hg

module = hg.Module('''
extern "C" __global__ void walked(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}''')
for backend in ("explicit", "capture"):
    g = hg.Graph("saxpy")
    hx, x = g.host_array("hx", np.zeros(64, "f4")), g.device_array("x", shape=64, dtype="f4")
    g.memcpy(x, hx)
    g.kernel(module["walked"], 1, 64, (g.param("a", "float32", 2.0), x, x, 64))
    g.memcpy(hx, x)
    g.check()
    g.to_json()
    with g.compile(sys.argv[1], backend) as exe:
        exe.run(a=3.0)
own = [module for name, module in sys.modules.items() if name.startswith("hipgraphdsl") and getattr(module, "__file__", None)]
print(json.dumps([sum(len(pathlib.Path(module.__file__).read_text().splitlines()) for module in own), len(own)]))
"""

_WALKS = """
import json, os, sys
import hipgraphdsl as hg

module = hg.Module('''
extern "C" __global__ void walked_first(float a, float* x) { x[threadIdx.x] *= a; }
extern "C" __global__ void walked_next(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }''')
package = os.path.dirname(hg.__file__) + os.sep
found = {}

def walk(name, call):
    calls, files = 0, set()
    def count(frame, event, _):
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(package):
            calls += 1
            files.add(frame.f_code.co_filename)
    sys.setprofile(count)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    found[name] = [calls, len(files)]
    return result

def build():
    g = hg.Graph("two")
    x, y = g.device_array("x", shape=64, dtype="f4"), g.device_array("y", shape=64, dtype="f4")
    walk("kernel", lambda: g.kernel(module["walked_first"], 1, 64, (g.param("a", "float32", 2.0), x), name="scale"))
    g.kernel(module["walked_next"], 1, 64, (x, y), name="add")
    return g

for _ in range(2):  # the second time without imports
    g = build()
    exe = walk("compile", lambda: g.compile("recorder"))
    walk("first launch", lambda: exe.launch(a=3.0))
    exe.launch(a=3.0)
    walk("launch, another value", lambda: exe.launch(a=4.0))
    walk("set", lambda: exe.set("add", grid=8))
    walk("launch after it", lambda: exe.launch(a=5.0))
    exe.close()
    text = g.to_json()
    walk("to_json", lambda: g.to_json())
    walk("from_json", lambda: hg.Graph.from_json(text))
print(json.dumps(found))
"""


def count(program: str, package: Path, *arguments: str) -> Any:
    """Run a program with the package of a checkout, with the compiled path off; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(package), "HIPGRAPHDSL_NATIVE": "0"}
    command = [sys.executable, "-c", program, *arguments]
    return json.loads(subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True, check=True).stdout)


def sizes(package: Path) -> dict[str, int]:
    """Return the lines of the package's Python files outside and inside `parts/`, and of its C++ files."""
    folder = package / "hipgraphdsl"
    python = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py")}
    parts = sum(lines for path, lines in python.items() if (folder / "parts") in path.parents)
    compiled = [path for end in ("h", "cpp", "hip") for path in folder.rglob(f"*.{end}")]
    return {
        "Python, core": sum(python.values()) - parts,
        "Python, parts": parts,
        "C++": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in compiled),
    }


def rows(package: Path) -> list[dict[str, Any]]:
    """Return the figures of a checkout."""
    found = [{"what": f"lines: {name}", "count": lines} for name, lines in sizes(package).items()]
    for runtime in ("recorder", "cpu"):
        lines, modules = count(_LOADS, package, runtime)
        found.append({"what": f"README's program loads, {runtime}: lines", "count": lines, "files": modules})
    walks = count(_WALKS, package)
    return found + [{"what": f"calls: {name}", "count": calls, "files": files} for name, (calls, files) in walks.items()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``hipgraphdsl bench walks``."""
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, whose figures stand beside these")
    add_output_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Count, and print the table."""
    found = rows(_ROOT)
    columns = [Column("what", "what"), Column("count", "count"), Column("files", "files")]
    if arguments.against is not None:
        columns += [Column("was", "was"), Column("was_files", "files")]
        other = {row["what"]: row for row in rows(arguments.against.resolve())}
        for row in found:
            row["was"], row["was_files"] = (other.get(row["what"], {}).get(key) for key in ("count", "files"))
    finish(Sheet("walks", columns, found), arguments)
    return 0
