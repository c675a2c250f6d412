"""The command line: what each command prints, and its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specimens import batched, everything, pipeline

from hipgraphdsl import cli, open_runtime
from hipgraphdsl.arrays import as_dtype
from hipgraphdsl.cli.status import Misuse
from hipgraphdsl.cli.supplies import parameter_values
from hipgraphdsl.errors import HipGraphError, RuntimeUnavailable
from hipgraphdsl.executable import Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.bench import command as bench

PROGRAM = '''
import numpy as np
import hipgraphdsl as hg

SOURCE = """
extern "C" __global__ void scale(float* x, float a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
"""

def double(values):
    values *= 2

def build():
    g = hg.Graph("demo")
    h = g.host_array("h", np.arange(8, dtype="float32"))
    x = g.device_array("x", shape=8, dtype="float32")
    a = g.param("a", "float32", default=2.0)
    g.memcpy(x, h, name="in")
    g.kernel(hg.Module(SOURCE)["scale"], grid=1, block=8, args=(x, a, 8))
    g.memcpy(h, x, name="out")
    g.host(double, args=(h,))
    return g

def racing():
    g = hg.Graph("racing", infer=False)
    x = g.device_array("x", shape=8, dtype="float32")
    g.memset(x, 0, name="first")
    g.memset(x, 1, name="second")
    return g

def needs(n):
    return build()

ready = build()
number = 3

def fails():
    return 1 / 0

def wrong():
    g = hg.Graph("wrong")
    g.device_array("x", shape=0, dtype="float32")
'''


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / f"demo_{abs(hash(str(tmp_path)))}.py"
    path.write_text(PROGRAM)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return str(path)


@pytest.fixture
def cpu() -> None:
    try:
        open_runtime("cpu")
    except (RuntimeUnavailable, ImportError, AttributeError) as error:
        pytest.skip(f"runtime 'cpu' is not available: {error}")


class Output:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Output:
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse ends the program itself
            status = int(error.code or 0)
        captured = capsys.readouterr()
        return Output(status, captured.out, captured.err)

    return call


# -- finding a workflow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ":build", ":ready"])
def test_python_file_names_its_graph(run: Any, program: str, suffix: str) -> None:
    done = run("show", program + suffix)
    assert done.status == 0
    assert done.out.startswith("demo: 4 nodes")


@pytest.mark.parametrize(
    "also",
    [
        "",
        "again = only",
        "def other(): return hg.Graph('other')",
        "taken, other = only.workflow(), hg.Graph('other').workflow()",
        "only = only.workflow()",
        "only = again = only.workflow()",
    ],
)
def test_the_only_graph_or_else_workflow_of_a_file_needs_no_name(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / f"only_{abs(hash(str(tmp_path)))}.py"
    path.write_text(f"import hipgraphdsl as hg\nonly = hg.Graph('only')\nonly.empty()\n{also}\n")
    assert run("show", path).out.startswith("only: 1 node")


@pytest.mark.parametrize(
    "graphs", ["", "a, b = hg.Graph('a'), hg.Graph('b')", "a, b = hg.Graph('a').workflow(), hg.Graph('b').workflow()"]
)
def test_a_file_of_no_or_several_graphs_is_asked_for_a_name(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / f"several_{abs(hash(str(tmp_path)))}.py"
    path.write_text(f"import hipgraphdsl as hg\n{graphs}\n")
    done = run("check", path)
    assert done.status == 2
    known = "'a', 'b'" if graphs else "none"
    assert f"its Graphs, Workflows and functions are {known}: name one as {path}:NAME" in done.err


def test_module_names_its_graph(run: Any, program: str) -> None:
    assert run("show", Path(program).stem + ":racing").out.startswith("racing: 2 nodes")


@pytest.mark.parametrize("extension", [".json", ".yaml", ".graphml"])
def test_workflow_file_is_loaded(run: Any, program: str, tmp_path: Path, extension: str) -> None:
    if extension == ".yaml":
        pytest.importorskip("yaml")
    path = tmp_path / f"demo{extension}"
    assert run("show", program, "-o", path).status == 0
    assert run("diff", program, path, "--exit-code").status == 0


def test_example_whose_name_is_no_identifier_is_found(run: Any, program: str, tmp_path: Path) -> None:
    other = tmp_path / "01_demo.py"
    other.write_text(PROGRAM)
    assert run("show", other).status == 0
    assert run("show", other, "-o", tmp_path / "g.json").status == 0
    assert '"fn": "01_demo:double"' in (tmp_path / "g.json").read_text()


@pytest.mark.parametrize(
    ("spec", "status", "said"),
    [
        ("nowhere.py", 2, "no file 'nowhere.py'"),
        ("nowhere.json", 2, "cannot be read"),
        ("no_such_module_here", 2, "no file and no module"),
        ("{program}:nothing", 2, "has no 'nothing'; its Graphs, Workflows and functions are"),
        ("{program}:number", 2, "is of type int, not a Graph"),
        ("{program}:needs", 2, "needs the arguments n"),
        ("{program}:", 2, "ends with ':'"),
        ("{program}:fails", 1, "ZeroDivisionError: division by zero at"),
        ("{program}:wrong", 1, "each extent of a shape is at least 1"),
        (".", 2, "is a folder"),
        ("a b", 2, "neither a file nor a module"),
    ],
)
def test_what_is_no_workflow_is_named(run: Any, program: str, spec: str, status: int, said: str) -> None:
    done = run("check", spec.replace("{program}", program))
    assert (done.status, done.out) == (status, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_broken_program_is_named_with_its_line(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "broken_program.py"
    path.write_text("x = 1\nif x\n")
    done = run("check", path)
    assert done.status == 1
    assert f"{path}:2" in done.err
    path.write_text("raise SystemExit(5)")
    assert run("check", path).status == 1
    path.write_text("import no_such_module_here")
    assert "No module named 'no_such_module_here'" in run("check", path).err


def test_broken_file_is_named_with_its_line(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text('{"hipgraphdsl": 1,\n "name": 3}')
    done = run("check", path)
    assert done.status == 1
    assert f"{path}: workflow file, line 2, name:" in done.err
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8 text" in run("check", path).err


def test_verbose_shows_the_traceback(run: Any, program: str) -> None:
    assert "Traceback" in run("-v", "check", f"{program}:fails").err


# -- check -------------------------------------------------------------------------------------------------------------


def test_check_ends_with_0_or_1(run: Any, program: str) -> None:
    assert run("check", program).status == 0
    done = run("check", f"{program}:racing")
    assert done.status == 1
    assert "HG20" in done.out


def test_check_writes_json_and_sarif(run: Any, program: str, tmp_path: Path) -> None:
    assert json.loads(run("check", f"{program}:racing", "--format", "json").out)["ok"] is False
    path = tmp_path / "out.sarif"
    done = run("check", f"{program}:racing", "--format", "sarif", "-o", path)
    assert (done.status, done.out) == (1, "")
    assert json.loads(path.read_text())["version"] == "2.1.0"


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".graphml"])
def test_sarif_names_the_file_of_a_workflow(run: Any, suffix: str, tmp_path: Path) -> None:
    g = Graph("shared", infer=False)
    x = g.device_array("x", shape=4, dtype="f4")
    g.memset(x, 0)
    g.memset(x, 1)
    path = tmp_path / f"two races{suffix}"
    g.export(path)
    results = json.loads(run("check", path, "--format", "sarif").out)["runs"][0]["results"]
    (result,) = [result for result in results if result["level"] == "error"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == path.as_uri()
    assert (place["region"]["startLine"] > 1) == (suffix == ".json")
    assert ("at " in run("check", path).out) == (suffix == ".json")


def test_check_shows_what_ranks_do(run: Any, tmp_path: Path) -> None:
    g = Graph("shared")
    x = [g.device_array(f"x{d}", shape=256, dtype="int32", device=d) for d in range(4)]
    g.memset(x[0], 1, name="fill")
    for d in range(3):
        g.memcpy(x[d + 1], x[d], name=f"hand_{d}")
    path = tmp_path / "shared.json"
    path.write_text(g.to_json())
    done = run("check", path, "--ranks", "2", "--devices-per-rank", "2")
    assert done.status == 0
    rows = [line.split() for line in done.out.splitlines()]
    assert ["0", "0", "to", "1", "2", "2", "KiB", "0", "B", "1", "0"] in rows
    assert ["1", "2", "to", "3", "1", "2", "KiB", "0", "B", "0", "1"] in rows
    assert ["0", "->", "1", "1", "1", "KiB"] in rows
    done = run("check", path, "--ranks", "1", "--devices-per-rank", "4")
    assert done.status == 0
    assert "Nothing crosses between ranks." in done.out
    done = run("check", path, "--ranks", "2")
    assert done.status == 1
    assert "is on device 2, and the ranks have 2 devices together" in done.err
    for wrong in (["--ranks", "0"], ["--ranks", "2", "--format", "json"]):
        assert run("check", path, *wrong).status == 2


def test_check_shows_what_collectives_send_between_ranks(run: Any, tmp_path: Path) -> None:
    g = Graph("together")
    g.all_reduce([g.device_array(f"x{d}", shape=256, dtype="int32", device=d) for d in range(2)])
    path = tmp_path / "together.json"
    path.write_text(g.to_json())
    done = run("check", path, "--ranks", "2")
    assert done.status == 0
    rows = [line.split() for line in done.out.splitlines()]
    assert all([a, "->", b, "1", "1", "KiB"] in rows for a, b in ("01", "10"))


def test_run_takes_ranks(run: Any, program: str) -> None:
    done = run("run", program, "--runtime", "cpu", "--ranks", "--json")
    assert done.status == 0
    assert json.loads(done.out)["arrays"][0]["name"] == "h"


def test_show_gives_the_target_and_lanes_to_the_file(run: Any, program: str, tmp_path: Path) -> None:
    assert run("show", program, "-o", tmp_path / "w.dot", "--lanes", "1").status == 0
    assert "cluster_" in (tmp_path / "w.dot").read_text()
    done = run("show", program, "-o", tmp_path / "w.json", "--target", "cpu")
    assert (done.status, "a .json file takes no option 'target'" in done.err) == (1, True)


def test_check_knows_targets(run: Any, program: str) -> None:
    assert run("check", program, "--target", "amd:gfx942").status == 0
    done = run("check", program, "--target", "riva")
    assert done.status == 2
    assert "no target 'riva'" in done.err


# -- show, diff, schema ------------------------------------------------------------------------------------------------


def test_show_lists_arrays_parameters_and_nodes(run: Any, program: str) -> None:
    lines = [line.split() for line in run("show", program).out.splitlines()]
    assert ["h", "host", "float32", "8", "32", "B", "given"] in lines
    assert ["a", "float32", "scalar", "2.0"] in lines
    assert ["scale", "kernel", "scale<<<1,", "8>>>", "in"] in lines


def test_show_counts_the_rows_that_it_leaves_out(run: Any, program: str) -> None:
    assert "... 2 more rows" in run("show", program, "--rows", "2").out


def test_show_names_children_and_everything_else(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    everything().export(path)
    out = run("show", path).out
    assert "\n  scale " in out
    assert "not supplied" in out


def test_show_plan(run: Any, program: str) -> None:
    assert "plan of 'demo': 4 steps" in run("show", program, "--plan").out
    assert run("show", program, "--plan", "--lanes", "zero").status == 2


def test_show_refuses_formats_and_options_that_are_not_there(run: Any, program: str, tmp_path: Path) -> None:
    done = run("show", program, "-o", tmp_path / "g.docx")
    assert (done.status, "formats are" in done.err) == (2, True)
    assert run("show", program, "-o", tmp_path / "g.json", "--option", "colour=1").status == 1
    done = run("show", program, "-o", tmp_path / "g.dot", "--option", "direction=XX", "--option", "lanes=true")
    assert (done.status, "direction is 'TB', to the bottom, or 'LR', to the right (got 'XX')" in done.err) == (1, True)
    assert run("show", program, "-o", tmp_path / "g.dot", "--option", "target=nothing").status == 1
    assert not list(tmp_path.glob("g.*"))
    assert run("show", program, "--option", "colour=1").status == 2


def test_diff_tells_what_changed(run: Any, program: str) -> None:
    done = run("diff", program, f"{program}:racing")
    assert done.status == 0
    assert "+ node 'first'" in done.out
    assert run("diff", program, f"{program}:racing", "--exit-code").status == 1
    assert json.loads(run("diff", program, program, "--json").out)["same"] is True


def test_schema_is_json(run: Any) -> None:
    assert json.loads(run("schema").out)["title"] == "hipgraphdsl workflow"


# -- run ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cpu")
def test_run_prints_what_the_host_arrays_hold(run: Any, program: str) -> None:
    done = run("run", program, "--runtime", "cpu", "--param", "a=3")
    assert done.status == 0
    assert ["h", "float32", "8", "0", "42", "21"] in [line.split() for line in done.out.splitlines()]


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_run_repeats_on_every_backend(run: Any, program: str, backend: str) -> None:
    done = run("run", program, "--runtime", "cpu", "--backend", backend, "--repeat", "3", "--param", "a=0.5", "--json")
    data = json.loads(done.out)
    assert data["launches"] == 3
    assert data["arrays"][0]["max"] == 7.0
    assert data["launch_us"] > 0


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(("option", "wanted"), [([], "auto"), (["--batch"], True), (["--no-batch"], False)])
def test_run_takes_batch(run: Any, program: str, option: list[str], wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compiled(graph: Graph, *given: Any, **options: Any) -> Executable:
        asked.append(options["plan"].batch)
        return compile_graph(graph, *given, **options)

    compile_graph = Graph.compile
    monkeypatch.setattr(Graph, "compile", compiled)
    assert run("run", program, "--runtime", "cpu", *option).status == 0
    assert asked == [wanted]


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("arguments", [(), ("--lanes", "1")])
def test_run_counts_no_marks_of_a_watched_plan(run: Any, program: str, arguments: tuple[str, ...]) -> None:
    given = ("run", program, "--runtime", "cpu", "--json", *arguments)
    plain, watched = (json.loads(run(*given, *more).out) for more in ((), ("--watch",)))
    assert all(plain[key] == watched[key] for key in ("nodes", "edges", "lanes"))


@pytest.mark.usefixtures("cpu")
def test_run_saves_arrays(run: Any, program: str, tmp_path: Path) -> None:
    assert run("run", program, "--runtime", "cpu", "--save", f"x={tmp_path / 'x.npy'}").status == 0
    assert np.load(tmp_path / "x.npy").tolist() == [2.0 * i for i in range(8)]


@pytest.mark.usefixtures("cpu")
def test_run_of_a_file_says_that_it_is_native_code(run: Any, program: str, tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    run("show", program, "-o", path)
    refused = run("run", path, "--runtime", "cpu")
    assert refused.status == 1
    assert "double: callback" in refused.err
    done = run("run", path, "--runtime", "cpu", "--import-callbacks", "--json")
    assert "native code" in done.err
    assert json.loads(done.out)["arrays"][0]["max"] == 28.0


@pytest.mark.usefixtures("cpu")
def test_run_takes_the_values_of_large_arrays(run: Any, tmp_path: Path) -> None:
    g = Graph("large")
    h = g.host_array("h", np.arange(5000, dtype="float32"))
    x = g.device_array("x", shape=5000, dtype="float32")
    out = g.host_array("out", shape=5000, dtype="float32")
    g.memcpy(x, h)
    g.memcpy(out, x)
    g.export(tmp_path / "g.json")
    np.save(tmp_path / "h.npy", np.full(5000, 7, "float32"))
    assert "h: initial values" in run("run", tmp_path / "g.json", "--runtime", "cpu").err
    done = run("run", tmp_path / "g.json", "--runtime", "cpu", "--array", f"h={tmp_path / 'h.npy'}", "--json")
    assert json.loads(done.out)["arrays"][0]["mean"] == 7.0
    assert "SHA-256" in done.err


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("form", ["json", "py"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "complex32", "float32"])
def test_array_of_a_type_that_npy_lacks_is_taken_as_raw_bytes_and_as_its_uint8_view(
    tmp_path: Path, run: Any, form: str, dtype: str
) -> None:
    g = Graph("g")
    g.memcpy(g.host_array("out", shape=(3, 4), dtype=dtype), g.host_array("h", np.zeros((3, 4)), dtype=dtype))
    g.memcpy(g.host_array("same", shape=(3, 4), dtype=dtype), g.param("p", dtype, shape=(3, 4)))
    path = tmp_path / f"g.{form}"
    g.export(path)
    values = np.arange(12).reshape(3, 4).astype(as_dtype(dtype))
    given, saved = tmp_path / "given.npy", tmp_path / "saved.npy"
    for view in ("uint8", f"V{values.itemsize}") if dtype != "float32" else ("f4",):
        np.save(given, values.view(view))
        for name in ("out", "same"):
            run("run", path, "--runtime", "cpu", "--array", f"h={given}", "--param", f"p=@{given}", "--save", f"{name}={saved}")
            assert np.load(saved).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--param", "b=1"), "no parameter 'b'; its parameters are 'a'"),
        (("--param", "a"), "NAME=VALUE"),
        (("--param", "a=two"), "'two' is not a value"),
        (("--param", "a=1", "--param", "a=2"), "twice"),
        (("--repeat", "0"), "--repeat"),
        (("--save", "q=q.npy"), "no array 'q'"),
        (("--read", "q"), "no array 'q'"),
        (("--array", "h=nowhere.npy"), "nowhere.npy"),
        (("--import-callbacks",), "workflow files"),
        (("--lanes", "0"), "lanes"),
        (("--backend", "magic"), "invalid choice"),
        (("--dry-run", "--save", "h=h.npy"), "--save belongs to a launch, and --dry-run runs nothing"),
        (("--dry-run", "--read", "h"), "--read belongs to a launch"),
        (("--dry-run", "--profile"), "--profile belongs to a launch"),
        (("--dry-run", "--ranks"), "--ranks belongs to a launch"),
    ],
)
def test_run_refuses_what_it_cannot_use(run: Any, program: str, arguments: tuple[str, ...], said: str) -> None:
    done = run("run", program, *arguments)
    assert done.status == 2
    assert said in done.err


@pytest.mark.parametrize("runtime", ["amd", "nvidia"])
def test_missing_runtime_ends_with_3(run: Any, program: str, runtime: str) -> None:
    try:
        open_runtime(runtime)
    except RuntimeUnavailable:
        done = run("run", program, "--runtime", runtime)
        assert done.status == 3
        assert f"runtime {runtime!r}" in done.err
    except HipGraphError:
        pytest.skip(f"runtime {runtime!r} is there and refuses")
    else:
        pytest.skip(f"runtime {runtime!r} is there")


def test_race_is_refused_before_anything_runs(run: Any, program: str) -> None:
    done = run("run", f"{program}:racing", "--dry-run")
    assert done.status == 1
    assert "graph 'racing' has" in done.err
    assert run("run", f"{program}:racing", "--dry-run", "--no-check").status == 0


def test_dry_run_prints_the_calls(run: Any, program: str) -> None:
    done = run("run", program, "--dry-run", "--repeat", "2")
    assert done.status == 0
    assert "hipGraphAddKernelNode(" in done.out
    assert done.out.count("hipGraphLaunch(") == 2
    watched = run("run", program, "--dry-run", "--watch").out
    assert watched.count("hipGraphAddKernelNode(") > done.out.count("hipGraphAddKernelNode(")
    data = json.loads(run("run", program, "--dry-run", "--backend", "capture", "--json").out)
    assert "hipStreamBeginCapture" in {call["api"] for call in data["compile"]}


# -- verify, bench, info -----------------------------------------------------------------------------------------------


UNIT = ("--duration", "memcpy=1", "--duration", "kernel=2", "--duration", "host=0.5")


@pytest.mark.usefixtures("cpu")
def test_timeline_is_measured_or_predicted(run: Any, program: str) -> None:
    done = run("timeline", program, "--runtime", "cpu")
    assert done.status == 0
    assert "timeline of 'demo': 4 nodes in" in done.out
    assert " us" in done.out
    done = run("timeline", program, *UNIT)
    assert done.status == 0
    assert "4 nodes in 4.5 time units, in sequence 4.5 time units" in done.out


@pytest.mark.usefixtures("cpu")
def test_timeline_takes_batch_and_target(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "batched.json"
    path.write_text(batched(512).to_json())
    times = ("--duration", "kernel=1", "--duration", "D2H=1")
    assert "516 nodes in" in run("timeline", path, *times).out
    assert "516 nodes (512 in a batch, 3 in a chain) in" in run("timeline", path, *times, "--batch").out
    assert "516 nodes (512 in a batch) in" in run("timeline", path, *times, "--target", "nvidia:sm_90").out
    assert "516 nodes in" in run("timeline", path, *times, "--target", "nvidia:sm_90", "--no-batch").out
    assert "516 nodes (512 in a batch, 3 in a chain) in" in run("timeline", path, "--runtime", "cpu", "--batch").out


def test_timeline_takes_ranks(run: Any, tmp_path: Path) -> None:
    g = Graph("two")
    x = [g.device_array(f"x{d}", shape=250, dtype="int32", device=d) for d in range(2)]
    g.memset(x[0], 1, name="fill")
    g.memcpy(x[1], x[0], name="hand")
    path = tmp_path / "two.json"
    path.write_text(g.to_json())
    done = run("timeline", path, "--duration", "memset=4", "--ranks", "2", "--link", "latency_us=2", "--link", "gb_s=1")
    assert done.status == 0
    assert "2 nodes in 7 us" in done.out
    assert "0 -> 1: 1 message, 1000 B" in done.out


def test_timeline_takes_conditions(run: Any, tmp_path: Path) -> None:
    body, g = Graph("body"), Graph("looping")
    x = [graph.device_array("x", shape=1, dtype="int32") for graph in (body, g)]
    body.memset(x[0], 0, name="fill")
    g.conditional("while", x[1], body, {"x": x[1]}, name="loop")
    g.conditional("if", x[1], body, {"x": x[1]}, name="maybe")
    path = tmp_path / "looping.json"
    path.write_text(g.to_json())
    done = run("timeline", path, "--duration", "memset=4", "--condition", "loop=3", "--condition", "maybe=true")
    assert done.status == 0
    assert "9 nodes in 16 time units" in done.out
    assert "loop/0/fill (pass 2)" in done.out
    done = run("timeline", path, "--duration", "memset=4", "--condition", "loop=3", "--condition", "maybe=no")
    assert done.status == 1
    assert "conditions['maybe'] is whether the first body runs, True or False (got 'no')" in done.err


def test_timeline_of_a_prediction_runs_nothing(run: Any, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "compile", lambda *_, **__: pytest.fail("it compiled"))
    assert run("timeline", program, *UNIT, "--engine", "copy=1", "--engine", "host=1").status == 0


@pytest.mark.parametrize("name", ["t.html", "t.trace.json", "t.json", "t.txt"])
def test_timeline_writes_files(run: Any, program: str, tmp_path: Path, name: str) -> None:
    done = run("timeline", program, *UNIT, "-o", str(tmp_path / name))
    assert (done.status, done.out) == (0, "")
    assert done.err.startswith(f"wrote {tmp_path / name} (")
    assert "scale" in (tmp_path / name).read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--engine", "kernel=2"), 2, "--engine belongs to a prediction"),
        (("--target", "cpu"), 2, "--target belongs to a prediction"),
        (("--condition", "loop=3"), 2, "--condition belongs to a prediction"),
        ((*UNIT, "--condition", "loop"), 2, "--condition takes NAME=VALUE (got 'loop')"),
        ((*UNIT, "--condition", "scale=3"), 1, "conditions has 'scale', which is no conditional node of graph 'demo'"),
        (("--ranks", "2"), 2, "--ranks and --link belong to a prediction"),
        ((*UNIT, "--link", "latency_us=1", "--link", "gb_s=1"), 2, "--link joins the processes of --ranks"),
        ((*UNIT, "--ranks", "2", "--link", "gb_s=1"), 2, "--link has a latency_us and a gb_s"),
        ((*UNIT, "--ranks", "0"), 2, "--ranks is a number from 1 to 1048576 (got 0), and --devices-per-rank one from 1"),
        ((*UNIT, "--devices-per-rank", "2"), 2, "--devices-per-rank needs --ranks"),
        (("--option", "by=lane"), 2, "--option belongs to -o FILE"),
        ((*UNIT, "--param", "a=1"), 2, "--param belongs to a measurement"),
        (("--duration", "kernel=soon"), 2, "--duration kernel takes a number (got 'soon')"),
        ((*UNIT, "--engine", "kernel=1.5"), 2, "--engine kernel takes a number (got '1.5')"),
        (("--duration", "kernel=1"), 1, "node 'in' (memcpy) has no duration; give --duration in= or --duration H2D="),
        ((*UNIT, "--duration", "H2D=-1"), 1, "--duration H2D= is a time, a finite number from 0 (got -1.0)"),
        ((*UNIT, "--duration", "h2d=1"), 1, "--duration has 'h2d', which is neither a node of graph 'demo' nor"),
        ((*UNIT, "-o", "t.pdf"), 2, "'t.pdf' names no format by its extension; formats are .png"),
        ((*UNIT, "-o", "t.html", "--option", "by=stream"), 1, "by is 'engine', 'lane', 'segment' or 'node'"),
    ],
)
def test_timeline_names_what_it_cannot_use(run: Any, program: str, arguments: tuple[str, ...], status: int, said: str) -> None:
    done = run("timeline", program, *arguments)
    assert done.status == status
    assert said in done.err


@pytest.mark.usefixtures("cpu")
def test_verify_ends_with_0_for_a_sound_workflow(run: Any, program: str) -> None:
    done = run("verify", program, "--runtime", "cpu", "--orders", "2", "--repeats", "1", "--json")
    assert done.status == 0
    assert json.loads(done.out)


def test_bench_lists_what_there_is(run: Any) -> None:
    done = run("bench", "--help")
    assert done.status == 0
    assert "benchmarks:" in done.out
    assert "advise     From how many launches on" in done.out
    assert "``" not in done.out + run("bench", "launch", "--help").out
    done = run("bench", "nothing")
    assert done.status == 2
    assert "no benchmark 'nothing'" in done.err


@pytest.mark.parametrize("name", bench.benchmarks())
def test_every_listed_benchmark_has_its_own_help(run: Any, name: str) -> None:
    done = run("bench", name, "--help")
    assert done.status == 0
    assert f"usage: hipgraphdsl bench {name} " in done.out
    assert all(len(line) <= 130 for line in done.out.splitlines())


@pytest.mark.usefixtures("cpu")
def test_bench_of_ranks_says_that_it_needs_two_devices(run: Any) -> None:
    done = run("bench", "ranks", "--runtime", "cpu")
    assert done.status == 3
    assert "runtime 'cpu' has one device, and this benchmark needs two or --one-gpu" in done.err


def test_bench_scaling_prints_what_it_simulates_and_measures(run: Any) -> None:
    done = run("bench", "scaling", "--devices", "1", "2", "--cost-devices", "2", "--steps", "1", "--nodes", "30")
    assert done.status == 0
    assert re.search(r"training step, 64 samples a device +weak +100.0% ", done.out)
    assert re.search(r"^off +2 ", done.out, re.MULTILINE)
    assert re.search(r"^ +nodes +declare +check +plan ", done.out, re.MULTILINE)
    assert re.search(r"^ +30( +[0-9.]+){9}$", done.out, re.MULTILINE)


@pytest.mark.usefixtures("cpu")
def test_info_says_which_runtimes_are_there_and_why_others_are_not(run: Any) -> None:
    data = json.loads(run("info", "--json").out)
    assert data["runtimes"]["cpu"]["available"]
    for facts in data["runtimes"].values():
        assert facts["available"] or facts["why"]
    assert "cpu: cpu" in run("info").out


def test_info_lists_the_defects_of_a_target(run: Any) -> None:
    done = run("info", "--target", "amd:gfx942@7.2")
    assert done.status == 0
    assert "disabled-drops-edges" in done.out
    assert json.loads(run("info", "--target", "cpu", "--json").out)["defects"] == []


# -- as a process ------------------------------------------------------------------------------------------------------


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(cli.__file__).parent.parent.parent), *sys.path])}
    return subprocess.run(
        [sys.executable, "-m", "hipgraphdsl", *arguments], capture_output=True, text=True, env=environment, **options
    )


def test_python_dash_m_runs_it(program: str) -> None:
    done = process("show", program)
    assert done.returncode == 0
    assert done.stdout.startswith("demo:")
    assert process("--version").stdout.startswith("hipgraphdsl ")
    bare = process()
    assert (bare.returncode, bare.stdout) == (2, "")
    assert "\ncommands:\n" in bare.stderr


@pytest.mark.parametrize("command", ["show", "check", "diff", "run", "timeline"])
def test_help_has_examples(command: str, run: Any) -> None:
    done = run(command, "--help")
    assert done.status == 0
    assert f"examples:\n  hipgraphdsl {command} " in done.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("where", "status", "said"),
    [(">&-", 0, ""), ("> /dev/full", 1, "hipgraphdsl: the output cannot be written: No space left on device\n")],
)
def test_output_that_takes_nothing_gives_no_traceback(where: str, status: int, said: str) -> None:
    command = f"'{sys.executable}' -m hipgraphdsl schema {where}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(cli.__file__).parent.parent.parent), *sys.path])}
    done = subprocess.run(command, shell=True, text=True, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (status, said)


def test_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    pipeline(400).export(tmp_path / "g.json")
    shell = f"'{sys.executable}' -m hipgraphdsl show g.json --rows 0 | head -1; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(cli.__file__).parent.parent.parent), *sys.path])}
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("pipeline: 1200 nodes")
    assert done.stdout.splitlines()[1] in ("0", "141")


def test_interrupt_ends_with_130(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hipgraphdsl.cli.show.load_graph", interrupt)
    done = run("show", "g.json")
    assert (done.status, done.err) == (130, "hipgraphdsl: interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "w.py", "-o"),
        ("show", "w.py", "-o"),
        ("timeline", "w.py", "-o"),
        ("build", "w.hip", "-o"),
        ("run", "w.py", "--save"),
        ("bench", "launch", "-o"),
        ("bench", "cpu", "--markdown"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_run(
    arguments: tuple[str, ...], run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("w.py", "w.hip"):
        Path(file).write_text("raise AssertionError('this was run')")
    Path("there.html").mkdir()
    for path, why in (("nope/x.html", "there is no folder 'nope'"), ("there.html", "it is a folder")):
        done = run(*arguments, f"x={path}" if "--save" in arguments else path)
        assert done.status == 2
        assert f"{path!r} cannot be written: {why}" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "--target", "riva"), "there is no target 'riva'"),
        (("show", "--rows", "-1"), "a number from 0 (got '-1')"),
        (("verify", "--orders", "-1"), "a number from 0 (got '-1')"),
        (("verify", "--repeats", "0"), "a number from 1 (got '0')"),
        (("verify", "--tolerance", "nan"), "--tolerance: it is a number from 0 (got 'nan')"),
        (("run", "--timeout", "-1"), "--timeout: it is a number from 0 (got '-1')"),
        (("run", "--array", f"x={__file__}"), "the magic string is not correct"),
        (("show", "--plan", "-o", "x.svg"), "--plan prints the plan: leave -o FILE out"),
    ],
)
def test_numbers_and_targets_are_judged_before_anything_runs(
    run: Any, program: str, arguments: tuple[str, ...], said: str
) -> None:
    done = run(arguments[0], program, *arguments[1:])
    assert (done.status, said in done.err) == (2, True)


def test_counts_and_lanes_of_benchmarks_are_refused_by_name(run: Any) -> None:
    done = run("bench", "launch", "--size", "0")
    assert (done.status, "argument --size: it is a number from 1 (got '0')" in done.err) == (2, True)
    done = run("bench", "launch", "--lanes", "some")
    assert (done.status, "lanes is auto, measure, declared or a number from 1 (got 'some')" in done.err) == (2, True)


def test_a_parameter_without_default_is_asked_for_as_an_option(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "asks.py"
    path.write_text(
        "import hipgraphdsl as hg\n"
        "def build():\n"
        "    g = hg.Graph('asks')\n"
        "    x = g.device_array('x', shape=4, dtype='f4')\n"
        "    g.param('unused', 'f4')\n"
        "    g.memset(x, g.param('a', 'f4'))\n"
        "    g.memcpy(x, g.param('p', 'f4', shape=(4,)))\n"
        "    return g\n"
    )
    done = run("run", path)
    assert (done.status, done.err) == (2, "hipgraphdsl: parameter 'a' has no default: give --param a=VALUE\n")
    done = run("timeline", path, "--param", "a=1")
    assert (done.status, done.err) == (2, "hipgraphdsl: parameter 'p' has no default: give --param p=@FILE.npy\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(4, 0.5)", (4, 0.5)),
        ("{'n': 4, 'w': 0.5}", (4, 0.5)),
        ("{'w': 0.5, 'n': 4}", (4, 0.5)),
        ("{'n': 4}", None),
        ("{'n': 4, 'w': 1, 'm': 2}", None),
        ("4", None),
    ],
)
def test_a_structured_parameter_is_a_tuple_or_names_its_fields(text: str, value: tuple[int, float] | None) -> None:
    g = Graph("structured")
    g.param("p", np.dtype([("n", "i4"), ("w", "f4")]))
    if value is not None:
        assert parameter_values(g, [f"p={text}"]) == {"p": value}
        return
    with pytest.raises(Misuse, match=r"'p' is .*is not a value of that dtype"):
        parameter_values(g, [f"p={text}"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "w.json", "-o", "w.foo"), "'w.foo' names no format by its extension; formats are .json"),
        (("build", "nope.hip"), "there is no file 'nope.hip'"),
    ],
)
def test_wrong_names_of_files_are_misuse(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err
