"""The core works without each part, and says by name which part a call needs: copies of the package with parts taken away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hipgraphdsl.parts import OWN

pytestmark = pytest.mark.parts

PACKAGE = Path(__file__).parent.parent / "hipgraphdsl"

README = """
import numpy as np
import hipgraphdsl as hg

axpy = hg.Module('''
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}''')["axpy"]

def build():
    n = 1 << 10
    g = hg.Graph("saxpy")
    hx = g.host_array("hx", np.arange(n, dtype="float32"))
    hy = g.host_array("hy", np.ones(n, dtype="float32"))
    x, y = g.device_array("x", shape=n, dtype="float32"), g.device_array("y", shape=n, dtype="float32")
    a = g.param("a", dtype="float32", default=2.0)
    g.memcpy(x, hx, name="x_in")
    g.memcpy(y, hy, name="y_in")
    g.kernel(axpy, grid=n // 256, block=256, args=(a, x, y, n))
    g.memcpy(hy, y, name="y_out")
    return g

g = build()
"""

RUNS = """
assert not g.check().errors
assert hg.Graph.from_json(g.to_json()).to_json() == g.to_json()
g.export("saxpy.dot"), g.export("saxpy.mmd")
for backend in ("explicit", "capture", "streams", "serial"):
    with build().compile({runtime!r}, backend) as exe:
        exe.run()
        exe.run(a=3.0)
        if {runtime!r} == "cpu":
            assert exe.read("hy").tolist() == (1 + 5 * np.arange(1 << 10, dtype="float32")).tolist()
"""

MISSED = """
try:
    {call}
except hg.PartMissing as error:
    print(error.part)
    assert "hipgraphdsl/parts/" + error.part in str(error)
"""

CALLS = {
    "bench": "from hipgraphdsl.cli.entry import parser; parser('bench')",
    "cpu": "g.compile('cpu')",
    "formats": "g.export('saxpy.yaml')",
    "imports": "hg.Graph.from_handle(1, 'recorder')",
    "merge": "g.plan(target='nvidia:sm_90', batch=True)",
    "pages": "g.export('saxpy.html')",
    "program": "g.export('saxpy.hip')",
    "ranks": "hg.ranks()",
    "recorder": "g.compile('recorder')",
    "timeline": "g.simulate({'kernel': 1, 'H2D': 1, 'D2H': 1})",
    "verify": "hg.verify(g, 'cpu')",
}
"""For each part a call that needs it; launches need no `fast`, and `check` does without `bounds`."""


def without(parts: set[str], folder: Path) -> Path:
    """Copy the package without parts; return the folder that holds it."""
    gone = {str(PACKAGE / "parts" / part) for part in parts}
    shutil.copytree(
        PACKAGE,
        folder / "hipgraphdsl",
        ignore=lambda place, names: [n for n in names if n == "__pycache__" or os.path.join(place, n) in gone],
    )
    return folder


def run(place: Path, program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("part", OWN)
def test_readme_runs_without_a_part_and_what_the_part_did_names_it(part: str, tmp_path: Path) -> None:
    runtime = "recorder" if part == "cpu" else "cpu"
    program = README + RUNS.format(runtime=runtime)
    if part in CALLS:
        program += MISSED.format(call=CALLS[part])
    assert run(without({part}, tmp_path), program).split() == ([part] if part in CALLS else [])


@pytest.mark.parametrize(("used", "part"), [(used, part) for part, own in OWN.items() for used in own.uses])
def test_a_part_without_one_that_it_uses_names_that_one(used: str, part: str, tmp_path: Path) -> None:
    assert run(without({used}, tmp_path), README + MISSED.format(call=CALLS[part])).split() == [used]


@pytest.mark.parametrize("part", ["ranks", "timeline", "verify"])
def test_the_package_is_looked_at_without_a_part(part: str, tmp_path: Path) -> None:
    program = "import inspect, pydoc\nimport hipgraphdsl as hg\nfrom hipgraphdsl import *\n"
    program += "assert all(hasattr(hg, name) for name in hg.__all__)\n"
    program += f"inspect.getmembers(hg)\nassert \"part '{part}'\" in pydoc.render_doc(hg)\n"
    run(without({part}, tmp_path), program)


def test_info_says_that_the_part_of_a_runtime_is_missing(tmp_path: Path) -> None:
    program = "import sys; from hipgraphdsl.cli import main; sys.exit(main(['info']))"
    assert "cpu: not available" in run(without({"cpu"}, tmp_path), program)


def test_timelines_need_pages_for_their_pages_alone(tmp_path: Path) -> None:
    program = README + f"t = {CALLS['timeline']}\nt.export('t.trace.json')\n" + MISSED.format(call="t.export('t.html')")
    assert run(without({"pages"}, tmp_path), program).split() == ["pages"]


def test_verify_does_without_merged_launches(tmp_path: Path) -> None:
    run(without({"merge"}, tmp_path), README + "assert hg.verify(g, 'cpu', orders=1, repeats=1).ok")


def test_readme_runs_on_the_recorder_alone(tmp_path: Path) -> None:
    place = without(set(OWN) - {"recorder"}, tmp_path)
    missed = "".join(MISSED.format(call=call) for part, call in CALLS.items() if part != "recorder")
    assert run(place, README + RUNS.format(runtime="recorder") + missed).split() == [p for p in CALLS if p != "recorder"]
