"""One operation on a stream: what capture, streams and serial share."""

from __future__ import annotations

from ..runtimes.base import Copy3D, Fill2D, Runtime
from .operations import (
    Alloc,
    CallCaptured,
    CallHost,
    Copy1D,
    Free,
    Launch,
    Nothing,
    Operation,
    RecordEvent,
    RunChild,
    RunConditional,
    Scope,
    SignalSemaphore,
    WaitEvent,
    WaitSemaphore,
    WriteAndWait,
)

__all__ = ["issue"]


def issue(operation: Operation, stream: int, runtime: Runtime, scope: Scope) -> None:
    """Put one operation on a stream; an allocation writes its address into `scope`."""
    match operation:
        case Launch():
            runtime.module_launch_kernel(
                operation.function,
                operation.grid,
                operation.block,
                operation.shared_bytes,
                stream,
                operation.place(),
                operation.cooperative,
                operation.cluster,
            )
        case Copy1D(dst, src, nbytes, kind):
            runtime.memcpy_async(dst, src, nbytes, kind, stream)
        case Copy3D():
            runtime.memcpy_3d_async(operation, stream)
        case Fill2D():
            runtime.memset_async(operation, stream)
        case CallHost(fn, user_data):
            runtime.launch_host_func(stream, fn, user_data)
        case CallCaptured(call):
            call(stream)
        case Alloc(array, nbytes):
            scope.addresses[array] = runtime.malloc_async(nbytes, stream)
        case Free(pointer):
            runtime.free_async(pointer, stream)
        case RecordEvent(event):
            runtime.event_record(event, stream)
        case WaitEvent(event):
            runtime.stream_wait_event(stream, event)
        case SignalSemaphore(semaphore, value):
            runtime.signal_external_semaphore_async(semaphore, value, stream)
        case WaitSemaphore(semaphore, value):
            runtime.wait_external_semaphore_async(semaphore, value, stream)
        case WriteAndWait():
            for ops in operation.batches(runtime.target.quirks):
                runtime.stream_batch_mem_op(stream, ops)
        case Nothing():
            pass
        case RunChild():
            raise AssertionError("children are inlined for streams")
        case RunConditional():
            raise AssertionError("the program that issues it decides")
