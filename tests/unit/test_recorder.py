"""The recorder: it refuses what AMD's runtime refuses, keeps account of handles, and fails where it is told to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.errors import HipError
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.runtimes.data import CaptureStatus, Fill2D, MemcpyKind, NodeType


@pytest.fixture
def recorder() -> RecorderRuntime:
    return RecorderRuntime()


def code_of(caught: pytest.ExceptionInfo[HipError]) -> int:
    return caught.value.code


def test_calls_are_recorded_with_hips_names_and_arguments(recorder: RecorderRuntime) -> None:
    stream = recorder.stream_create()
    pointer = recorder.malloc(64)
    recorder.memcpy_async(pointer, 1234, 64, MemcpyKind.HOST_TO_DEVICE, stream)
    assert recorder.apis() == ["hipStreamCreateWithPriority", "hipMalloc", "hipMemcpyAsync"]
    assert recorder.calls[-1].args == (pointer, 1234, 64, MemcpyKind.HOST_TO_DEVICE, stream)


def test_handles_that_are_alive_are_counted_by_kind(recorder: RecorderRuntime) -> None:
    stream, graph, memory = recorder.stream_create(), recorder.graph_create(), recorder.host_malloc(16)
    assert recorder.live == {"stream": 1, "graph": 1, "host memory": 1}
    recorder.stream_destroy(stream)
    recorder.graph_destroy(graph)
    recorder.host_free(memory)
    assert recorder.live == {}
    assert recorder.created == recorder.destroyed


def test_a_destroyed_handle_is_refused(recorder: RecorderRuntime) -> None:
    graph = recorder.graph_create()
    recorder.graph_destroy(graph)
    for use in (recorder.graph_destroy, recorder.graph_instantiate, recorder.graph_get_nodes):
        with pytest.raises(HipError) as caught:
            use(graph)
        assert code_of(caught) == 400


def test_the_call_that_is_told_to_fail_fails_once(recorder: RecorderRuntime) -> None:
    recorder.fail_at(2, code=2, api="hipMalloc")
    recorder.malloc(1)
    recorder.stream_create()
    with pytest.raises(HipError, match=r"hipMalloc failed: hipErrorOutOfMemory \(2\)"):
        recorder.malloc(1)
    recorder.malloc(1)
    recorder.fail_at(1)
    with pytest.raises(HipError) as caught:
        recorder.graph_create()
    assert code_of(caught) == 1
    assert recorder.live == {"memory": 2, "stream": 1}


def test_a_graph_answers_what_was_added(recorder: RecorderRuntime) -> None:
    graph = recorder.graph_create()
    first = recorder.graph_add_empty_node(graph, ())
    second = recorder.graph_add_memset_node(graph, (first,), Fill2D(64, 4, 1, 8))
    assert recorder.graph_get_nodes(graph) == (first, second)
    assert recorder.graph_get_edges(graph) == ((first, second),)
    assert recorder.graph_node_get_type(second) is NodeType.MEMSET
    assert recorder.graph_node_get_params(second) == Fill2D(64, 4, 1, 8)
    outer = recorder.graph_create()
    with pytest.raises(HipError) as caught:
        recorder.graph_add_empty_node(outer, (first,))
    assert code_of(caught) == 1


def test_a_cycle_is_refused_at_instantiation(recorder: RecorderRuntime) -> None:
    graph = recorder.graph_create()
    a = recorder.graph_add_empty_node(graph, ())
    b = recorder.graph_add_empty_node(graph, (a,))
    recorder.graph_add_dependencies(graph, (b,), (a,))
    with pytest.raises(HipError, match="cycle"):
        recorder.graph_instantiate(graph)


def test_a_fork_that_is_joined_becomes_a_graph(recorder: RecorderRuntime) -> None:
    main, side = recorder.stream_create(), recorder.stream_create()
    fork, join = recorder.event_create(), recorder.event_create()
    recorder.stream_begin_capture(main)
    recorder.memset_async(Fill2D(0, 1, 0, 1), main)
    (root,) = recorder.stream_get_capture_info(main).dependencies
    recorder.event_record(fork, main)
    recorder.stream_wait_event(side, fork)
    recorder.memset_async(Fill2D(0, 1, 1, 1), side)
    (branch,) = recorder.stream_get_capture_info(side).dependencies
    recorder.event_record(join, side)
    recorder.stream_wait_event(main, join)
    assert recorder.stream_get_capture_info(main).dependencies == (root, branch)
    graph = recorder.stream_end_capture(main)
    assert recorder.graph_get_edges(graph) == ((root, branch),)
    assert recorder.stream_get_capture_info(side).status is CaptureStatus.NONE


def test_an_unjoined_fork_is_error_904_and_leaves_no_graph(recorder: RecorderRuntime) -> None:
    main, side, fork = recorder.stream_create(), recorder.stream_create(), recorder.event_create()
    recorder.stream_begin_capture(main)
    recorder.event_record(fork, main)
    recorder.stream_wait_event(side, fork)
    recorder.memset_async(Fill2D(0, 1, 1, 1), side)
    with pytest.raises(HipError) as caught:
        recorder.stream_end_capture(main)
    assert code_of(caught) == 904
    assert "graph" not in recorder.live


@pytest.mark.parametrize(("api", "code"), [("malloc", 900), ("stream_synchronize", 900), ("memcpy", 906)])
def test_a_forbidden_call_spoils_a_capture(recorder: RecorderRuntime, api: str, code: int) -> None:
    stream = recorder.stream_create()
    recorder.stream_begin_capture(stream)
    arguments = {"malloc": (8,), "stream_synchronize": (stream,), "memcpy": (1, 2, 3, MemcpyKind.DEFAULT)}
    with pytest.raises(HipError) as caught:
        getattr(recorder, api)(*arguments.get(api, ()))
    assert code_of(caught) == code
    assert recorder.stream_get_capture_info(stream).status is CaptureStatus.INVALIDATED
    with pytest.raises(HipError) as caught:
        recorder.stream_end_capture(stream)
    assert code_of(caught) == 901


def test_page_locked_memory_is_real_and_zeroed(recorder: RecorderRuntime) -> None:
    import ctypes

    pointer = recorder.host_malloc(8)
    assert bytes((ctypes.c_char * 8).from_address(pointer)) == bytes(8)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_a_captured_function_that_records_nothing_is_logged(
    recorder: RecorderRuntime, backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(stream: Any, x: Any) -> None:
        """Be a library that has failed and tells nobody."""

    def kept(stream: Any, x: Any) -> None:
        stream.runtime.memset_async(Fill2D(x.ptr, 1, 0, x.nbytes), int(stream))

    g = hg.Graph("captured")
    x, y = (g.device_array(name, np.zeros(4, "i4")) for name in "xy")
    g.memset(x, 1, name="before")
    g.captured(kept, (x,), name="kept")
    g.captured(lost, (x,), reads=[x], name="reads")
    g.captured(lost, (x,), name="lost", after=["reads"])
    g.captured(lost, (y,), name="first", writes=[y])
    g.compile(recorder, backend).close()
    said = "declares that it writes {}, and its function recorded nothing on its stream"
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"captured node 'lost' {said.format(repr('x'))}",
        f"captured node 'first' {said.format(repr('y'))}",
    ]
