"""Node models: one per kind, frozen, and saying what they do."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from specimens import OWN_KINDS, everything

import hipgraphdsl as hg
from hipgraphdsl.arrays import AllocArray
from hipgraphdsl.nodes import Node, copy_geometry
from hipgraphdsl.nodes.values import Names


@pytest.fixture(scope="module")
def g() -> hg.Graph:
    g: hg.Graph = everything()
    return g


def test_each_kind_of_node_has_one_class_and_one_name() -> None:
    public = {cls for name in hg.__all__ if isinstance(cls := getattr(hg, name), type) and issubclass(cls, Node)} - {Node}
    assert len(OWN_KINDS) == len(public) == 17
    assert all(cls.kind == kind for kind, cls in OWN_KINDS.items())
    assert public == set(OWN_KINDS.values())


def test_each_kind_says_what_it_works_on() -> None:
    assert all(isinstance(cls.work, str) for cls in OWN_KINDS.values())
    assert {kind for kind, cls in OWN_KINDS.items() if cls.reach} == {
        *("kernel", "memcpy", "memset", "host", "captured", "eager", "memory_ops")
    }


def test_add_refuses_a_subclass_from_outside() -> None:
    class Mine(hg.EmptyNode):
        pass

    class Other(hg.EmptyNode):
        kind = "other"

    g = hg.Graph("g")
    for cls in (Mine, Other):
        with pytest.raises(hg.DeclarationError, match=f"'mine' is a {cls.__name__}: use the class that it inherits from"):
            g.add(cls(name="mine"))
    assert not g.nodes


def test_model_is_built_once_by_the_first_of_several_threads() -> None:
    class Mine(hg.EmptyNode):
        built: ClassVar[list[int]] = []

        @classmethod
        def model_rebuild(cls, **options: Any) -> bool | None:
            cls.built.append(threading.get_ident())
            time.sleep(0.05)  # so that others come meanwhile
            return super().model_rebuild(**options)

    assert not Mine.__pydantic_complete__
    with ThreadPoolExecutor(8) as threads:
        nodes = list(threads.map(lambda i: Mine(name=f"n{i}"), range(8)))
    assert [node.name for node in nodes] == [f"n{i}" for i in range(8)]
    assert len(Mine.built) == 1


def test_nodes_remember_the_line_that_declared_them() -> None:
    g = hg.Graph("g")
    node = g.empty()
    assert node.source is not None
    assert node.source[0] == __file__
    assert Path(__file__).read_text().splitlines()[node.source[1] - 1].strip() == "node = g.empty()"


def test_nodes_say_in_few_words_what_they_do(g: hg.Graph) -> None:
    for node in g.nodes:
        assert 0 < len(node.describe()) < 200
        assert isinstance(hash(node), int)


def test_a_changed_copy_is_checked_as_a_new_node(g: hg.Graph) -> None:
    for node in g.nodes:
        twin = node.changed()
        assert type(twin) is type(node)
        assert twin.accesses == node.accesses
        assert twin.after == node.after
        with pytest.raises(hg.DeclarationError, match="there is no field 'colour'"):
            node.changed(colour=1)


@pytest.mark.parametrize("name", ["accesses", "addresses", "parameters", "plain", "alike", "least_threads", "signature"])
def test_a_launch_takes_no_field_that_follows_from_its_others(name: str) -> None:
    g = hg.Graph("g")
    module = hg.Module('extern "C" __global__ void one(float* x) { x[0] = 1; }')
    x = g.device_array("x", shape=4, dtype="float32")
    first = g.kernel(module["one"], 1, 4, (x,))
    with pytest.raises(hg.DeclarationError, match=f"there is no field '{name}'"):
        hg.KernelNode(name="next", kernel=module["one"], grid=1, block=4, args=(x,), **{name: getattr(first, name)})
    again = hg.KernelNode(name="next", kernel=module["one"], grid=1, block=4, args=(x,))
    assert (again.accesses, again.addresses, again.plain) == (first.accesses, first.addresses, first.plain)


def test_model_copy_is_checked_and_follows_from_its_own_fields() -> None:
    g = hg.Graph("g")
    x, y = (g.device_array(name, shape=4, dtype="float32") for name in "xy")
    first = g.memset(x, 1.0, name="first")
    assert [access.view.name for access in first.accesses] == ["x"]
    second = first.model_copy(update={"name": "second", "dst": y})
    assert [access.view.name for access in g.add(second).accesses] == ["y"]
    assert first.model_copy() == first
    with pytest.raises(hg.DeclarationError, match="node 'first': 'wrong' is no value of dtype float32"):
        first.model_copy(update={"value": "wrong"})


def test_nodes_are_equal_where_their_values_are_the_same_to_the_bit() -> None:
    g, other = hg.Graph("g"), hg.Graph("other")
    x, y = (graph.host_array("x", shape=4, dtype="f4") for graph in (g, other))
    node = g.host(print, (np.arange(3), [0.0, {"x": np.nan}], x[1:]), name="say")
    assert node == node.changed(args=(np.arange(3), [0.0, {"x": np.float64(np.nan).item()}], x[1:4]))
    for args in [
        (np.arange(4), [0.0, {"x": np.nan}], x[1:]),
        (np.arange(3.0), [0.0, {"x": np.nan}], x[1:]),
        (np.arange(3), [-0.0, {"x": np.nan}], x[1:]),
        (np.arange(3), [0, {"x": np.nan}], x[1:]),
        (np.arange(3), [0.0, {"x": np.nan}], x[2:]),
        (np.arange(3), [0.0, {"x": np.nan}], y[1:]),
    ]:
        assert node != node.changed(args=args)
    assert node != g.host(print, (np.arange(3), [0.0, {"x": np.nan}], x[1:]), name="say_again")
    assert node != "say"


def test_a_node_moved_to_other_devices_is_what_its_fields_checked_again_make(g: hg.Graph) -> None:
    workflow = g.workflow()
    moves = {
        name: array if array.on_host or isinstance(array, hg.ExternalArray) else replace(array, device=3)
        for name, array in workflow.arrays.items()
    }
    for node in workflow.nodes:
        if node.derives:
            continue
        moved = node.moved(moves, workflow.parameters, after=("other",))
        checked = node.translated(moves, workflow.parameters).changed(after=("other",))
        assert moved == checked
        assert {array.device for array in (a.view.root for a in moved.own_accesses)} <= {None, 3}
        assert moved.accesses == checked.accesses
        assert moved.model_fields_set == checked.model_fields_set


def test_accesses_that_follow_from_args_follow_from_new_ones() -> None:
    g = hg.Graph("g")
    h, k = g.host_array("h", shape=4, dtype="i4"), g.host_array("k", shape=4, dtype="i4")
    node = g.host(print, args=(h,))
    assert [view.name for view in node.changed(args=(k,)).writes] == ["k"]
    assert [view.name for view in node.changed(args=(k,), reads=[k]).writes] == []
    said = g.host(print, args=(h,), reads=[h])
    assert [view.name for view in said.changed(args=(h[1:],)).reads] == ["h"]
    assert [view.name for view in said.changed(writes=[k]).writes] == ["k"]


def test_parameters_are_found_wherever_a_field_mentions_them() -> None:
    g = hg.Graph("g")
    m = hg.Module('extern "C" __global__ void f(float* x, float a, int n) {}')
    a, n, p = g.param("a", "float32"), g.param("n", "int32"), g.param("p", "float32", shape=4)
    x = g.device_array("x", shape=4, dtype="float32")
    h = g.host_array("h", shape=4, dtype="float32")
    assert g.kernel(m["f"], n, (1, n), (hg.reads(p), a, n)).parameters == (p, a, n)
    assert g.memset(p, a).parameters == (p, a)
    assert g.memcpy(x, p[:4]).parameters == (p,)
    assert g.host(print, args=(h, a, p), reads=[]).parameters == (a, p)
    assert g.empty().parameters == ()


def test_memcpy_directions_follow_from_where_the_memory_is() -> None:
    g = hg.Graph("g")
    d, h = g.device_array("d", shape=(4, 6), dtype="i4"), g.host_array("h", shape=(4, 6), dtype="i4")
    t, e = g.alloc("t", (4, 6), "i4"), g.external_array("e", np.zeros((4, 6), "i4"))
    assert [g.memcpy(a, b).direction for a, b in ((d, h), (h, d), (t, d), (h, e), (e, t))] == ["H2D", "D2H", "D2D", "H2H", "D2H"]
    assert g.memcpy(d[1:], h[:3]).nbytes == 72


@pytest.mark.parametrize(
    ("dst", "src", "box"),
    [
        (np.s_[:], np.s_[:], (768, 1, 1)),
        (np.s_[0], np.s_[1], (192, 1, 1)),
        (np.s_[0, :, :4], np.s_[1, :, 2:6], (16, 6, 1)),
        (np.s_[:, :, :4], np.s_[:, :, :4], (16, 24, 1)),
        (np.s_[:, :3, :4], np.s_[:, 3:, 2:6], (16, 3, 4)),
        (np.s_[0, 0, ::2], np.s_[0, 0, :4], (4, 4, 1)),
        (np.s_[::2, ::2, 0], np.s_[2:, 3:, 1], (4, 3, 2)),
        (np.s_[:, 1], np.s_[:, 2], (32, 4, 1)),
    ],
)
def test_copies_are_one_pitched_box(dst: Any, src: Any, box: tuple[int, int, int]) -> None:
    g = hg.Graph("g")
    a, b = (g.device_array(name, shape=(4, 6, 8), dtype="i4") for name in "ab")
    found = copy_geometry(a[dst], b[src])
    assert found is not None
    assert (found.width_bytes, found.height, found.depth) == box


@pytest.mark.parametrize("kind", sorted(set(OWN_KINDS) - {"conditional"}))
def test_specimens_hold_each_kind(g: hg.Graph, kind: str) -> None:
    assert kind in {node.kind for node in g.nodes}


# -- how nodes print ----------------------------------------------------------------------------------------------------
def test_a_node_prints_as_what_it_is() -> None:
    g = hg.Graph("g")
    hx = g.host_array("hx", shape=1024, dtype="float32")
    x = g.device_array("x", shape=1024, dtype="float32")
    n = g.param("n", "uint64", 1024)
    scale = hg.Module('extern "C" __global__ void scale(float* x, float a, size_t n) { x[0] *= a; }')["scale"]
    g.memcpy(x, hx, name="x_in")
    g.kernel(scale, 4, 256, (x, 2.0, n))
    g.memset(x[2:10], 3)
    g.host(print, (hx, 3))
    g.empty()
    printed = [
        "MemcpyNode('x_in': x <- hx, 4096 bytes, host to device)",
        "KernelNode('scale': scale<<<4, 256>>>(x, a=2.0, n))",
        "MemsetNode('memset_x': x[2:10] = 3, 32 bytes)",
        "HostNode('print': print(hx, 3))",
        "EmptyNode('empty')",
    ]
    assert [repr(node) for node in g] == [str(node) for node in g] == printed
    assert "grid" in dir(g["scale"])
    assert not [name for name in dir(g["scale"]) if name.startswith("model_")]


# -- Pydantic's own methods ---------------------------------------------------------------------------------------------
def test_model_dump_json_holds_what_a_file_holds_and_model_validate_json_reads_it(g: hg.Graph) -> None:
    written = Names()
    lines = {line["name"]: line for line in json.loads(g.to_json())["nodes"]}
    nodes = [(node, node.model_dump_json(context=written)) for node in g.nodes]
    arrays = {name: array for name, array in g.arrays.items() if not isinstance(array, AllocArray)}
    read = Names(arrays, g.parameters, written.modules, written.workflows)
    for node, text in nodes:
        assert json.loads(text) == lines[node.name]
        again = type(node).model_validate_json(text, context=read)
        if isinstance(again, hg.AllocNode):
            arrays[again.array.name] = again.array
        assert again.to_data(written) == lines[node.name]
        assert again.parameters == node.parameters


def test_model_dump_holds_the_values_of_the_fields_and_model_validate_takes_them(g: hg.Graph) -> None:
    for node in g.nodes:
        fields = node.model_dump()
        assert all(value is getattr(node, name) for name, value in fields.items() if name not in hg.Node.model_fields)
        assert type(node).model_validate(fields) == node


def test_model_json_schema_of_each_kind_describes_what_model_dump_json_writes(g: hg.Graph) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for node in g.nodes:
        schema = type(node).model_json_schema()
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(json.loads(node.model_dump_json()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": "a", "kind": "memcpy"}', "the kind of a KernelNode is 'kernel'"),
        ('{"name": "a", "kernel": "m:f"}', "there is no module 'm'"),
        ('{"name": "a"}', "field 'kernel' is missing"),
        ("[1]", "a node is an object"),
        ("{", "Invalid JSON"),
    ],
)
def test_model_validate_json_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        hg.KernelNode.model_validate_json(text, context=Names())


def test_a_kind_that_leaves_a_fact_out_is_refused_when_its_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"class Odd of nodes does not say what its 'reach' is"):

        class Odd(Node):
            kind: ClassVar[str] = "odd"
            work = "kernel"


def test_facts_of_each_kind_agree_with_what_its_nodes_touch(g: hg.Graph) -> None:
    for _, node in g.workflow().walk():
        assert (node.made is not None) == (node.kind == "alloc")
        assert (node.freed is not None) == (node.kind == "free")
        assert bool(node.kernels) == (node.kind == "kernel")
        assert (node.callback is not None) == (node.kind in ("host", "captured", "eager"))
        assert bool(node.held) == (node.kind in ("child", "collective", "conditional"))
        assert {access.view.root for access in node.own_accesses} <= {access.view.root for access in node.accesses}
        assert node.copied_bytes == (node.dst.nbytes if isinstance(node, hg.MemcpyNode) else 0)


RECORD = np.dtype([("a", "f4"), ("b", "i4")], align=True)


@pytest.mark.parametrize("record", [{"a": 1.0, "b": 2}, np.ones((), RECORD), np.ones(1, RECORD)[0]])
def test_values_are_taken_as_they_are_when_they_are_given(record: Any) -> None:
    source = "struct P { float a; int b; }; __global__ void one(P p) {} __global__ void four(float4 v) {}"
    module = hg.Module(source, structs={"P": RECORD})
    vector = [1.0, 2.0, 3.0, 4.0]
    child = hg.Graph("child")
    child.kernel(module["one"], 1, 1, (child.param("p", RECORD),))
    g = hg.Graph("g")
    g.kernel(module["one"], 1, 1, (record,))
    g.kernel(module["four"], 1, 1, (vector,))
    g.memset(g.device_array("x", shape=2, dtype=RECORD), record)
    g.kernel(module["one"], 1, 1, (g.param("p", RECORD, record),))
    g.child(child, {"p": record})
    before = g.to_json()
    vector[0] = record["a"] = 9.0
    assert hg.Graph.from_workflow(g.workflow()).to_json() == before
