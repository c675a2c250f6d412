"""What users see of the library before and after a graph runs: names, numbers, files, hints."""

from __future__ import annotations

import collections.abc
import copy
import inspect
import pickle
import re
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specimens import everything

import hipgraphdsl as hg
from hipgraphdsl import cli, runtimes
from hipgraphdsl.declaring import Declaring
from hipgraphdsl.executable.stats import Stats
from hipgraphdsl.export import FORMATS


def graph() -> hg.Graph:
    g = hg.Graph("wave")
    g.memcpy(g.device_array("x", shape=8, dtype="float32"), g.host_array("hx", np.ones(8, "float32")))
    return g


def test_completion_offers_public_names_only() -> None:
    assert sorted(dir(hg)) == sorted(hg.__all__)


KINDS = {node.kind: node for node in everything().workflow().nodes}


@pytest.mark.parametrize("node", KINDS.values(), ids=list(KINDS))
def test_completion_of_a_node_offers_its_fields_and_what_users_need(node: hg.Node) -> None:
    offered = [name for name in dir(node) if not name.startswith("_")]
    assert len(offered) == len(set(offered))
    assert {*type(node).model_fields, "kind", "reads", "writes"} < set(offered)
    assert not [name for name in offered if not hasattr(node, name)]
    assert len(offered) <= 25


def test_signatures_of_methods_that_declare_name_public_types_only() -> None:
    known = {*hg.__all__, "ArrayLike", "DTypeLike", "None", "MemoryOp"} | {*vars(typing), *vars(collections.abc)}
    private = {}
    for name, method in inspect.getmembers(hg.Graph, inspect.isfunction):
        if not name.startswith("_") and name in vars(Declaring):
            shown = [str(parameter.annotation) for parameter in inspect.signature(method).parameters.values()]
            private[name] = {word for text in shown for word in re.findall(r"\b[A-Z]\w+", text)} - known
    assert {name: words for name, words in private.items() if words} == {}
    assert len(private) > 20


def test_stats_print_rounded_numbers() -> None:
    assert "plan_us=1166.3" in repr(Stats(plan_us=1166.2709998745413))
    assert Stats(plan_us=1.5) == Stats(plan_us=1.5)


def test_exports_docstring_lists_every_format() -> None:
    said = inspect.getdoc(hg.Graph.export) or ""
    assert not [extension for extension in FORMATS if f"``{extension}``" not in said]


@pytest.mark.needs("timeline")
def test_a_drawing_is_no_wider_than_the_cell_that_it_stands_in(tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    pytest.importorskip("matplotlib")
    graph().export(tmp_path / "g.svg")
    graph().simulate({"H2D": 1.0}).export(tmp_path / "t.svg")
    for name in ("g", "t"):
        assert 'style="max-width:100%;height:auto"' in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")[:300]


def test_the_command_line_says_what_it_has_written(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "wave.json").write_text(graph().to_json())
    assert cli.main(["show", str(tmp_path / "wave.json"), "-o", str(tmp_path / "wave.dot")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"wrote {tmp_path / 'wave.dot'} (" in said.err


@pytest.mark.needs("cpu")
def test_a_number_of_cpu_devices_that_is_set_too_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = hg.open_runtime("cpu")
    count = runtime.get_device_count()
    g = hg.Graph("far")
    g.memset(g.device_array("x", shape=8, dtype="float32", device=count), 0)
    monkeypatch.setenv("HIPGRAPHDSL_CPU_DEVICES", str(count + 1))
    late = f"HIPGRAPHDSL_CPU_DEVICES says how many; it is '{count + 1}' now, and was read when the runtime was opened"
    with pytest.raises(hg.DeclarationError, match=f"uses device {count}; runtime 'cpu' has {count} device.*{late}"):
        g.compile(runtime)
    monkeypatch.delitem(runtimes._opened, ("cpu", count), raising=False)  # of a test with more devices
    with pytest.raises(hg.RuntimeUnavailable, match=late):
        hg.open_runtime("cpu", count)
    monkeypatch.setenv("HIPGRAPHDSL_CPU_DEVICES", str(count))
    with pytest.raises(hg.DeclarationError) as caught:
        g.compile(runtime)
    assert "now" not in str(caught.value)


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("backend", ["explicit", "capture", "serial"])
@pytest.mark.parametrize("inside", ["nothing", "a conditional"])
def test_a_failed_assertion_on_the_cpu_names_its_node(backend: Any, inside: str) -> None:
    module = hg.Module(
        'extern "C" __global__ void fine(int* x) { x[0] = 1; }\nextern "C" __global__ void strict(int* x) { assert(x[0] == 2); }'
    )
    g = hg.Graph("g")
    x = g.device_array("x", [1], dtype="int32")
    g.kernel(module["fine"], 1, 1, (x,))
    if inside == "nothing":
        g.kernel(module["strict"], 1, 1, (x,), name="audit")
    else:
        body = hg.Graph("body")
        body.kernel(module["strict"], 1, 1, (body.device_array("y", [1], dtype="int32"),))
        g.conditional("if", x, body, name="audit")
    g.kernel(module["fine"], 1, 1, (x,))
    with g.compile("cpu", backend) as exe:
        for _ in range(2):
            with pytest.raises(hg.HipError) as caught:
                exe.run()
            assert caught.value.code == 710
            assert caught.value.node == ("audit" if inside == "nothing" else "audit/0/strict")


@pytest.mark.parametrize(
    "error",
    [
        hg.HipError("hipMalloc", 2, "hipErrorOutOfMemory", "out of memory", node="x"),
        hg.RuntimeUnavailable("no library", runtime="amd", missing="library"),
        hg.DeclarationError("wrong", node="x"),
        hg.WaitTimeout("late", ("x",)),
        hg.CallbackError.of("x", FileNotFoundError(2, "there is none")),
    ],
)
@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_pass_between_processes_with_all_that_they_say(error: hg.HipGraphError, copied: Any) -> None:
    back = copied(error)
    assert isinstance(back, hg.HipGraphError)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_a_check_error_passes_between_processes_with_its_report() -> None:
    g = graph()
    g.order("memcpy_x", g.empty(name="end"))
    g.order("end", "memcpy_x")
    with pytest.raises(hg.CheckError) as caught:
        g.compile("recorder")
    assert pickle.loads(pickle.dumps(caught.value)).report.errors == caught.value.report.errors
