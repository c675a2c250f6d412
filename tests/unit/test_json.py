"""The file form of a workflow: exact round trips, one-line diffs, and hostile text."""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import re
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import specimens
from hypothesis import given
from hypothesis import strategies as st
from specimens import OWN_KINDS, chain, everything, inner, module, pipeline, report

from hipgraphdsl.arrays import HostArray, as_dtype
from hipgraphdsl.document import text as document_text
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.nodes import KINDS, HostNode, UnboundCallback
from hipgraphdsl.nodes.host import callback_path
from hipgraphdsl.nodes.workflow import MAX_DEPTH, Workflow


def text_of(graph: Graph) -> str:
    return graph.workflow().model_dump_json()


def refused(text: str, **supplies: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        Graph.from_json(text, **supplies)
    return str(caught.value)


def changed(change: Callable[[Any], None], graph: Graph | None = None) -> str:
    """Return a file with one thing changed."""
    data = json.loads(text_of(graph or everything()))
    change(data)
    return json.dumps(data)


def node(data: Any, name: str) -> Any:
    return next(n for n in data["nodes"] if n["name"] == name)


def array(data: Any, name: str) -> Any:
    return next(a for a in data["arrays"] if a["name"] == name)


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_specimen_holds_every_kind() -> None:
    assert {n.kind for n in everything().nodes} == set(OWN_KINDS)


def test_to_json_and_from_json_are_exact() -> None:
    text = text_of(everything())
    assert text_of(Graph.from_json(text)) == text


def test_round_trip_keeps_edges_and_their_reasons() -> None:
    old = everything().workflow()
    new = Graph.from_json(old.model_dump_json()).workflow()
    assert new.predecessors == old.predecessors
    assert new.reasons == old.reasons


def test_round_trip_keeps_models() -> None:
    old, new = everything(), Graph.from_json(text_of(everything()))
    for a, b in zip(old.nodes, new.nodes, strict=True):
        assert type(a) is type(b)
        assert a.describe() == b.describe()
        assert [(x.view.name, x.mode) for x in a.accesses] == [(x.view.name, x.mode) for x in b.accesses]


def test_initial_values_come_back_to_the_bit() -> None:
    old, new = everything(), Graph.from_json(text_of(everything()))
    for name in ("hx", "page", "odd", "z", "flags", "records", "half"):
        was, now = old.arrays[name].initial, new.arrays[name].initial  # type: ignore[attr-defined]  # they have one
        assert was.tobytes() == now.tobytes()
        assert was.dtype == now.dtype
        assert not now.flags.writeable


def test_declared_edges_only_comes_back() -> None:
    g = Graph("plain", infer=False)
    x = g.device_array("x", shape=4, dtype="float32")
    g.memset(x, 0, name="a")
    g.memset(x, 1, name="b", after=["a"])
    g.memset(x, 2, name="c")
    g.order("a", "c")
    back = Graph.from_json(text_of(g))
    assert back.infer is False
    assert list(back.dag.edges) == [("a", "b"), ("a", "c")]


def test_edge_put_into_the_dag_by_hand_is_kept() -> None:
    g = pipeline(2)
    g.dag.add_edge("D2H0", "H2D1", reason="mine")
    g.order("H2D0", "H2D1")  # also makes a new snapshot
    assert Graph.from_json(text_of(g)).dag.has_edge("D2H0", "H2D1")


def test_cycle_is_stored_and_found_again() -> None:
    g = pipeline(1)
    g.order("D2H0", "H2D0")
    assert not Graph.from_json(text_of(g)).check().ok


def test_shared_child_is_stored_once_and_shared_again() -> None:
    back = Graph.from_json(text_of(everything()))
    first, second = back["first"], back["second"]
    assert first.workflow is second.workflow  # type: ignore[attr-defined]  # child nodes


def test_children_of_children_come_back() -> None:
    g: Graph = inner()
    for level in range(MAX_DEPTH):
        outer = Graph(f"level{level}")
        outer.child(g)
        g = outer
    text = text_of(g)
    assert text_of(Graph.from_json(text)) == text


@pytest.mark.needs("pages")
@pytest.mark.parametrize("kind", ["child", "conditional", "both"])
def test_children_are_nested_so_deep_that_all_passes_take_them(kind: str, tmp_path: Path) -> None:
    g = Graph("level0")
    g.memset(g.device_array("x", shape=4, dtype="int32"), 3)
    for level in range(MAX_DEPTH):
        outer = Graph(f"level{level + 1}")
        bind = {"x": outer.device_array("x", shape=4, dtype="int32")}
        if kind == "child" or (kind == "both" and level % 2):
            outer.child(g, bind=bind, name="c")
        else:
            outer.conditional("if", outer.host_array("f", np.ones(1, "int32")), g, bind=bind, name="c")
        g = outer
    assert g.workflow().depth == MAX_DEPTH
    again = Graph.from_json(text_of(g))
    assert text_of(again) == text_of(g)
    assert not again.check("nvidia:sm_90").errors
    for name in ("g.dot", "g.mmd", "g.html", "g.py", "g.yaml"):
        g.export(tmp_path / name)
    for backend in ("explicit", "capture", "streams", "serial"):
        with again.compile("cpu", backend) as exe:
            exe.run()
            assert exe.read("x").tolist() == [3] * 4
            exe.update(g)
    outer = Graph("outer")
    flag = outer.host_array("f", np.ones(1, "int32"))
    for add in (outer.child, functools.partial(outer.conditional, "if", flag)):
        with pytest.raises(DeclarationError, match=f"'c': child graphs and bodies are nested at most {MAX_DEPTH} deep") as caught:
            add(g, name="c")
        assert caught.value.node == "c"
    document = json.loads(text_of(g))
    kept = {key: document.pop(key) for key in ("arrays", "parameters", "nodes", "order")}
    document["workflows"] = {**document["workflows"], "last": {"infer": True, **kept}}
    document["nodes"] = [{"name": "deeper", "kind": "child", "workflow": "last"}]
    with pytest.raises(DeclarationError, match="nested at most"):
        Graph.from_json(json.dumps(document))


def test_modules_of_one_name_are_told_apart() -> None:
    g = Graph("g")
    x = g.device_array("x", shape=4, dtype="float32")
    for body in ("x[0] = 1;", "x[0] = 2;"):
        g.kernel(Module(f"__global__ void k(float* x) {{ {body} }}", name="a:b")["k"], 1, 1, args=(x,))
    text = text_of(g)
    assert text_of(Graph.from_json(text)) == text
    modules = [m.source for m in Graph.from_json(text).workflow().modules]
    assert len(set(modules)) == 2


def test_names_as_long_as_can_be_are_told_apart() -> None:
    g = Graph("g")
    x = g.device_array("x", shape=4, dtype="float32")
    for n in range(2):
        child = Graph("c" * 200)
        child.empty(name=f"e{n}")
        g.child(child, name=f"child_{n}")
        source = f'extern "C" __global__ void f{n}(float* x) {{}}'
        g.kernel(Module(source, name="m" * 1000)[f"f{n}"], 1, 1, (x,))
    loaded = Graph.from_json(text_of(g))
    assert text_of(loaded) == text_of(g)
    assert [module.name for module in loaded.workflow().modules] == ["m" * 1000] * 2


def test_code_object_is_stored_by_path_and_hash_and_not_read_on_loading(tmp_path: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(b"code")
    g = Graph("g")
    x = g.device_array("x", shape=4, dtype="float32")
    g.kernel(Module.from_file(path, {"k": "float*, int"})["k"], 1, 1, args=(x, 3))
    text = text_of(g)
    path.unlink()
    assert text_of(Graph.from_json(text)) == text


def test_bfloat16_values_come_back() -> None:
    pytest.importorskip("ml_dtypes")
    g = Graph("g")
    g.device_array("b", [0.5, -1.5], dtype="bfloat16")
    back = Graph.from_json(text_of(g))
    assert np.asarray(back.arrays["b"].initial, "f4").tolist() == [0.5, -1.5]  # type: ignore[attr-defined]  # it has one


@pytest.mark.parametrize("value", [np.uint64(2**64 - 1), np.int8(-1), np.bool_(True), np.float16(0.1), np.complex64(1 - 0j)])
def test_numpy_scalars_come_back_as_they_were(value: Any) -> None:
    g = Graph("g")
    g.host(report, (value,))
    (back,) = Graph.from_json(text_of(g)).nodes[0].args  # type: ignore[attr-defined]  # a host node has them
    assert (type(back), back.tobytes()) == (type(value), value.tobytes())


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is double here")
@pytest.mark.parametrize("value", [np.longdouble(1), np.ones(2, np.clongdouble)])
def test_numbers_of_more_than_64_bits_have_no_form_in_a_file(value: Any) -> None:
    g = Graph("g")
    g.host(report, (value,), name="n")
    with pytest.raises(DeclarationError, match=r"cannot be stored in a file: .*(longdouble|float128|complex256)"):
        text_of(g)


def test_unpaired_surrogate_in_an_argument_survives() -> None:
    g = Graph("g")
    g.host(report, args=("lone \udc80", "ü"))
    text = text_of(g)
    text.encode()
    assert Graph.from_json(text)["report"].args == ("lone \udc80", "ü")  # type: ignore[attr-defined]  # a host node


# -- how it reads ------------------------------------------------------------------------------------------------------


def test_to_json_begins_with_the_version() -> None:
    assert text_of(pipeline()).splitlines()[1] == ' "hipgraphdsl": 1,'


def test_changed_number_is_a_one_line_diff() -> None:
    old, new = pipeline(8), Graph("pipeline")
    kernels = module()
    source, result = (new.host_array(name, shape=(8, 64), dtype="float32") for name in ("source", "result"))
    work = new.device_array("work", shape=(8, 64), dtype="float32")
    for i in range(8):
        new.memcpy(work[i], source[i], name=f"H2D{i}")
        new.kernel(kernels["scale"], 1, 64, args=(work[i], 3.0 if i == 5 else 2.0, 64), name=f"K{i}")
        new.memcpy(result[i], work[i], name=f"D2H{i}")
    pairs = zip(text_of(old).splitlines(), text_of(new).splitlines(), strict=True)
    assert [a for a, b in pairs if a != b] == [
        f'  {{"name": "K5", "kind": "kernel", "kernel": "{kernels.name}:scale", "grid": 1, "block": 64,'
        ' "args": ["work[5, 0:64]", 2.0, 64]},'
    ]


def test_kernel_source_is_stored_line_by_line() -> None:
    lines = text_of(pipeline()).splitlines()
    assert '   "__device__ int counters[4];",' in lines


def test_float32_arguments_are_stored_as_they_were_written() -> None:
    assert '"args": [{"param": "field"}, 0.1, 64]' in text_of(everything())


# -- callbacks ---------------------------------------------------------------------------------------------------------


class _Holder:
    def method(self) -> None: ...

    def __call__(self) -> None: ...

    @staticmethod
    def static() -> None: ...


def _closure() -> Callable[[], None]:
    def inside() -> None: ...

    return inside


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda: None, "lambda"),
        (_closure(), "inside a function"),
        (_Holder().method, "bound method"),
        (_Holder(), "object of type _Holder"),
        (functools.partial(report, 1), "object of type partial"),
        ([].append, "bound method"),
    ],
)
def test_callback_without_import_path_says_so_with_the_node(fn: Any, said: str) -> None:
    g = Graph("g")
    g.host(fn, name="talk")
    with pytest.raises(DeclarationError) as caught:
        text_of(g)
    assert "node 'talk'" in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.node == "talk"


def test_function_that_was_replaced_has_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specimens, "report", print)
    with pytest.raises(DeclarationError, match="is not what specimens:report names"):
        callback_path(report)


def test_builtin_and_static_functions_have_a_path() -> None:
    assert callback_path(print) == "builtins:print"
    assert callback_path(report) == "specimens:report"


def test_function_of_a_program_is_stored_under_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_loader("__main__", loader=None)
    assert spec is not None
    program = importlib.util.module_from_spec(spec)
    program.__spec__ = None
    program.__file__ = str(tmp_path / "01_work.py")
    exec("def talk(): pass", vars(program))
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert callback_path(program.talk) == "01_work:talk"
    del program.__file__
    with pytest.raises(DeclarationError, match="stands in no file"):
        callback_path(program.talk)


def test_from_json_imports_nothing_and_compile_would_name_the_callback() -> None:
    text = changed(lambda d: node(d, "report").update(fn="no_such_module_anywhere:talk"))
    graph = Graph.from_json(text)
    assert "no_such_module_anywhere" not in sys.modules
    fn = graph["report"].fn  # type: ignore[attr-defined]  # a host node
    assert fn == UnboundCallback("no_such_module_anywhere:talk")
    assert ("report", "callback no_such_module_anywhere:talk") in graph.workflow().unbound()


@pytest.mark.parametrize("key", ["specimens:report", "report"])
def test_callback_is_supplied_by_path_or_name(key: str) -> None:
    graph = Graph.from_json(text_of(everything()), callbacks={key: print, "specimens:issue": print})
    hosts = [n for n in graph.nodes if isinstance(n, HostNode)]
    assert all(n.fn is print for n in hosts)


def test_callback_is_supplied_by_node_name() -> None:
    graph = Graph.from_json(text_of(everything()), callbacks={"report_2": print})
    assert graph["report_2"].fn is print  # type: ignore[attr-defined]  # a host node
    assert isinstance(graph["report"].fn, UnboundCallback)  # type: ignore[attr-defined]  # a host node


def test_unused_callbacks_and_arrays_are_named() -> None:
    text = text_of(everything())
    assert "'repotr'" in refused(text, callbacks={"repotr": print})
    assert "'lagre'" in refused(text, arrays={"lagre": np.zeros(3)})
    assert "callable" in refused(text, callbacks={"report": 3})


# -- values that are supplied ------------------------------------------------------------------------------------------


def test_large_values_are_supplied(caplog: pytest.LogCaptureFixture) -> None:
    text = text_of(everything())
    with caplog.at_level(logging.WARNING, "hipgraphdsl"):
        graph = Graph.from_json(text, arrays={"large": np.arange(5000, dtype="u4")})
    assert not caplog.records
    assert text_of(graph) == text
    assert "large" not in dict(graph.workflow().unbound())


def test_other_values_are_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hipgraphdsl"):
        graph = Graph.from_json(text_of(everything()), arrays={"large": np.ones(5000, dtype="u4")})
    assert "SHA-256" in caplog.text
    assert graph.arrays["large"].initial.sum() == 5000  # type: ignore[attr-defined]  # it has one


def test_values_of_another_shape_or_dtype_are_refused() -> None:
    text = text_of(everything())
    assert "array 'large' is uint32[5000]" in refused(text, arrays={"large": np.ones(4999, "u4")})
    assert "float64[5000]" in refused(text, arrays={"large": np.ones(5000)})


def test_external_memory_is_supplied() -> None:
    memory = np.arange(16, dtype="f4")
    graph = Graph.from_json(text_of(everything()), arrays={"outside": memory})
    assert graph.arrays["outside"].obj is memory  # type: ignore[attr-defined]  # an external array
    assert "read-only" in refused(text_of(everything()), arrays={"outside": memory[:].copy().view(_ReadOnly)})


class _ReadOnly(np.ndarray[Any, Any]):
    def __array_finalize__(self, obj: Any) -> None:
        self.flags.writeable = False


def test_external_memory_that_a_file_only_reads_stays_so() -> None:
    values = np.zeros(4, "f4")
    values.flags.writeable = False
    g = Graph("g")
    g.memcpy(g.device_array("y", shape=4, dtype="float32"), g.external_array("x", values))
    loaded = Graph.from_json(text_of(g), arrays={"x": np.zeros(4, "f4")})
    assert text_of(loaded) == text_of(g)
    with pytest.raises(DeclarationError, match="'x' is read-only"):
        loaded.memset(loaded.arrays["x"])


def test_unbound_things_are_all_named() -> None:
    assert {name for name, _ in Graph.from_json(text_of(everything())).workflow().unbound()} == {
        "large", "outside", "seen", "report", "report_2", "issue", "issue_2",
    }  # fmt: skip


# -- what cannot be loaded ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("null", "begins with '{'"),
        ("[]", "begins with '{'"),
        ("{}", "no field 'hipgraphdsl'"),
        ('{"hipgraphdsl": 2, "name": "g", "new": 1}', "version 2"),
        ('{"hipgraphdsl": "1", "name": "g"}', "integer"),
        ('{"hipgraphdsl": true, "name": "g"}', "integer"),
        ('{"hipgraphdsl": 1}', "'name' is missing"),
        ('{"hipgraphdsl": 1, "name": "g", "colour": 3}', "'colour'"),
        ('{"hipgraphdsl": 1, "name": "g", "name": "h"}', "stands twice"),
        ('{"hipgraphdsl": 1, "name": "g"} x', "follows the end"),
        ('{"hipgraphdsl": 1, "name": "g", "nodes": {}}', "begins with '['"),
        ('{"hipgraphdsl": 1, "name": "g", "nodes": [3]}', "nodes[0]: a node is an object"),
        ('{"hipgraphdsl": 1, "name": "g", "infer": 1}', "'infer' is true or false"),
        ('{"hipgraphdsl": 1, "name": NaN}', "no JSON"),
        ('{"hipgraphdsl": 1e999, "name": "g"}', "too large"),
        ('{"hipgraphdsl": ' + "9" * 5000 + "}", "5000 digits"),
        ("[" * 100_000, "nested deeper than 64"),
        ('{"a":' * 100_000, "nested deeper than 64"),
        ('{"hipgraphdsl": 1, "name": "' + "x" * 100_000 + '"}', "cannot name a graph"),
        ('{"hipgraphdsl": 1, "name": "\\', "ends too early"),
    ],
)
def test_from_json_refuses_text_that_is_no_workflow(text: str, said: str) -> None:
    assert said in refused(text)


def test_file_over_the_size_limit_is_refused_at_once() -> None:
    assert "64 MB" in refused(" " * (64 * 2**20 + 1))


def test_brackets_inside_text_do_not_count_as_nesting() -> None:
    g = Graph("g")
    g.host(report, args=("[" * 500 + '\\"' * 3 + "{" * 500 + "\\",))
    assert Graph.from_json(text_of(g))["report"].args == g["report"].args  # type: ignore[attr-defined]  # host nodes


def test_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_text, "MAX_NODES", 1000)
    text = '{"hipgraphdsl": 1, "name": "g", "nodes": [' + '{"name": "n"},' * 1000 + '{"name": "n"}]}'
    assert "at most 1000 nodes" in refused(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"arrays": [' + "[]," * 2**20 + "[]]", "at most 1000000 plain edges; nodes, arrays and parameters are objects"),
        ('"nodes": [' + "{}," * 2**20 + "{}]", "at most 1000000 nodes, arrays and parameters"),
        ('"name": "g", "order": [' + '"",' * 2**20 + '""]', "order[0]: an edge is a pair"),
        ('"modules": {' + ",".join(f'"{n}":{{}}' for n in range(2**18)) + "}", "at most 10000 modules and child graphs"),
        ('"workflows": {' + ",".join(f'"{n}":{{}}' for n in range(2**18)) + "}", "at most 10000 modules and child graphs"),
        (",".join(f'"{n}":0' for n in range(2**18)), "has no 100 fields"),
    ],
    ids=["arrays", "nodes", "order", "modules", "workflows", "fields"],
)
def test_hostile_text_is_refused_before_it_costs_memory(text: str, said: str) -> None:
    tracemalloc.start()
    try:
        assert said in refused('{"hipgraphdsl": 1, ' + text + "}")
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


def test_numbers_beyond_the_limit_of_a_file_are_refused() -> None:
    assert "at most 10000000 numbers" in refused('{"hipgraphdsl": 1, "arrays": [{"values": [' + "1," * 10_000_001 + "1]}]}")


@pytest.mark.parametrize("number", ["1" * 42, "1e309", "-1E+400", "1" * 310 + ".0"])
def test_numbers_that_are_too_large_are_refused(number: str) -> None:
    data = changed(lambda d: node(d, "report_2").update(args=[12345]))
    assert "too l" in refused(data.replace("12345", number))


def test_empty_array_of_a_shape_that_numpy_cannot_count_is_refused() -> None:
    def argument(shape: list[int]) -> str:
        value = {"ndarray": "float32", "shape": shape, "base64": ""}
        return changed(lambda d: node(d, "report_2").update(args=[value]))

    assert "at most 2**40 elements (got [0, 10000" in refused(argument([0, 10**18, 10**18]))


def test_children_that_multiply_beyond_the_limit_are_refused() -> None:
    g: Graph = inner()
    for level in range(10):
        outer = Graph(f"level{level}")
        for _ in range(10):
            outer.child(g)
        g = outer
    assert "counted as often as they are used" in refused(text_of(g))


def test_huge_shape_allocates_nothing() -> None:
    def grow(data: Any) -> None:
        data["arrays"][3]["shape"] = [4, 2**40, 12]

    graph = Graph.from_json(changed(grow))
    assert graph.arrays["u"].shape == (4, 2**40, 12)


@pytest.mark.parametrize("shape", [[0], [-1], [2**63], [1.5], [True], "4", [2**40, 2**40], [1] * 33, [10**39]])
def test_impossible_shape_is_refused(shape: Any) -> None:
    said = refused(changed(lambda d: d["arrays"][2].update(shape=shape)))
    assert "arrays[2]" in said
    assert "shape" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: node(d, "copy_in").update(kind="memcopy"), "no kind 'memcopy'"),
        (lambda d: node(d, "copy_in").update(speed=3), "a memcpy node has no field 'speed'"),
        (lambda d: d["nodes"].append({"name": "end", "kind": "empty", "speed": 3}), "an empty node has no field 'speed'"),
        (lambda d: node(d, "copy_in").pop("src"), "'src' is missing"),
        (lambda d: node(d, "copy_in").update(src="nowhere"), "no array 'nowhere'"),
        (lambda d: node(d, "copy_in").update(src="x[0:99]"), "99 is out of range"),
        (lambda d: node(d, "copy_in").update(src="x[0:9"), "is no view"),
        (lambda d: node(d, "copy_in").update(src="x[-1]"), "is no view"),
        (lambda d: node(d, "copy_in").update(src="x[__import__('os')]"), "is no view"),
        (lambda d: node(d, "copy_in").update(src="x[" + "0," * 3000 + "]"), "is no view"),
        (lambda d: node(d, "copy_in").update(src={"param": "field", "more": 1}), "'more'"),
        (lambda d: node(d, "copy_in").update(src={"view": "x"}), "is no value"),
        (lambda d: node(d, "copy_in").update(src={}), "is no value"),
        (lambda d: node(d, "copy_in").update(name="alloc_y"), "already has a node"),
        (lambda d: node(d, "copy_in").update(after=["free_y"]), "no node 'free_y'"),
        (lambda d: node(d, "copy_in").update(after="alloc_y"), "'after' is a list"),
        (lambda d: node(d, "scale_x").update(kernel="other:scale"), "no module 'other'"),
        (lambda d: node(d, "scale_x").update(kernel="scale"), "no reference"),
        (lambda d: node(d, "scale_x").update(grid=0), "at least 1"),
        (lambda d: node(d, "scale_x").update(grid=[1, 1, 1, 1]), "one to three axes"),
        (lambda d: node(d, "scale_x").update(grid=1.5), "an axis"),
        (lambda d: node(d, "scale_x").update(args=["x"]), "takes 3 arguments"),
        (lambda d: node(d, "scale_x").update(shared_bytes=True), "shared_bytes is a number of bytes"),
        (lambda d: node(d, "report").update(fn="os.system('x')"), "import path"),
        (lambda d: node(d, "report").update(access=["hx"]), "'access' is a list"),
        (lambda d: node(d, "first").update(workflow="missing"), "no workflow 'missing'"),
        (lambda d: node(d, "first")["bind"].update(nothing=1), "no array or parameter 'nothing'"),
        (lambda d: d["arrays"].append(d["arrays"][0]), "declared twice"),
        (lambda d: d["arrays"][0].update(dtype="object"), "no dtype 'object'"),
        (lambda d: d["arrays"][0].update(dtype=["f4", "f4"]), "a dtype is an object"),
        (lambda d: d["arrays"][0].update(values=[1.0]), "'values' holds 1"),
        (lambda d: d["arrays"][0].update(base64="AAAA"), "give one"),
        (lambda d: d["arrays"][1].update(values=[1, 2, 40000]), "do not fit"),
        (lambda d: d["arrays"][1].update(values=[1, 2, 2.5]), "no value of dtype int16"),
        (lambda d: d["arrays"][4].update(base64="!"), "damaged"),
        (lambda d: d["arrays"][9].update(sha256="abc"), "64 hexadecimal digits"),
        (lambda d: d["arrays"][0].update(kind="texture"), "'host', 'device' or 'external'"),
        (lambda d: d["arrays"][0].update(device=-1), "number of a device"),
        (lambda d: array(d, "hx").update(access=[1]), "array 'hx' is host memory, and 'access' is for memory of a device"),
        (lambda d: array(d, "outside").update(access=[1]), "array 'outside' is host memory, and 'access' is for"),
        (lambda d: d["parameters"][0].update(name="stream"), "reserved"),
        (lambda d: d["parameters"][0].update(name="after"), "reserved"),
        (lambda d: d["parameters"][0].update(default=[1]), "parameter 'a'"),
        (lambda d: d["order"].append(["first"]), "order[1]"),
        (lambda d: d["order"].append(["first", "zero"]), "no node 'zero'"),
        (lambda d: d.update(modules={"a:b": {"source": ["x"]}}), "cannot name a module"),
        (lambda d: next(iter(d["modules"].values())).update(source=[1]), "lists of text"),
        (lambda d: next(iter(d["modules"].values())).update(source=["nothing"]), "module"),
        (lambda d: next(iter(d["modules"].values())).update(structs={"Params": "O"}), "no dtype"),
        (lambda d: d["workflows"]["inner"].update(workflows={}), "no field 'workflows'"),
        (lambda d: d["workflows"]["inner"].update(modules={"m": {}}), "top of the file"),
        (lambda d: d["workflows"]["inner"]["nodes"][0].update(grid=0), "workflows['inner'].nodes[0].grid ('scale')"),
    ],
)
def test_fault_is_named_with_its_place(change: Callable[[Any], None], said: str) -> None:
    message = refused(changed(change))
    assert said in message
    assert message.startswith("workflow file, line ")


def test_fault_names_line_and_node() -> None:
    lines = text_of(pipeline()).splitlines()
    at = next(i for i, line in enumerate(lines) if '"name": "K2"' in line)
    lines[at] = lines[at].replace('"grid": 1', '"grid": 0')
    message = refused("\n".join(lines))
    assert f"line {at + 1}, nodes[7].grid ('K2')" in message
    assert "grid.0 must be at least 1" in message


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("kind", "memcopy", "nodes[0].kind"), ("kind", 3, "nodes[0].kind"), ("value", 1.5, "nodes[0]"), ("speed", 3, "nodes[0]")],
)
def test_fault_of_an_indented_file_names_the_node_and_where_its_kind_stands(field: str, value: Any, said: str) -> None:
    g = Graph("g")
    g.memset(g.device_array("x", shape=4, dtype="i4"), 0, name="clear")
    data = json.loads(text_of(g))
    data["nodes"][0][field] = value
    text = json.dumps(data, indent=1)
    with pytest.raises(DeclarationError, match=re.escape(f"{said} ('clear')")) as caught:
        Graph.from_json(text)
    assert caught.value.node == "clear"
    if field == "kind":
        line = next(i for i, line in enumerate(text.splitlines(), 1) if line.startswith(f'   "kind": {json.dumps(value)}'))
        assert f"line {line}, " in str(caught.value)


@pytest.mark.parametrize("indent", [None, 1])
def test_nodes_know_their_lines_in_children_too(indent: int | None) -> None:
    data = json.loads(text_of(everything()))
    data["workflows"] = {"unused": {"order": [], "nodes": [], "arrays": []}, **data["workflows"]}
    data = {"infer": data.pop("infer"), "order": data.pop("order"), **data}
    text = json.dumps(data, indent=indent)
    lines = text.splitlines()
    found = Graph.from_json(text, file="g.json").workflow()
    stored = [document for document in found.documents if document.nodes[0].source]  # a collective node derives its workflow
    assert len(stored) > 1
    for document in stored:
        names = [n.name for n in document.nodes]
        places = [n.source for n in document.nodes]
        at = [line for file, line in filter(None, places) if file == "g.json"]
        assert len(at) == len(names)
        if indent is None:
            assert set(at) == {1}
        else:
            assert [lines[line].strip() for line in at] == [f'"name": "{name}",' for name in names]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("form", ["payload", "negative", "usual"])
def test_nan_keeps_its_bits(dtype: str, form: str) -> None:
    usual = np.array(np.nan).astype(as_dtype(dtype))
    word = usual.view(f"u{usual.itemsize}")
    top = np.array(1 << 8 * usual.itemsize - 1, word.dtype)
    bits = {"payload": word ^ word.dtype.type(1), "negative": word ^ top, "usual": word}[form]
    value = np.asarray(bits).view(usual.dtype)[()]
    assert value != value
    g = Graph("g")
    g.memset(g.host_array("x", shape=2, dtype=dtype), value, name="fill")
    g.memset(g.host_array("y", shape=2, dtype=dtype), g.param("p", dtype, value))
    text = g.to_json()
    loaded = Graph.from_json(text)
    assert loaded.to_json() == text
    assert ('"struct"' in text) == (form != "usual")
    for found in (loaded.dag.nodes["fill"]["node"].value, loaded.parameters["p"].default):
        assert np.asarray(found, usual.dtype).tobytes() == value.tobytes()


def indented_with(old: str, new: str, g: Graph | None = None, after: str = "") -> tuple[list[str], int]:
    """Return the lines of an indented file, with a text replaced where it first stands after a line, and that line's index."""
    lines = json.dumps(json.loads(text_of(pipeline(1)) if g is None else g.to_json()), indent=2).splitlines()
    first = lines.index(after) if after else 0
    at = next(i for i, line in enumerate(lines) if i >= first and old in line)
    lines[at] = lines[at].replace(old, new)
    return lines, at


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ('"infer": true', '"infer": 1', "infer", "'infer' is true or false"),
        ('"infer": true', '"infer": 1e999', "infer", "1e999 is too large"),
        ('"grid": 1', '"grid": 0', "nodes[1].grid ('K0')", "node 'K0': grid.0 must be at least 1"),
        ('"grid": 1', '"grid": 1.5', "nodes[1].grid ('K0')", "an axis of grid or block is"),
        ('"block": 64', '"block": NaN', "nodes[1].block", "NaN is no JSON"),
        ('"src": "source[0, 0:64]"', '"src": "nowhere"', "nodes[0].src ('H2D0')", "there is no array 'nowhere'"),
        ('"src": "source[0, 0:64]"', '"src": 3', "nodes[0].src ('H2D0')", "an array or a view"),
    ],
)
def test_fault_in_an_indented_file_names_its_field_and_line(old: str, new: str, place: str, said: str) -> None:
    lines, at = indented_with(old, new)
    assert refused("\n".join(lines)).startswith(f"workflow file, line {at + 1}, {place}: {said}")


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ('"default": 3', '"default": 1.5', "parameters[0].default", "parameter 'p': default: 1.5 is no value of dtype int32"),
        ('"default": 3', '"default": "z"', "parameters[0].default", "there is no array 'z'"),
        ('"default": 3', '"default": {"floating": 1}', "parameters[0].default", "{'floating': 1} is no value"),
        ('"default": "x"', '"default": 3', "parameters[1].default", "parameter 'q' stands for an array of float32[4]"),
        ('"default": "x"', '"default": "y"', "parameters[1].default", "parameter 'q'"),
        ('"min": 1', '"min": 1.5', "parameters[0].min", "'min' is an integer"),
        ('"dtype": "int32"', '"dtype": "int33"', "parameters[0].dtype", "there is no dtype 'int33'"),
        ('"default": 3', '"standard": 3', "parameters[0].standard", "parameter 'p' has no field 'standard'"),
    ],
)
def test_fault_of_a_parameter_in_an_indented_file_names_its_field_and_line(old: str, new: str, place: str, said: str) -> None:
    g = Graph("g")
    x, y = g.device_array("x", shape=4, dtype="f4"), g.host_array("y", shape=4, dtype="i4")
    g.memset(y, g.param("p", "i4", 3, min=1))
    g.memset(g.param("q", "f4", x, shape=4), 0)
    lines, at = indented_with(old, new, g, '  "parameters": [')
    assert refused("\n".join(lines)).startswith(f"workflow file, line {at + 1}, {place}: {said}")


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ('"grid": 1', '"grid": 1, "grid": 1', "nodes[1]", "key 'grid' stands twice"),
        ('"grid": 1', '"grit": 1', "nodes[1].grid ('K0')", "field 'grid' is missing"),
        ('"dst": "work', '"pace": 1, "dst": "work', "nodes[0] ('H2D0')", "a memcpy node has no field 'pace'"),
        ('"dst": "work', '"source": ["f", 1], "dst": "work', "nodes[0] ('H2D0')", "a memcpy node has no field 'source'"),
        ('"dtype": "float32"', '"dtype": "float33"', "arrays[0]", "there is no dtype"),
    ],
)
def test_fault_of_an_object_in_an_indented_file_names_the_line_where_it_begins(old: str, new: str, place: str, said: str) -> None:
    lines, at = indented_with(old, new)
    begun = max(i for i in range(at) if lines[i] == "    {")
    assert refused("\n".join(lines)).startswith(f"workflow file, line {begun + 1}, {place}: {said}")


def test_child_that_holds_itself_is_refused() -> None:
    def loop(data: Any) -> None:
        data["workflows"]["inner"]["nodes"].append({"name": "c", "kind": "child", "workflow": "inner"})

    assert "inner workflows come first" in refused(changed(loop))


@pytest.mark.parametrize("keep", [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_truncated_file_is_refused_with_line_and_column(keep: float) -> None:
    text = text_of(everything())
    message = refused(text[: int(len(text) * keep)])
    assert re.search(r"line \d+, column \d+: the text ends too early", message)


@pytest.fixture(scope="module")
def whole() -> str:
    return text_of(everything())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(data=st.data())
def test_any_replaced_value_loads_or_is_refused(whole: str, data: st.DataObject) -> None:
    document = json.loads(whole)
    place: Any = document
    key: Any = data.draw(st.sampled_from(sorted(document)))
    while isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    if data.draw(st.booleans()):
        place[key] = data.draw(_JSON)
    else:
        del place[key]
    _load_or_refuse(json.dumps(document))


@given(data=st.data())
def test_any_damaged_text_loads_or_is_refused(whole: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 30))
    _load_or_refuse(whole[:at] + data.draw(st.text(max_size=12)) + whole[at + length :])


@given(text=st.text())
def test_any_text_is_refused(text: str) -> None:
    refused(text)


def _load_or_refuse(text: str) -> None:
    try:
        graph = Graph.from_json(text)
    except DeclarationError:
        return
    again = text_of(graph)
    assert text_of(Graph.from_json(again)) == again


@pytest.mark.parametrize("value", [None, 5, -1, 1.5, True, "x", [], {}, ["x"], [[1]], {"x": 1}], ids=repr)
def test_any_value_of_any_field_loads_or_is_refused(value: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = jsonschema.Draft202012Validator(Workflow.model_json_schema())
    document = json.loads(text_of(everything()))
    kinds = {each["kind"]: (i, KINDS[each["kind"]]) for i, each in enumerate(document["nodes"])}
    for i, kind in kinds.values():
        for field in kind.fields:
            changed = json.loads(json.dumps(document))
            changed["nodes"][i][field.name] = value
            try:
                Graph.from_json(json.dumps(changed))
            except DeclarationError:
                continue
            if value is None:
                assert not list(schema.iter_errors(changed)), (kind.kind, field.name)


# -- schema ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [everything, pipeline, inner, lambda: Graph("empty")])
def test_schema_describes_what_is_written(make: Callable[[], Graph]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(Workflow.model_json_schema())
    jsonschema.Draft202012Validator(Workflow.model_json_schema()).validate(json.loads(text_of(make())))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: node(d, "copy_in").update(speed=3),
        lambda d: node(d, "copy_in").pop("src"),
        lambda d: node(d, "scale_x").update(grid=0),
        lambda d: d.update(hipgraphdsl=2),
        lambda d: d["arrays"][0].update(kind="texture"),
    ],
)
def test_schema_refuses_what_loading_refuses(change: Callable[[Any], None]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = changed(change)
    assert list(jsonschema.Draft202012Validator(Workflow.model_json_schema()).iter_errors(json.loads(text)))
    refused(text)


def test_schema_knows_every_kind_with_its_fields() -> None:
    nodes = {
        form["properties"]["kind"]["const"]
        for key, form in Workflow.model_json_schema()["$defs"].items()
        if key.startswith("node_")
    }
    assert nodes == set(KINDS)


# -- size --------------------------------------------------------------------------------------------------------------


def test_large_graph_round_trips() -> None:
    text = text_of(chain(3000))
    assert text_of(Graph.from_json(text)) == text


def test_padding_of_structs_is_zeros_in_files() -> None:
    dtype = np.dtype([("tag", "i1"), ("value", "f8")], align=True)
    values = np.frombuffer(b"\xee" * dtype.itemsize * 20, dtype)

    def text() -> str:
        g = Graph("padded")
        g.host_array("x", values)
        g.device_array("y", [(1, 2.0)] * 20, dtype=dtype)
        p = g.param("p", dtype, [(1, 2.0)] * 20, shape=20, copy=True)
        g.host(report, (p, values))
        return g.to_json()

    texts = {text() for _ in range(50)}  # the padding of NumPy's copies is what the memory held before
    texts |= {Graph.from_json(written).to_json() for written in texts for _ in range(50)}
    assert len(texts) == 1
    x = Graph.from_json(texts.pop()).arrays["x"]
    assert isinstance(x, HostArray)
    assert isinstance(x.initial, np.ndarray)
    assert {x.initial.tobytes()} == {(b"\xee" + bytes(7) + b"\xee" * 8) * 20}
