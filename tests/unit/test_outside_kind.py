"""A kind of node that another package adds (tests/copies.py) gets what the package's own kinds get; it runs in conformance."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copies import CopiesNode
from specimens import EXTENSIONS

import hipgraphdsl as hg
from hipgraphdsl.export import render
from hipgraphdsl.nodes import KINDS, Node, add_kind
from hipgraphdsl.nodes.workflow import Workflow

N = 8
Pairs = Sequence[tuple[Any, Any]]


def by_memcpy(g: hg.Graph, name: str, pairs: Pairs) -> None:
    for number, (dst, src) in enumerate(pairs):
        g.memcpy(dst, src, name=f"{name}_{number}")


def by_copies(g: hg.Graph, name: str, pairs: Pairs) -> None:
    g.add(CopiesNode(name=name, dst=tuple(dst for dst, _ in pairs), src=tuple(src for _, src in pairs)))


Copy = Callable[[hg.Graph, str, Pairs], None]


def onto_itself(g: hg.Graph, copy: Copy) -> None:
    x = g.device_array("x", np.zeros(N, "f4"))
    y = g.device_array("y", np.zeros(N, "f4"))
    copy(g, "copy", [(y, x), (x[2:6], x[:4])])


def pageable(g: hg.Graph, copy: Copy) -> None:
    h = g.host_array("h", np.zeros(N, "f4"), pinned=False)
    copy(g, "copy", [(g.device_array("x", np.zeros(N, "f4"))[:], h)])


def inside_pinned(g: hg.Graph, copy: Copy) -> None:
    h = g.host_array("h", np.zeros(N, "f4"))
    copy(g, "copy", [(g.device_array("x", shape=N, dtype="f4")[1:], h[1:])])


def on_host(g: hg.Graph, copy: Copy) -> None:
    a, b = g.host_array("a", np.zeros(N, "f4")), g.host_array("b", np.zeros(N, "f4"))
    copy(g, "copy", [(a, b)])


def host_after(g: hg.Graph, copy: Copy) -> None:
    h = g.host_array("h", np.zeros(N, "f4"))
    copy(g, "copy", [(h, g.device_array("x", np.zeros(N, "f4")))])
    g.host(print, args=(h,), name="print")


def in_body(g: hg.Graph, copy: Copy) -> None:
    body = hg.Graph("body")
    h = body.host_array("h", np.zeros(N, "f4"), pinned=False)
    copy(body, "copy", [(body.device_array("x", np.zeros(N, "f4")), h)])
    g.conditional("if", g.device_array("c", np.ones(1, "i4")), [body], decide="device", name="choose")


def unwritten(g: hg.Graph, copy: Copy) -> None:
    t = g.alloc("t", N, "f4")
    copy(g, "copy", [(g.device_array("x", shape=N, dtype="f4"), t)])
    g.free(t)


@pytest.mark.parametrize(
    ("declare", "target", "code"),
    [
        (onto_itself, None, "HG405"),
        (pageable, None, "HG601"),
        (in_body, "nvidia:sm_90", "HG508"),
        (inside_pinned, "amd:gfx90a@5.5", "HG807"),
        (on_host, "amd:gfx942", "HG808"),
        (host_after, "amd:gfx1201@7.2", "HG808"),
        (unwritten, None, "HG401"),
    ],
)
def test_check_finds_in_a_node_of_several_copies_what_it_finds_in_each(declare: Any, target: Any, code: str) -> None:
    said = []
    for copy in (by_memcpy, by_copies):
        g = hg.Graph("g")
        declare(g, copy)
        report = g.check(target)
        said.append(sorted({(d.code, d.severity) for d in report.diagnostics}))
        assert any(d.code == code for d in report.diagnostics), report
    assert said[0] == said[1]


def across(copy: Copy, devices: int = 2) -> hg.Graph:
    """Copies to the same rank, to the other one and back, of which the last reads what the first has written."""
    g = hg.Graph("across")
    x = g.device_array("x", np.arange(N, dtype="i4"), device=0)
    y = g.device_array("y", np.arange(N, dtype="i4") + 10, device=devices - 1)
    z, out = g.device_array("z", shape=N, dtype="int32", device=0), g.host_array("out", shape=N, dtype="int32")
    copy(g, "hand", [(y[:4], x[:4]), (z, x), (x[4:], y[:4])])
    copy(g, "back", [(out[:4], z[:4]), (out[4:], x[4:])])
    return g


@pytest.mark.needs("ranks")
def test_partition_over_ranks_gives_the_values_of_single_copies() -> None:
    from thread_ranks import on_ranks

    def run(copy: Copy, ranks: hg.Ranks) -> Any:
        with across(copy).compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.read("out").tolist() if ranks.rank == 0 else None

    for copy in (by_memcpy, by_copies):
        assert on_ranks(2, partial(run, copy)) == [[0, 1, 2, 3, 0, 1, 2, 3], None]


@pytest.mark.needs("timeline")
def test_simulate_knows_the_bytes_and_the_device_of_its_copies() -> None:
    made = across(by_copies).simulate({"copies": 2.0})
    assert {span.name: (span.nbytes, span.stop - span.start) for span in made.spans} == {"hand": (64, 2.0), "back": (32, 2.0)}


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_exports_show_it(extension: str) -> None:
    text = render(across(by_copies, devices=1).workflow(), extension)
    assert "hand" in text
    assert "back" in text


@pytest.mark.needs("formats")
def test_file_and_python_program_give_the_same_workflow(tmp_path: Path) -> None:
    workflow = across(by_copies).workflow()
    text = workflow.model_dump_json()
    assert Workflow.model_validate_json(text).model_dump_json() == text
    schema = Workflow.model_json_schema()
    pytest.importorskip("jsonschema").Draft202012Validator(schema).validate(json.loads(text))
    (tmp_path / "program.py").write_text(str(render(workflow, ".py")), encoding="utf-8")
    program = "import program, sys; sys.stdout.write(program.build().workflow().model_dump_json())"
    path = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {program}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == text


def test_file_of_a_kind_that_nobody_has_added_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = across(by_copies).workflow().model_dump_json()
    monkeypatch.delitem(KINDS, "copies")
    with pytest.raises(hg.DeclarationError, match="copies"):
        Workflow.model_validate_json(text)
    with pytest.raises(hg.DeclarationError, match=r"known by hipgraphdsl\.nodes\.add_kind"):
        across(by_copies)


def test_add_kind_refuses_a_kind_that_another_class_has() -> None:
    with pytest.raises(hg.DeclarationError, match="class Other is of kind 'memcpy', as MemcpyNode is"):

        @add_kind
        class Other(Node):
            kind = "memcpy"
            work = reach = placed = ""
            in_body = True

    assert KINDS["memcpy"] is hg.MemcpyNode
    assert add_kind(CopiesNode) is CopiesNode


def test_node_that_no_backend_can_lower_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(CopiesNode, "operation")
    g = hg.Graph("g")
    by_copies(g, "hand", [(g.device_array("x", shape=N, dtype="f4"), g.host_array("h", shape=N, dtype="f4"))])
    with pytest.raises(hg.DeclarationError, match="node 'hand': no backend knows nodes of kind 'copies'"):
        g.compile("recorder")
