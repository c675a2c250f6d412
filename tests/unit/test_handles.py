"""Objects of other libraries stand for their handles: hip-python's, ctypes', and what has the attributes of torch and cupy."""

from __future__ import annotations

import ctypes
import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.arrays import as_handle
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import Fill2D


@pytest.fixture
def cpu() -> Runtime:
    return open_runtime("cpu")


@pytest.fixture(scope="module")
def hip() -> Any:
    """The module of hip-python that has the types: of 10.0, or of 7.2."""
    try:
        return importlib.import_module("rocm.bindings.hip")
    except ImportError:
        return pytest.importorskip("hip.hip", reason="hip-python is not installed")


class _ForeignStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 77


@pytest.mark.parametrize(
    ("value", "handle"),
    [
        (5, 5), (0, 0), (np.uint64(2**63), 2**63), (ctypes.c_void_p(6), 6), (ctypes.c_void_p(), 0), (_ForeignStream(), 77),
        (SimpleNamespace(cuda_stream=8), 8), (SimpleNamespace(cuda_event=9), 9), (SimpleNamespace(ptr=10), 10),
        (SimpleNamespace(handle=11), 11),
        (-1, None), (2**64, None), (True, None), (1.0, None), ("7", None), (None, None), (SimpleNamespace(ptr="x"), None),
        (np.zeros(2), None),
    ],
)  # fmt: skip
def test_as_handle_takes_handles_and_nothing_else(value: Any, handle: int | None) -> None:
    assert as_handle(value) == handle


@pytest.mark.needs("cpu")
def test_launch_takes_a_stream_of_hip_python(cpu: Runtime, hip: Any) -> None:
    stream = cpu.stream_create()
    g = hg.Graph("on a foreign stream")
    memory = np.zeros(4, "float32")
    g.memset(g.external_array("x", memory), 3)
    with g.compile(runtime=cpu) as exe:
        exe.launch(stream=hip.ihipStream_t.fromObj(stream))
        cpu.stream_synchronize(stream)
        assert memory.tolist() == [3] * 4
    cpu.stream_destroy(stream)


@pytest.mark.needs("cpu")
def test_from_handle_takes_a_graph_of_hip_python(cpu: Runtime, hip: Any) -> None:
    memory = np.ones(4, "uint8")
    graph = cpu.graph_create()
    cpu.graph_add_memset_node(graph, (), Fill2D(memory.ctypes.data, 1, 7, 4))
    g = hg.Graph.from_handle(hip.ihipGraph.fromObj(graph), cpu, arrays={"memory": memory})
    cpu.graph_destroy(graph)
    with g.compile(runtime=cpu) as exe:
        exe.run()
    assert memory.tolist() == [7] * 4
    with pytest.raises(hg.DeclarationError, match="handle is a hipGraph_t or CUgraph, as a number or an object"):
        hg.Graph.from_handle("graph", cpu)


@pytest.mark.needs("cpu")
def test_record_and_wait_take_an_event_of_hip_python(cpu: Runtime, hip: Any) -> None:
    event, stream = cpu.event_create(), cpu.stream_create()
    theirs = hg.Event("theirs", handle=hip.ihipEvent_t.fromObj(event))
    assert theirs == hg.Event("theirs", handle=event)
    g = hg.Graph("recording")
    memory = np.zeros(4, "float32")
    g.memset(g.external_array("x", memory), 3, name="fill")
    g.record(theirs, after=["fill"])
    with g.compile(runtime=cpu) as exe:
        exe.launch()
        cpu.stream_wait_event(stream, event)
        cpu.stream_synchronize(stream)
        assert memory.tolist() == [3] * 4
    cpu.event_destroy(event)
    cpu.stream_destroy(stream)


def test_event_and_semaphore_refuse_what_has_no_handle() -> None:
    with pytest.raises(hg.DeclarationError, match=r"event 'e': handle is a raw handle or an object that has one \(got 'x'\)"):
        hg.Event("e", handle="x")
    with pytest.raises(hg.DeclarationError, match=r"semaphore 's': handle is a raw handle .*got 1\.5"):
        hg.Semaphore("s", handle=1.5)
    assert hg.Semaphore("s", handle=ctypes.c_void_p(12)).handle == 12


@pytest.mark.needs("cpu")
def test_external_array_takes_a_device_array_of_hip_python(cpu: Runtime, hip: Any) -> None:
    memory = np.ones(4, "float32")
    types = importlib.import_module("rocm.bindings.util.types" if hip.__name__.startswith("rocm") else "hip._util.types")
    theirs = types.DeviceArray.fromObj(memory.ctypes.data)
    theirs.configure(typestr="float32", shape=(4,), _force=True)
    g = hg.Graph("their memory")
    x = g.external_array("x", theirs)
    assert x.shape == (4,)
    assert x.dtype == np.dtype("float32")
    g.memset(x, 0)
    with g.compile(runtime=cpu) as exe:
        exe.run()
    assert memory.tolist() == [0] * 4
