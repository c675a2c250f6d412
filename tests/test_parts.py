"""The core works without each part, and says by name which part a call needs: copies of the package with parts taken away."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from hipgraphdsl.parts import OWN

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.parts

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "hipgraphdsl"

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
    "family": "hg.Family(build, batch=[1])",
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
    """Copy the package without parts; return the folder that holds it. Bytecode goes with it: files keep their times."""
    gone = {str(PACKAGE / "parts" / part) for part in parts}
    shutil.copytree(
        PACKAGE, folder / "hipgraphdsl", ignore=lambda place, names: [n for n in names if os.path.join(place, n) in gone]
    )
    return folder


def run(place: Path, program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


LEAST_PASSED = 2000
"""So many tests of the core pass at least: fewer means that files are left out that should not be."""


@pytest.mark.timeout(900)
def test_core_passes_its_tests_with_the_recorder_alone(tmp_path: Path) -> None:
    """Files that import another part are left out, and tests that are marked to need one are skipped (tests/conftest.py)."""
    place = without(set(OWN) - {"recorder"}, tmp_path)
    shutil.copytree(ROOT / "tests", place / "tests")
    for name in ("docs", "examples", "pyproject.toml"):
        (place / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not parts", "--part", "0.1"]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(
        [*command, "tests/unit", "tests/error_checks"], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted is not None
    assert int(counted[1]) >= LEAST_PASSED, done.stdout[-3000:]


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


# -- a part of another package -----------------------------------------------------------------------------------------


def wheel_of(source: Path, folder: Path) -> Path:
    """Build the wheel of a package of single modules, without its build backend, which may not be installed."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    points: list[str] = []
    for group, rows in project["entry-points"].items():
        points += [f"[{group}]", *map(" = ".join, rows.items())]
    required = "".join(f"Requires-Dist: {line}\n" for line in project["dependencies"])
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n{required}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "\n".join(points) + "\n",
        "RECORD": "",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for module in source.glob("*.py"):
            wheel.write(module, module.name)
        for file, text in info.items():
            wheel.writestr(f"{name}-{version}.dist-info/{file}", text)
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package of examples/ in an environment with hipgraphdsl, without network; return the folder of its commands."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = str(place / "bin" / "python")
    purelib = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(purelib, capture_output=True, text=True, check=True).stdout.strip()
    found = [str(ROOT), *dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))]
    Path(packages, "hipgraphdsl.pth").write_text("\n".join(found), encoding="utf-8")
    command = place / "bin" / "hipgraphdsl"
    command.write_text(f'#!/bin/sh\nexec "{python}" -W error -m hipgraphdsl "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    wheel = wheel_of(ROOT / "examples" / "review", place)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    return place / "bin"


def test_package_of_examples_is_installed_and_does_what_its_page_shows(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}", "HIPGRAPHDSL_RUNTIME": "cpu"}
    environment.pop("PYTHONPATH", None)
    page = ROOT / "docs" / "extending.md"
    text = page.read_text(encoding="utf-8")
    (block,) = re.findall(r"^<!-- run -->\n```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = ""
    for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        shown += f"$ {line}\n"
        if not line.startswith("pip install"):
            done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            shown += "".join(f"{out.rstrip()}\n" for out in (done.stdout + done.stderr).splitlines())
    if os.environ.get("HIPGRAPHDSL_UPDATE_DOCS"):
        page.write_text(text.replace(block, shown), encoding="utf-8")
    else:
        assert shown == block
