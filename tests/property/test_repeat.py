"""One launch of a graph that repeats another does what as many launches of that do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from places import HERE
from property.declarations import Declaration, Do, arguments, doing

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime


def named(name: str) -> str:
    """Return what an array of a child, or of a body, is called in a graph that repeats it: ``c: x``, ``loop: 0: x``."""
    *inside, array = name.split("/")
    return ": ".join([*inside, array])


LAUNCHES = st.lists(
    st.fixed_dictionaries({}, optional={"k": st.integers(-9, 9), "q": st.sampled_from(["q1", "outside"])}), min_size=1, max_size=2
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=40, phases=(Phase.explicit, Phase.generate, Phase.shrink))
@given(
    nodes=st.lists(doing(), min_size=1, max_size=6),
    passes=st.integers(1, 4),
    launches=LAUNCHES,
    batch=st.sampled_from([True, "auto"]),
)
def test_one_launch_does_what_several_do(
    runtime: str, backend: Any, nodes: list[Do], passes: int, launches: list[dict[str, Any]], batch: Any
) -> None:
    opened: Runtime = hg.open_runtime(runtime)
    declared = Declaration({f"n{i}": do for i, do in enumerate(nodes)})
    repeated = declared.graph().repeat(passes)
    assert repeated.to_json() == hg.Graph.from_json(repeated.to_json()).to_json()
    wanted = declared.afresh(opened, [given for given in launches for _ in range(passes)])
    with repeated.compile(runtime=opened, backend=backend, batch=batch) as exe:
        for given_ in launches:
            exe.launch(**arguments(given_))
        exe.synchronize()
        for name, values in wanted.items():
            assert exe.read(named(name)).tobytes() == values.tobytes(), f"array {name!r} after {passes} passes"
