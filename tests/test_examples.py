"""Each example runs on the CPU, finds its own numbers right, and can be imported without running."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from places import HERE, runtime_or_skip

import hipgraphdsl as hg

EXAMPLES = Path(__file__).parent.parent / "examples"

# Arguments that make an example short; what it shows and checks stays the same.
SHORT = {
    "01_hip_graph_tutorial": ["--size", "65536"],
    "02_concurrent_streams": ["--size", "4096", "--repeat", "1"],
    "03_overlap_pipeline": ["--batch-size", "1024"],
    "04_wave2d": ["--side", "96", "--steps", "160"],
    "05_host_work_beside": ["--size", "4096", "--repeat", "1"],
    "06_wave2d_devices": ["--size", "64", "--steps", "40", "--devices", "1"],
    "07_jacobi": ["--side", "24", "--check-every", "5"],
    "08_decoder_step": ["--tokens", "24"],
    "09_conjugate_gradient": ["--size", "24", "--iterations", "16", "--devices", "1"],
    "10_decoder_family": [],
}


# What build() takes to make a workflow small, and to need no other package.
SMALL: dict[str, dict[str, Any]] = {
    "04_wave2d": {"steps": 24, "side": 64},
    "06_wave2d_devices": {"steps": 8, "size": 64},
    "07_jacobi": {"side": 16},
    "08_decoder_step": {"tokens": 8, "softmax": "numpy"},
    "09_conjugate_gradient": {"size": 12, "iterations": 2},
    "10_decoder_family": {"batch": 4},
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run_here() -> None:
    numbered = {path.stem for path in EXAMPLES.glob("[0-9]*.py")}
    assert set(SHORT) <= numbered


@pytest.mark.parametrize("name", SHORT)
def test_example_finds_its_own_numbers_right(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # for what it writes when it is not told where
    if name == "04_wave2d":
        pytest.importorskip("matplotlib", reason="example 04 draws with matplotlib: the extra 'viz' is not installed")
    assert load(name).main(["--runtime", "cpu", *SHORT[name]]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("runtime", ["amd", "nvidia"])
@pytest.mark.parametrize("name", SHORT)
def test_example_finds_its_own_numbers_right_on_a_gpu(
    name: str, runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime_or_skip(runtime)
    monkeypatch.chdir(tmp_path)
    if name == "04_wave2d":
        pytest.importorskip("matplotlib", reason="example 04 draws with matplotlib: the extra 'viz' is not installed")
    assert load(name).main(["--runtime", runtime, *SHORT[name]]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", SHORT)
def test_workflow_of_example_passes_check(name: str) -> None:
    report = load(name).build().check()
    assert report.errors == ()
    assert report.warnings == ()


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("name", SHORT)
def test_workflow_of_example_can_be_lowered_without_a_device(name: str, backend: str) -> None:
    with load(name).build(**SMALL.get(name, {})).compile(runtime="recorder", backend=backend) as exe:
        exe.run()
        assert exe.stats.launches == 1


def test_tutorial_as_written_races_where_its_dependencies_are_cut_short() -> None:
    report = load("01_hip_graph_tutorial").build_as_written().check()
    races = [set(d.nodes) for d in report.errors]
    assert {"set_vector", "copy_in"} in races
    assert {"kernelB", "kernelC"} in races


def test_tutorial_can_be_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "tutorial.svg"
    assert load("01_hip_graph_tutorial").main(["--runtime", "cpu", "--size", "1024", "--picture", str(picture)]) == 0
    assert picture.stat().st_size > 0


def test_pipeline_prints_the_timeline_of_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    load("03_overlap_pipeline").main(["--runtime", "cpu", "--batch-size", "256"])
    printed = capsys.readouterr().out
    assert "=== Overlapping Compute & Transfer Pipeline ===" in printed
    assert "Batches: 4, Each stage: 1 time unit\n" in printed
    assert "[H2D0][K0][D2H0][H2D1][K1][D2H1][H2D2][K2][D2H2][H2D3][K3][D2H3]\nTotal: 12 time units" in printed
    assert "t=5:" in printed
    assert "Total: 6 time units\nSpeedup: 2.00x" in printed


def test_concurrent_streams_formula_is_the_source_s() -> None:
    assert load("02_concurrent_streams").expected(50) == (50.0, 1427.0)


def test_wave_constants_are_those_that_the_source_prints() -> None:
    wave = load("04_wave2d")
    assert f"{wave.DT:.8f}" == "0.00116618"
    assert f"{wave.FREQUENCY:.1f}" == "34.3"
    assert f"{wave.DT**2:.5e}" == "1.35998e-06"


def test_wave_copies_a_field_while_others_are_computed() -> None:
    g: hg.Graph = load("04_wave2d").build(steps=20, side=64)
    plan = g.plan(target="cpu")
    step = plan.steps[plan.index["step_6"]]
    # It waits for the step before it, and for the copy of the field that it overwrites, U[(6 + 2) % 5].
    assert {plan.steps[d].name for d in step.deps} == {"step_5", "out_3"}


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
def test_five_steps_launched_again_and_again_are_the_graph_of_all_steps(runtime: str, backend: Any) -> None:
    wave = load("04_wave2d")
    steps, side = 133, 48  # the last launch computes steps that nobody asked for
    with wave.build(steps, side).compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        whole = exe.read("out")
    again, _ = wave.relaunch(steps, side, runtime, backend)
    assert np.abs(whole[-1]).max() > 0
    assert again.tobytes() == whole.tobytes()


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("decide", ["auto", "host"])
@pytest.mark.parametrize("runtime", HERE)
def test_jacobi_sweeps_as_often_as_numpy_whoever_decides(runtime: str, decide: Any, backend: Any) -> None:
    jacobi = load("07_jacobi")
    for check_every in (1, 7):
        cells, passes = jacobi.reference(16, 0.01, check_every)
        assert passes % check_every == 0
        with jacobi.build(16, decide, check_every).compile(runtime=runtime, backend=backend) as exe:
            exe.run(tolerance=0.01)
            assert exe.read("passes").tolist() == [passes]
            assert exe.read("result").tobytes() == cells.tobytes()


def test_jacobi_draws_the_plate(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plate is drawn with matplotlib: the extra 'viz' is not installed")
    picture = tmp_path / "plate.png"
    assert load("07_jacobi").main(["--runtime", "cpu", "--side", "12", "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_decoder_computes_its_softmax_by_torch(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    assert load("08_decoder_step").main(["--runtime", "cpu", "--tokens", "12", "--softmax", "torch"]) == 0
    assert "The softmax is torch's." in capsys.readouterr().out


def test_decoder_says_that_torch_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    decoder = load("08_decoder_step")
    assert decoder.main(["--runtime", "cpu", "--tokens", "4", "--softmax", "torch"]) == 0
    assert capsys.readouterr().out == "Skipped: PyTorch is not installed.\n"
    assert decoder.main(["--runtime", "cpu", "--tokens", "4"]) == 0
    assert "The softmax is numpy's, because PyTorch is not installed." in capsys.readouterr().out


def test_decoder_computes_a_value_beside_the_softmax() -> None:
    plan = load("08_decoder_step").build().plan(target="cpu")
    assert plan.cut is not None
    alone = [step.origin for step in plan.cut.plan.steps if "value_of" in step.origin]
    assert alone == [("value_of",)]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gif", ".html"])
def test_wave_can_be_animated(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="example 04 draws with matplotlib: the extra 'viz' is not installed")
    movie = tmp_path / f"wave{suffix}"
    status = load("04_wave2d").main(
        [
            "--runtime",
            "cpu",
            "--side",
            "64",
            "--steps",
            "60",
            "--picture",
            str(tmp_path / "w.png"),
            "--animate",
            str(movie),
        ]
    )
    assert status == 0
    assert movie.stat().st_size > 1000
