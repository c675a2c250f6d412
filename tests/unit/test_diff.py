"""What differs between two workflows: by name, not by position."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from specimens import SOURCE, everything, inner, pipeline, report

from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.parts.formats.diff import Difference, compare


def two(change: Callable[[Graph], object]) -> Difference:
    old, new = pipeline(2), pipeline(2)
    change(new)
    return compare(old, new)


def scaled(factor: float, source: str = SOURCE, name: str | None = None, grid: int = 1) -> Graph:
    g = Graph("g")
    x = g.device_array("x", shape=64, dtype="float32")
    g.kernel(
        Module(source.replace("Params p", "int p").replace("p.a", "p"), name=name)["scale"],
        grid,
        64,
        args=(x, factor, 64),
    )
    return g


def test_same_workflow_has_no_difference() -> None:
    difference = compare(everything(), everything())
    assert difference.same
    assert "the same workflow" in str(difference)


def test_position_alone_is_no_difference() -> None:
    old, new = Graph("g"), Graph("g")
    for g, names in ((old, "ab"), (new, "ba")):
        for name in names:
            g.empty(name=name)
    assert compare(old, new).same


def test_zero_and_negative_zero_are_two_values() -> None:
    (entry,) = compare(scaled(0.0), scaled(-0.0)).entries
    assert (entry.field, str(entry.old), str(entry.new)) == ("args[1] (a)", "0.0", "-0.0")


def test_changed_argument_is_named_with_its_parameter() -> None:
    (entry,) = compare(scaled(2.0), scaled(3.0)).entries
    assert (entry.how, entry.name, entry.field, entry.old, entry.new) == ("changed", "scale", "args[1] (a)", 2.0, 3.0)
    assert str(entry) == "~ node 'scale' args[1] (a): 2.0 -> 3.0"


def test_one_and_one_point_zero_are_two_values() -> None:
    old, new = Graph("g"), Graph("g")
    old.host(report, args=(1,))
    new.host(report, args=(1.0,))
    assert compare(old, new).entries[0].field == "args[0]"


def test_added_and_removed_nodes_arrays_and_parameters_are_told() -> None:
    def change(g: Graph) -> None:
        g.param("dt", "float32", 0.5)
        extra = g.device_array("extra", shape=4, dtype="int32")
        g.memset(extra, 1)

    there, back = two(change), compare(_changed(change), pipeline(2))
    assert [(e.how, e.what, e.name) for e in there.entries] == [
        ("added", "array", "extra"),
        ("added", "parameter", "dt"),
        ("added", "node", "memset_extra"),
    ]
    assert [(e.how, e.what, e.name) for e in back.entries] == [
        ("removed", "array", "extra"),
        ("removed", "parameter", "dt"),
        ("removed", "node", "memset_extra"),
    ]


def _changed(change: Callable[[Graph], object]) -> Graph:
    g = pipeline(2)
    change(g)
    return g


def test_rewired_node_tells_edges_with_reasons() -> None:
    (entry,) = two(lambda g: g.order("D2H0", "H2D1")).entries
    assert entry.how == "rewired"
    assert str(entry) == "* node 'H2D1' now waits for 'D2H0' (after)"


def test_changed_source_is_shown_as_a_diff_and_not_as_another_module() -> None:
    difference = compare(scaled(2.0), scaled(2.0, SOURCE.replace("*= a", "/= a")))
    (entry,) = difference.entries
    assert (entry.how, entry.what, entry.field) == ("changed", "module", "source")
    text = str(difference)
    assert "\n    -extern" in text
    assert "\n    +extern" in text


def test_named_module_is_paired_by_its_name() -> None:
    other = SOURCE.replace("*= a", "+= a")
    (entry,) = compare(scaled(2.0, name="k.hip"), scaled(2.0, other, name="k.hip")).entries
    assert entry.name == "k.hip"


def test_difference_inside_a_child_has_its_path() -> None:
    def parent(grid: int) -> Graph:
        child = inner()
        child.kernel(child["scale"].kernel, grid, 4, args=(child.arrays["x"], 1.0, 4), name="more")  # type: ignore[attr-defined]  # a kernel node
        g = Graph("parent")
        g.child(child)
        return g

    (entry,) = compare(parent(1), parent(2)).entries
    assert (entry.name, entry.field) == ("inner/more", "grid")


def test_lambdas_can_be_compared_though_not_stored() -> None:
    old, new = Graph("g"), Graph("g")
    old.host(lambda: None, name="talk")
    new.host(report, name="talk")
    (entry,) = compare(old, new).entries
    assert str(entry) == "~ node 'talk' fn: <lambda> -> specimens:report"


def test_changed_value_of_an_array_is_told_by_its_index() -> None:
    old, new = Graph("g"), Graph("g")
    old.host_array("h", [1, 2, 3], dtype="int32")
    new.host_array("h", [1, 9, 3], dtype="int32")
    (entry,) = compare(old, new).entries
    assert (entry.field, entry.old, entry.new) == ("values[1]", 2, 9)


def test_to_json_of_a_difference_has_one_entry_a_line() -> None:
    difference = compare(scaled(2.0), scaled(3.0, grid=2))
    data = json.loads(difference.to_json())
    assert data["same"] is False
    assert data["differences"] == [entry.to_dict() for entry in difference.entries]
    assert json.loads(compare(scaled(1.0), scaled(1.0)).to_json())["differences"] == []


@pytest.mark.parametrize("change", [lambda g: None, lambda g: g.order("D2H0", "H2D1"), lambda g: g.empty(name="e")])
def test_difference_can_be_drawn_by_rich(change: Callable[[Graph], object]) -> None:
    difference = two(change)
    assert difference.__rich__().plain.strip() == str(difference).strip()
