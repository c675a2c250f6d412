"""What names stand for: arrays bound to children, memory bound to array parameters at launch, and views given to kernels."""

from __future__ import annotations

from typing import Any

import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime


@pytest.fixture(scope="module", params=HERE)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


# -- children ------------------------------------------------------------------------------------------------------------


def test_alloc_bound_to_a_child_of_a_child_has_memory_where_it_is_used(runtime: Runtime, backend: Any) -> None:
    inner = hg.Graph("inner")
    a, b = (inner.device_array(name, shape=8, dtype="i4") for name in "ab")
    inner.memset(a, 7)
    inner.memcpy(b, a)
    middle = hg.Graph("middle")
    m = middle.device_array("m", shape=8, dtype="i4")
    middle.child(inner, bind={"a": m}, name="inner")
    g = hg.Graph("outer")
    y = g.alloc("y", 8, "i4")
    out = g.host_array("out", shape=8, dtype="i4")
    g.child(middle, bind={"m": y}, name="middle")
    g.memcpy(out, y)
    g.free(y)
    with g.compile(runtime, backend) as exe:
        for _ in range(2):
            exe.run()
            assert exe.read("out").tolist() == [7] * 8
            assert exe.read("middle/inner/b").tolist() == [7] * 8
            exe.write("out", 0)
