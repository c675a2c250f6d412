"""Steps -> operations of the kinds that few graphs have: user code, events, semaphores, memory operations, those of others."""

from __future__ import annotations

from ..nodes import Node
from ..nodes.host import CapturedNode, EagerNode, HostNode
from ..nodes.sync import EmptyNode, EventRecordNode, EventWaitNode, MemoryOpsNode, SemaphoreSignalNode, SemaphoreWaitNode
from ..runtimes.data import MemOp
from . import operations as op
from .environment import Environment


def operation_of(node: Node, scope: Environment, device: int) -> op.Operation:
    """Return the operation of a node on its device, as `resolve` does."""
    match node:
        case HostNode():
            return op.CallHost(*scope.shared.calls.register(scope.prefix + node.name, node, scope))
        case CapturedNode():
            name, written = scope.prefix + node.name, (a.view.root.name for a in node.accesses if a.is_write)
            return op.CallCaptured(scope.shared.calls.captured(name, node, scope), name, tuple(dict.fromkeys(written)))
        case EagerNode():
            return op.CallEager(*scope.shared.calls.eager(scope.prefix + node.name, node, scope))
        case EventRecordNode():
            return op.RecordEvent(scope.shared.event(node.event))
        case EventWaitNode():
            return op.WaitEvent(scope.shared.event(node.event))
        case EmptyNode():
            return op.Nothing()
        case SemaphoreSignalNode():
            return op.SignalSemaphore(scope.shared.semaphore(node.semaphore, scope.prefix + node.name), node.value)
        case SemaphoreWaitNode():
            return op.WaitSemaphore(scope.shared.semaphore(node.semaphore, scope.prefix + node.name), node.value)
        case MemoryOpsNode():
            return op.WriteAndWait(
                tuple(MemOp(o.op, scope.address(o.view), o.value, o.view.dtype.itemsize, o.condition) for o in node.ops)
            )
        case _:  # a kind of another package; a test holds that all kinds of this one have a case
            made: op.Operation = node.operation(scope, device)
            return made
