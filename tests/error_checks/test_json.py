"""Files that are no workflow: truncated, newer, or made to do harm."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg


@pytest.fixture(scope="module")
def text() -> str:
    g = hg.Graph("file")
    x, y = g.host_array("x", np.arange(8, dtype="f4")), g.device_array("y", shape=8, dtype="float32")
    g.memcpy(y, x)
    g.memset(y[::2], g.param("v", "float32", 1.0))
    inner = hg.Graph("inner")
    inner.empty(name="e")
    g.child(inner)
    return g.to_json()


def refused(text: str, *texts: str) -> None:
    begun = time.process_time()  # which other processes do not lengthen
    with pytest.raises(hg.HipGraphError) as caught:
        hg.Graph.from_json(text)
    for part in texts:
        assert part in str(caught.value)
    assert len(str(caught.value)) < 2000
    assert time.process_time() - begun < 60


def test_from_json_refuses_every_truncation(text: str) -> None:
    for end in {*range(0, len(text) - 2, max(1, len(text) // 200))}:
        refused(text[:end])


def test_from_json_takes_the_whole_file(text: str) -> None:
    assert hg.Graph.from_json(text).to_json() == text


@pytest.mark.parametrize("nothing", ["", "null", "[]", "{}", "3", '"text"', "\x00", "NaN", '{"nodes": []}'])
def test_other_json_is_refused(nothing: str) -> None:
    refused(nothing)


def _changed(text: str, change: Any) -> str:
    document = json.loads(text)
    change(document)
    return json.dumps(document)


def test_a_newer_version_says_so(text: str) -> None:
    key = next(key for key, value in json.loads(text).items() if isinstance(value, int) or key in ("version", "format"))
    refused(_changed(text, lambda d: d.__setitem__(key, 999)), "999")


def test_deep_nesting_is_refused() -> None:
    refused("[" * 100_000)
    refused("[" * 100_000 + "]" * 100_000)
    refused('{"a":' * 50_000 + "1" + "}" * 50_000)


def test_unknown_kinds_are_refused_by_name(text: str) -> None:
    refused(text.replace('"memcpy"', '"explode"', 1), "explode")


def test_from_json_judges_huge_sizes_and_does_not_allocate_them(text: str) -> None:
    huge = _changed(text, lambda d: _resize(d))
    try:
        g = hg.Graph.from_json(huge)
    except hg.HipGraphError:
        return
    assert max(array.nbytes for array in g.arrays.values()) > 2**40


def _resize(document: Any) -> None:
    """Make the array without values far larger than memory, wherever the document keeps its shape."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "shape" and "values" not in document and "initial" not in document:
                document[key] = [2**45]
            else:
                _resize(value)
    elif isinstance(document, list):
        for value in document:
            _resize(value)


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("backend", ["explicit", "serial"])
def test_from_json_without_values_asks_for_them_by_name_when_compiled(backend: Any) -> None:
    g = hg.Graph("large")
    values = np.arange(5000, dtype="i4")
    g.memcpy(g.host_array("out", shape=5000, dtype="i4"), g.device_array("table", values))
    loaded = hg.Graph.from_json(g.to_json())
    with pytest.raises(hg.HipGraphError, match="'table'"):
        loaded.compile(runtime="recorder", backend=backend)
    with pytest.raises(hg.DeclarationError, match=r"'table' has no initial values: .* from_json"):
        loaded.compile(runtime="recorder", backend=backend, check=False)
    with hg.Graph.from_json(g.to_json(), arrays={"table": values}).compile(runtime="cpu", backend=backend) as exe:
        exe.run()
        assert exe.read("out").tolist() == values.tolist()
