"""Benchmarks: that each runs, gives every figure and writes it; no time is asserted."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import benchmarks.cpu
import hipgraphdsl as hg
from benchmarks import build, checks, figures, lanes, launch_plot, overlap, ranks, segments
from benchmarks.shapes import cholesky, yee
from hipgraphdsl import measuring
from hipgraphdsl.cli import main
from hipgraphdsl.parts.bench import advise, calibrate, launch, measure, peers
from hipgraphdsl.parts.bench.shapes import chain, decode, wave
from hipgraphdsl.target import CostModel, Target, calibrated, store_costs

ADD = r"""
extern "C" __global__ void add(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];
}
"""


@pytest.fixture(scope="module")
def cpu() -> Any:
    try:
        return hg.open_runtime("cpu")
    except hg.RuntimeUnavailable as error:
        pytest.skip(str(error))


def has_times(row: dict[str, Any], *keys: str) -> bool:
    return all(isinstance(row[key], float) and math.isfinite(row[key]) and row[key] >= 0 for key in keys)


def test_each_kernel_of_the_benchmarks_is_written_once() -> None:
    root = Path(__file__).parents[2]
    files = [path for folder in ("benchmarks", "hipgraphdsl/parts/bench") for path in (root / folder).iterdir() if path.is_file()]
    names = [name for path in files for name in re.findall(r"__global__ void (?:__\w+\(.*?\) )?(\w+)", path.read_text("utf-8"))]
    assert {name: count for name, count in Counter(names).items() if count > 1} == {}
    assert {"wave2d_4o", "axpy", "matmul"} <= set(names)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("mpiexec has detected an attempt to run as root. Use the --allow-run-as-root option.", True),
        ("worker: no device", False),
    ],
)
def test_ranks_ends_with_what_mpiexec_said_and_what_to_set(said: str, asked: bool, tmp_path: Path) -> None:
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 3\n")
    mpiexec.chmod(0o755)
    with pytest.raises(SystemExit) as ended:
        ranks.run_all([str(mpiexec), "-n", "2"], {})
    assert f"{said}\n{mpiexec} has ended with status 3." in str(ended.value)
    assert ("OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in str(ended.value)) == asked


def test_build_measures_each_phase_of_each_shape() -> None:
    sheet = build.run(None, nodes=20, rounds=1, repeats=1)
    assert [(row["shape"], row["phase"]) for row in sheet.rows] == [(s, p) for s in build.SHAPES for p in build.PHASES]
    assert all(has_times(row, "us") and row["us"] > 0 and "ratio" not in row for row in sheet.rows)


def test_build_gives_the_ratio_to_another_checkout() -> None:
    sheet = build.run(Path(__file__).parents[2], nodes=20, shapes=("halos",), phases=("declare",), rounds=2, repeats=1)
    (row,) = sheet.rows
    assert has_times(row, "us", "base_us", "ratio")
    assert row["base_us"] > 0 < row["ratio"]


# -- launch ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sheet(cpu: Any) -> measure.Sheet:
    return launch.run(cpu, ["single", "chain", "parallel", "decode"], [1, 7], repeats=2)


def test_launch_has_a_row_for_each_shape_size_and_backend(sheet: measure.Sheet) -> None:
    found = {(row["shape"], row["nodes"], row["who"]) for row in sheet.rows}
    sized = {(shape, n, who) for shape in ("chain", "parallel") for n in (1, 7) for who in launch.BACKENDS}
    assert sized <= found
    assert {("single", 1, who) for who in launch.BACKENDS} <= found
    assert {("decode", 520, who) for who in launch.BACKENDS} <= found


def test_launch_measures_every_phase(sheet: measure.Sheet) -> None:
    for row in sheet.rows:
        assert has_times(
            row, "lower_us", "submit_us", "submit_p99_us", "total_us", "total_p99_us", "update_one_us", "update_all_us"
        )
        assert row["submit_us"] <= row["submit_p99_us"]
        if row["who"] in launch.BACKENDS:
            assert has_times(row, "declare_us", "plan_us", "first_us", "resident_mb")
        if row["who"] in ("capture", "explicit", "C++"):
            assert has_times(row, "instantiate_us")


def test_launch_says_from_how_many_launches_a_graph_pays(sheet: measure.Sheet) -> None:
    for row in sheet.rows:
        if row["who"] in ("capture", "explicit"):
            assert row["pays_from"] == "never" or int(row["pays_from"]) >= 1


def test_launch_names_each_peer_that_is_left_out_and_why(sheet: measure.Sheet) -> None:
    taken = {row["who"] for row in sheet.rows}
    for peer in peers.PEERS:
        assert peer.name in taken or any(note.startswith(f"left out {peer.name}: ") for note in sheet.notes)


def test_launch_runs_without_a_device() -> None:
    runtime = hg.open_runtime("recorder")
    sheet = launch.run(runtime, ["chain"], [3], backends=["explicit"], repeats=2)
    assert [row["who"] for row in sheet.rows] == ["explicit"]
    assert any("left out C++" in note for note in sheet.notes)


@pytest.mark.parametrize("width", [60, 80, 120, 260])
def test_a_sheet_fits_the_terminal_and_cuts_no_figure(
    sheet: measure.Sheet, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"COLUMNS": str(width), "TTY_COMPATIBLE": "1", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    sheet.print()
    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    words = Counter(printed.split())
    figures = Counter(column.of(row) for column in sheet.columns for row in sheet.rows if column.of(row))
    assert not [figure for figure, count in figures.items() if words[figure] < count]


def test_launch_says_which_case_it_measures_where_no_bar_is_drawn(cpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "launch", "--runtime", "cpu", "--shape", "chain", "--size", "1", "--size", "3", "--repeats", "1",
                 "--no-peers", "--backend", "serial"]) == 0  # fmt: skip
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == ["bench launch, 1 of 2: chain of 1", "bench launch, 2 of 2: chain of 3"]


def test_launch_ratios_are_relative_to_cpp(sheet: measure.Sheet) -> None:
    native = [row for row in sheet.rows if row["who"] == "C++"]
    if not native:
        pytest.skip("no C++ compiler")
    assert all(row["total_ratio"] == 1.0 for row in native)


@pytest.mark.parametrize("extension", ["png", "svg"])
def test_launch_plots(sheet: measure.Sheet, tmp_path: Path, extension: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"launch.{extension}"
    launch_plot.plot(sheet, str(path))
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") if extension == "png" else b"<svg" in content


def test_peer_computes_what_hipgraphdsl_computes(cpu: Any) -> None:
    steps = 5
    with wave(steps, 32).compile(runtime=cpu) as exe:
        exe.run()
        expected = exe.read("u")
        exe.write("u", 0.0)
        work = peers.Work.of(exe)
        try:
            peer = peers.open_peer(peers.Cpp, work)  # which launches it once
        except peers.Skipped as reason:
            pytest.skip(str(reason))
        assert np.array_equal(exe.read("u"), expected)
        peer.close()
        work.close()


@pytest.mark.needs("cpu")
def test_blocks_that_are_called_past_the_runtime_compute_what_their_node_does(cpu: Any) -> None:
    g = hg.Graph("past")
    x, y = g.device_array("x", np.arange(70, dtype="f4")), g.device_array("y", np.ones(70, "f4"))
    node = g.kernel(hg.Module(ADD)["add"], 3, 32, (x, y, 70))
    with g.compile(runtime=cpu, backend="serial") as exe:
        exe.run()
        benchmarks.cpu._Blocks(exe, node)()
        assert exe.read("y").tolist() == (1 + 2 * np.arange(70)).tolist()


def test_peers_find_the_array_that_an_argument_lies_in(cpu: Any) -> None:
    with decode(2, 32).compile(runtime=cpu) as exe:
        work = peers.Work.of(exe)
        for task in work.tasks:
            for value, parameter in zip(task.values, task.signature.parameters):
                if parameter.pointer:
                    base, offset = work.array_at(value)
                    assert 0 <= offset < work.arrays[base]
        assert {work.tasks[i].kernel for i in work.first_uses} == set(work.kernels)


def test_peers_take_kernels_only(cpu: Any) -> None:
    with overlap.batches(2, 1024).compile(runtime=cpu) as exe, pytest.raises(peers.Skipped, match="kernels only"):
        peers.Work.of(exe)


class _Failing(peers.Peer):
    """Fails at a place, while an object of "another library" is in use."""

    name = "failing"
    returned: ClassVar[list[str]] = []

    def __init__(self, work: peers.Work) -> None:
        held = _Held()
        self.held = held
        if work.lanes < 0:
            raise RuntimeError("half built\nand more lines")

    def run(self, repeats: int) -> measure.Times:
        raise RuntimeError("does not run")

    def close(self) -> None:
        self.returned.append("closed")


class _Held:
    def __del__(self) -> None:
        _Failing.returned.append("held")


@pytest.mark.parametrize(("lanes", "why", "left"), [(-1, "half built", ["held"]), (1, "does not run", ["closed", "held"])])
def test_a_peer_that_fails_keeps_nothing_of_its_library(cpu: Any, lanes: int, why: str, left: list[str]) -> None:
    _Failing.returned.clear()
    with pytest.raises(peers.Skipped) as caught:
        peers.open_peer(_Failing, peers.Work(cpu, "", (), lanes, {}))
    assert str(caught.value) == f"RuntimeError: {why}"
    assert _Failing.returned == left


def test_with_parameters_keeps_the_numbers(cpu: Any) -> None:
    with decode(2, 32).compile(runtime=cpu) as plain, launch.with_parameters(decode(2, 32)).compile(runtime=cpu) as changed:
        plain.run()
        changed.run()
        assert np.array_equal(plain.read("x"), changed.read("x"))
        changed.run(one=31)
        assert changed.stats.updates == 1


# -- overlap, lanes, advise, calibrate -----------------------------------------------------------------------------------


def test_overlap_measures_all_workloads_and_the_link(cpu: Any) -> None:
    result = overlap.run(cpu, 20, 32, 4096, 1024, 2, 1 << 16, 2)
    names = [row["what"] for row in result.rows]
    assert names[:3] == ["link, host to device", "link, device to host", "link, both at once"]
    for what in ("wave2d 32 x 32, 20 steps: explicit / the link's limit", "8 batches of 0 MB, 8 buffers: explicit / serial"):
        assert what in names
    assert all(row["value"] > 0 for row in result.rows if "left out" not in row["what"])


def test_link_counts_both_directions() -> None:
    link = overlap.Link(10.0, 20.0, 15.0)
    assert link.least_us(10_000, 0) == pytest.approx(1.0)
    assert link.least_us(10_000, 10_000) == pytest.approx(20 / 15)


@pytest.mark.parametrize("batch", [False, True])
def test_cholesky_factorises(cpu: Any, batch: bool) -> None:
    g = cholesky(5)
    with g.compile(runtime=cpu, batch=batch) as exe:
        given = exe.read("a").swapaxes(1, 2).reshape(160, 160)
        exe.run()
        found = np.tril(exe.read("a").swapaxes(1, 2).reshape(160, 160))
    assert np.allclose(found, np.linalg.cholesky(given.astype("f8")), atol=1e-4)


def test_yee_updates_each_component_by_the_curl_of_the_other_field(cpu: Any) -> None:
    g = yee(3, 8)
    assert [step.batch for step in g.plan(target="nvidia:sm_90").steps] == [n for n in range(6) for _ in range(3)]
    with g.compile(runtime=cpu, batch=True) as exe:
        fields = {name: exe.read(name).astype("f8") for name in g.arrays}
        exe.run()
        found = {name: exe.read(name) for name in g.arrays}
    for _ in range(3):
        for own, other, shift, sign in (("e", "h", 1, 1), ("h", "e", -1, -1)):
            for i in range(3):
                p, q = (i + 1) % 3, (i + 2) % 3
                a, b = fields[other + "xyz"[q]], fields[other + "xyz"[p]]
                curl = (a - np.roll(a, shift, p)) - (b - np.roll(b, shift, q))
                fields[own + "xyz"[i]] += sign * 0.5 * (curl if own == "e" else -curl)
    for name, values in fields.items():
        assert np.allclose(found[name], values, rtol=1e-4, atol=1e-4)


def test_lanes_compares_every_choice_with_the_declared_shape(cpu: Any) -> None:
    sheet = lanes.run(cpu, 8, 2, (None, 2, "auto"), shapes=False)
    passes = [row for row in sheet.rows if row["part"] == "passes"]
    assert [row["asked"] for row in passes] == ["100 launches", "repeat(100)"] * 4
    assert passes[1]["nodes"] == 100 * passes[0]["nodes"]
    works = {row["work"] for row in sheet.rows if row not in passes}
    assert len(works) == 8
    for work in works:
        rows = {row["asked"]: row for row in sheet.rows if row["work"] == work}
        assert {"as declared", "2", "auto"} <= rows.keys()
        assert rows["as declared"]["ratio"] == 1.0
        assert rows["2"]["lanes"] == (1 if "layers" in work else 2)  # layers of one kernel


def test_segments_are_compared_with_the_same_graphs_from_cpp(cpu: Any) -> None:
    sheet = segments.run(cpu, (1, 3), passes=5, repeats=2)
    rows = {(row["what"], row.get("segments"), row.get("kernels")): row for row in sheet.rows}
    for kernels in (1, 20):
        for count in (1, 3):
            for what in ("launch until done", "launch until it returns"):
                row = rows[what, count, kernels]
                assert has_times(row, "us")
                assert row.get("against") == "C++, one after another" or any("left out C++" in note for note in sheet.notes)
        assert ("each further segment, with an empty eager step before it", None, kernels) in rows
    for decide in ("device", "host"):
        assert has_times(rows[f"a pass of a loop of 5, by the {decide}", None, None], "us", "base_us")
    assert rows["100 kernels in 4 lanes, an eager step in one of them, until done", 3, None]["ratio"] > 0


@pytest.mark.parametrize(("count", "kernels"), [(1, 1), (3, 2)])
def test_segments_in_turn_are_as_many_as_asked_for(cpu: Any, count: int, kernels: int) -> None:
    with segments.in_turn(count, kernels).compile(runtime=cpu) as exe:
        assert len(exe.handles) == count
        assert len(exe.plan.steps) == count * kernels + count - 1


def test_segments_loop_counts_its_passes_down(cpu: Any) -> None:
    for every in (1, 6):
        with segments.counting(6, "host", every).compile(runtime=cpu) as exe:
            exe.run()
            assert exe.read("left").tolist() == [0]


def test_segments_without_a_device_say_what_is_left_out() -> None:
    sheet = segments.run(hg.open_runtime("recorder"), (1, 2), passes=2, repeats=1)
    assert any("left out C++" in note for note in sheet.notes)


def test_advise_says_when_a_graph_pays(cpu: Any) -> None:
    sheet = advise.run(chain(5), cpu, repeats=3)
    assert [row["backend"] for row in sheet.rows] == ["serial", "streams", "capture", "explicit"]
    assert sheet.notes[0].startswith(("A graph pays from", "A graph never pays"))


@pytest.mark.parametrize(
    ("setup", "each", "other_setup", "other_each", "launches"),
    [(10, 1, 0, 2, 11), (10, 1, 0, 100, 1), (5, 2, 5, 2, None), (0, 3, 100, 2, None), (0, 1, 100, 2, 1)],
)
def test_pays_from(setup: float, each: float, other_setup: float, other_each: float, launches: int) -> None:
    assert advise.pays_from(setup, each, other_setup, other_each) == launches


def test_advise_says_plainly_that_a_graph_never_pays() -> None:
    row = {"build_us": 1.0, "total_us": 1.0, "submit_us": 1.0}
    graph = {**row, "total_us": 5.0, "pays_from": "never", "pays_from_host": "never"}
    (line,) = advise.advice({"serial": row, "streams": row, "capture": graph, "explicit": graph})
    assert line.startswith("A graph never pays here")


def test_calibrated_costs_are_kept_for_the_device(cpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = calibrate.measure_costs(cpu, repeats=3)
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    assert calibrated(cpu.target).costs == cpu.target.costs
    path = store_costs(cpu.target, costs)
    assert calibrated(cpu.target).costs == costs
    assert [path] == list(path.parent.iterdir())


def test_costs_of_another_device_or_version_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    store_costs(Target.named("amd:gfx942@7.2"), CostModel(launch_us=77.0))
    assert calibrated(Target.named("amd:gfx942@7.2")).costs.launch_us == 77.0
    for name in ("amd:gfx942", "amd:gfx942@7.1", "amd:gfx90a@7.2"):
        assert calibrated(Target.named(name)) == Target.named(name)


@pytest.mark.parametrize("content", ["", "{}", '{"costs": 3}', '{"costs": {"launch_us": "much"}}', "\x00\xff"])
def test_costs_that_cannot_be_read_leave_the_defaults(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    target = Target.named("cpu")
    store_costs(target, CostModel()).write_text(content, encoding="latin-1")
    assert calibrated(target) == target


def test_negative_and_infinite_costs_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    target = Target.named("cpu")
    for value in (-1.0, math.inf, math.nan):
        store_costs(target, CostModel(node_us=value))
        assert calibrated(target) == target


def test_bench_commands_print_and_write(cpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    stored: list[Any] = []
    monkeypatch.setattr(calibrate, "store_costs", lambda *given: stored.append(given))
    page = tmp_path / "page.md"
    output = tmp_path / "launch.csv"
    options = ["--runtime", "cpu", "--markdown", str(page)]
    assert (
        main(["bench", "launch", *options, "--shape", "chain", "--size", "3", "--repeats", "2", "--no-peers", "-o", str(output)])
        == 0
    )
    assert (
        main(["bench", "advise", *options, "--quick", str(Path(__file__).parents[2] / "examples" / "03_overlap_pipeline.py")])
        == 0
    )
    assert main(["bench", "calibrate", *options, "--quick", "--no-store"]) == 0
    assert stored == []
    rows = list(csv.DictReader(io.StringIO(output.read_text())))
    assert [row["who"] for row in rows] == list(launch.BACKENDS)
    text = page.read_text()
    assert text.count("<!-- bench ") == text.count("<!-- end of bench ") == 3
    assert "bench launch" in capsys.readouterr().out


# -- files ---------------------------------------------------------------------------------------------------------------


def small(device: str, value: float) -> figures.Result:
    result = figures.Result("one", machine={"device": device, "cpu": "c"})
    result.add("what | ever", value, "us", 3.0)
    return result


def test_section_replaces_an_earlier_run_on_the_same_device_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Title\n\n## one\n\n<!-- bench one: A -->\nold\n<!-- end of bench one: A -->\n\n## After\n")
    measure.put_section(str(path), small("A", 1.0))
    measure.put_section(str(path), small("B", 2.0))
    measure.put_section(str(path), small("A", 5.0))
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("# Title\n\n## one\n\n<!-- bench one: A -->")
    assert text.endswith("\n\n## After\n")
    assert text.count("<!-- bench one: A -->") == text.count("<!-- bench one: B -->") == 1
    assert "| what \\| ever | 5 us | <= 3, missed |" in text
    assert "| what \\| ever | 2 us | <= 3 |" in text


def test_section_goes_into_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new.md"
    measure.put_section(str(path), small("A", 1.0))
    assert path.read_text().startswith("## one\n\n<!-- bench one: A -->")


def test_section_goes_below_the_heading_of_its_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Title\n\n## one\n\nWhat it is.\n\n## two\n\nAnother.\n")
    measure.put_section(str(path), small("A", 1.0))
    measure.put_section(str(path), small("B", 1.0))
    text = path.read_text()
    parts = [text.index(part) for part in ("What it is.", "<!-- bench one: A", "<!-- bench one: B", "\n\n## two\n\nAnother.\n")]
    assert parts == sorted(parts)
    assert "\n\n\n" not in text


def test_sheet_writes_what_was_measured_and_leaves_out_what_was_not() -> None:
    columns = (measure.Column("who", "who"), measure.Column("us", "us"), measure.Column("none", "none"))
    sheet = measure.Sheet("s", columns, [{"who": "a", "us": 1.5}, {"who": "b", "us": 2.0, "more": 3}], machine={"cpu": "c"})
    assert "none" not in sheet.to_markdown()
    assert list(csv.DictReader(io.StringIO(sheet.to_csv()))) == [
        {"who": "a", "us": "1.5", "more": ""},
        {"who": "b", "us": "2.0", "more": "3"},
    ]
    assert json.loads(sheet.to_json())["rows"][1] == {"who": "b", "us": 2.0, "more": 3}


# -- lanes="measure" -----------------------------------------------------------------------------------------------------


def independent(external: Any, called: list[int]) -> hg.Graph:
    g = hg.Graph("independent")
    add = hg.Module(ADD)["add"]
    x = g.device_array("x", np.arange(64, dtype="float32"))
    total = g.external_array("total", external)
    g.external_array("first half of total", external[:32])
    for i in range(40):
        y = g.device_array(f"y{i}", np.full(64, i, dtype="float32"))
        g.kernel(add, 1, 64, (x, y, 64))
    g.kernel(add, 1, 64, (x, total, 64))
    g.host(lambda values: called.append(1), args=(total,))
    return g


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_measured_lanes_leave_arrays_as_they_were_and_call_no_callback(cpu: Any, backend: Any) -> None:
    called: list[int] = []
    external = np.ones(64, "float32")
    with independent(external, called).compile(runtime=cpu, backend=backend, lanes="measure") as exe:
        assert 'lanes="measure" tried' in exe.plan.explain()
        assert called == []
        assert np.all(external == 1)
        assert np.array_equal(exe.read("y3"), np.full(64, 3, "float32"))
        exe.run()
        assert called == [1]
        assert np.array_equal(external, 1 + np.arange(64, dtype="float32"))
        assert all(np.array_equal(exe.read(f"y{i}"), i + np.arange(64, dtype="float32")) for i in range(40))


def test_measured_lanes_say_when_there_is_nothing_to_choose(cpu: Any) -> None:
    with chain(4).compile(runtime=cpu, lanes="measure") as exe:
        assert "nothing to choose from" in exe.plan.explain()


def test_measured_lanes_restore_external_memory_after_a_failed_trial(cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    external = np.ones(64, "float32")
    g = independent(external, [])
    runs = []

    def run(self: Any, **params: Any) -> None:
        self.launch(**params)
        self.synchronize()
        runs.append(1)
        if len(runs) == 2:
            raise hg.HipGraphError("a trial failed")

    monkeypatch.setattr(hg.Executable, "run", run)
    monkeypatch.setattr(cpu, "launcher", lambda slow: None)  # compiled code would take the method's place
    with pytest.raises(hg.HipGraphError, match="a trial failed"):
        g.compile(runtime=cpu, lanes="measure")
    assert np.all(external == 1)


def captured(g: hg.Graph, x: Any) -> None:
    g.captured(lambda stream: None, args=(), reads=[x])


def waiting(g: hg.Graph, x: Any) -> None:
    g.memory_ops([hg.wait_value(x[0], 0)])


def unbound(g: hg.Graph, x: Any) -> None:
    g.memset(x, g.param("value", "int32"))


@pytest.mark.parametrize(
    ("declare", "reason"), [(captured, "outside of the graph's arrays"), (waiting, "waits for a value"), (unbound, "no default")]
)
def test_lanes_that_cannot_be_measured_are_auto_with_the_reason(declare: Any, reason: str, caplog: Any) -> None:
    g = hg.Graph("untriable")
    declare(g, g.device_array("x", shape=8, dtype="int32"))
    options = hg.PlanOptions(lanes="measure", pack=False)
    chosen, why = measuring.with_fastest_lanes(g.workflow(), hg.open_runtime("recorder"), "explicit", options)
    assert chosen == hg.PlanOptions(pack=False)
    assert reason in why
    assert reason in caplog.text


@pytest.mark.parametrize("options", [{"programmatic": False}, {"pack": False}, {"join": False}])
def test_lanes_are_measured_with_all_options_of_the_plan(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[hg.PlanOptions] = []

    def trial_us(*given: Any) -> float:
        tried.append(given[3])
        return 1.0

    monkeypatch.setattr(measuring, "_trial_us", trial_us)
    g = hg.Graph("wide")
    for k in range(9):
        g.memset(g.device_array(f"x{k}", shape=8, dtype="int32"))
    with g.compile("recorder", lanes="measure", plan=hg.PlanOptions(**options)) as exe:
        assert "tried" in exe.plan.explain()
    assert len(tried) > 1
    assert {dataclasses.replace(each, lanes="auto") for each in tried} == {hg.PlanOptions(**options)}


def test_checks_are_written_as_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = checks.Result(3, {"edge removed": 5}, {"edge removed": 4}, {"edge removed": 3}, {"edge removed": 4})
    monkeypatch.setattr(checks, "run", lambda *_, **__: result)
    table, data = tmp_path / "checks.md", tmp_path / "checks.json"
    assert main(["bench", "checks", "--markdown", str(table), "-o", str(data)]) == 0
    assert "| edge removed | 5 | 4 | 3 | 4 | 0 |" in table.read_text()
    assert "3 correct workflows, 0 false alarms" in table.read_text()
    assert json.loads(data.read_text())["rows"][1] == {
        "fault": "all", "group": "all", "made": 5, "harmful": 4, "by_check": 3, "by_verify": 4, "missed": 0
    }  # fmt: skip
