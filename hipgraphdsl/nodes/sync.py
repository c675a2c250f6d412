"""Nodes that only order or signal: empty, events, semaphores, memory operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ValidationInfo

from ..arrays import WRITE, Access, ArrayView, Need, Parameter, as_handle, as_int, as_view, device_need
from ..errors import DeclarationError, node_error, shown
from ..lazy import lazy
from .base import Node, check_name, parameters_of, require_met
from .fields import Integer, Rule, Stored, items, names_in, node_in
from .kinds import add_kind
from .values import FLAG, Data, Names, list_of, record, ref

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event:
    """An event, identified by name: within a graph, events of the same name are the same event.

    Attributes
    ----------
    name : str
    shared : bool
        Use one event of this name per device for the whole process, so that graphs can wait for each other.
    handle : int, object or None
        An existing event (hipEvent_t), as a number or an object of hip-python, cuda-bindings or torch; stored as a number. It
        is used unchanged and never destroyed by this package; its owner keeps it alive. Files do not store it.
    """

    name: str
    shared: bool = False
    handle: Any = None

    def __post_init__(self) -> None:
        _checked(self, "event")


@dataclass(frozen=True, slots=True)
class Semaphore:
    """An external timeline semaphore, identified by name.

    Attributes
    ----------
    name : str
    handle : int, object or None
        The runtime's hipExternalSemaphore_t, as a number or an object; stored as a number. None until it is bound.
    """

    name: str
    handle: Any = None

    def __post_init__(self) -> None:
        _checked(self, "semaphore")


def _checked(value: Event | Semaphore, what: str) -> None:
    """Validate the name, and replace a handle object by its number."""
    check_name(value.name, what)
    handle = value.handle
    if handle is None or type(handle) is int:
        return
    number = as_handle(handle)
    if number is None:
        raise DeclarationError(f"{what} {value.name!r}: handle is a raw handle or an object that has one (got {handle!r})")
    object.__setattr__(value, "handle", number)


def _event(value: Any, info: ValidationInfo) -> Event:
    if isinstance(value, str):
        return Event(value)
    if names_in(info) is None:
        return _named(value, Event, info)
    from .reading import Members

    members = Members(value, "an event")
    event = Event(members.take("name", str), members.take("shared", bool, default=False))
    members.done("an event")
    return event


def _semaphore(value: Any, info: ValidationInfo) -> Semaphore:
    return Semaphore(value) if isinstance(value, str) else _named(value, Semaphore, info)


def _named(value: Any, kind: type[T], info: ValidationInfo) -> T:
    if not isinstance(value, kind):
        why = f"{info.field_name} is a name or hg.{kind.__name__}(name, ...) (got {shown(value)})"
        raise node_error(node_in(info), why)
    return value


def _operations(value: Any, info: ValidationInfo) -> tuple[MemoryOp, ...]:
    names = names_in(info)
    given = items(value, info)
    ops = given if names is None else tuple([_operation(each, names) for each in given])
    if not 1 <= len(ops) <= 256 or not all(isinstance(op, MemoryOp) for op in ops):
        why = "ops is a list of 1 to 256 operations made by hg.write_value and hg.wait_value"
        raise node_error(node_in(info), why)
    return ops


def _operation(data: Data, names: Names) -> MemoryOp:
    from .reading import Members

    members = Members(data, "a memory operation")
    op, view, value = members.take("op", str), names.view(members.take("view")), members.take("value", int)
    if op not in ("write", "wait"):
        raise DeclarationError(f"'op' is 'write' or 'wait' (got {op[:60]!r})")
    found = write_value(view, value) if op == "write" else wait_value(view, value, members.take("condition", str, default="eq"))
    members.done("a memory operation")
    return found


def _operation_data(op: MemoryOp, names: Names) -> Data:
    condition = {"condition": op.condition} if op.op == "wait" else {}
    return {"op": op.op, "view": names.view_data(op.view), "value": op.value} | condition


@add_kind
class EmptyNode(Node):
    """A node that does nothing but order others (hipGraphAddEmptyNode)."""

    kind: ClassVar[str] = "empty"
    idle = True
    work = ""
    reach = ""
    placed = ""
    in_body = True
    fixed = "nodes of kind empty are recorded once"


class _EventNode(Node):
    work = ""
    reach = ""
    in_body = False
    apart = True

    event: Annotated[
        Event,
        Stored(
            _event,
            lambda event, *_: {"name": event.name, "shared": True} if event.shared else event.name,
            {"oneOf": [ref("name"), record({"name": ref("name"), "shared": FLAG}, "name")]},
        ),
    ]

    def describe(self) -> str:
        return self.event.name

    @property
    def details(self) -> tuple[str, ...]:
        return (f"event {self.event.name}",)


@add_kind
class EventRecordNode(_EventNode):
    """Record an event (hipGraphAddEventRecordNode).

    Attributes
    ----------
    event : Event
    """

    kind: ClassVar[str] = "record"
    placed = "compiled"  # the elapsed time between events of two devices cannot be queried

    @property
    def recorded(self) -> Event:
        return self.event


@add_kind
class EventWaitNode(_EventNode):
    """Wait for an event (hipGraphAddEventWaitNode); runs after the last earlier record of it in this graph.

    Attributes
    ----------
    event : Event
    """

    kind: ClassVar[str] = "wait"
    placed = ""

    @property
    def awaited(self) -> Event:
        return self.event


class _SemaphoreNode(Node):
    work = ""
    reach = ""
    placed = "compiled"
    in_body = False
    untried = "reaches outside of the graph's arrays"
    apart = True

    semaphore: Annotated[Semaphore, Stored(_semaphore, lambda semaphore, *_: semaphore.name, ref("name"))]
    value: Annotated[int, Integer(0, 2**64 - 1, called="an unsigned 64-bit integer"), Rule(always=True)] = 1

    @property
    def semaphore_used(self) -> Semaphore:
        return self.semaphore

    def describe(self) -> str:
        return f"{self.semaphore.name} {self.value}"


@add_kind
class SemaphoreSignalNode(_SemaphoreNode):
    """Raise an external semaphore to a value (hipGraphAddExternalSemaphoresSignalNode).

    Attributes
    ----------
    semaphore : Semaphore
    value : int
        Unsigned, 64 bits.
    """

    kind: ClassVar[str] = "signal"

    @property
    def method(self) -> str:
        return "signal_semaphore"


@add_kind
class SemaphoreWaitNode(_SemaphoreNode):
    """Wait until an external semaphore has reached a value (hipGraphAddExternalSemaphoresWaitNode).

    Attributes
    ----------
    semaphore : Semaphore
    value : int
        Unsigned, 64 bits.
    """

    kind: ClassVar[str] = "wait_semaphore"

    @property
    def waits(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class MemoryOp:
    """One operation of a MemoryOpsNode, on one 4- or 8-byte element.

    Attributes
    ----------
    op : {"write", "wait"}
    view : ArrayView
        One element.
    value : int
    condition : {"eq", "geq", "and", "nor"}
        When a wait ends: equal, greater or equal (by signed difference), any bit set in both, any bit set in neither.
    """

    op: Literal["write", "wait"]
    view: ArrayView
    value: int
    condition: Literal["eq", "geq", "and", "nor"] = "eq"


def _memory_op(op: Literal["write", "wait"], view: Any, value: Any, condition: Any) -> MemoryOp:
    element = as_view(view, f"hg.{op}_value: an element of an array")
    if element.size != 1 or element.dtype.itemsize not in (4, 8) or element.dtype.kind not in "iu":
        raise DeclarationError(
            f"hg.{op}_value takes one 4- or 8-byte integer; {element.name!r} has {element.size} of {element.dtype}; index it",
            array=element.root.name,
        )
    bits = 8 * element.dtype.itemsize
    number = int(value) if isinstance(value, bool) else as_int(value)
    if number is None or not -(2 ** (bits - 1)) <= number < 2**bits:
        raise DeclarationError(f"hg.{op}_value: value is an integer of {bits} bits (got {value!r})", array=element.root.name)
    if condition not in ("eq", "geq", "and", "nor"):
        raise DeclarationError(f"hg.wait_value: condition is one of 'eq', 'geq', 'and', 'nor' (got {condition!r})")
    return MemoryOp(op, element, number % 2**bits, condition)


def write_value(view: Any, value: int) -> MemoryOp:
    """Write an integer to one 4- or 8-byte element."""
    return _memory_op("write", view, value, "eq")


def wait_value(view: Any, value: int, condition: str = "eq") -> MemoryOp:
    """Wait until one 4- or 8-byte element and an integer meet a condition.

    Parameters
    ----------
    view : view
        One integer element.
    value : int
    condition : {"eq", "geq", "and", "nor"}
        Equal, greater or equal (by signed difference), any bit set in both, any bit set in neither.

    Raises
    ------
    DeclarationError
        If the view is no such element, the value does not fit it, or there is no such condition.
    """
    return _memory_op("wait", view, value, condition)


def _reached(view: ArrayView) -> Need:
    return device_need(view.dtype.itemsize)


_OPERATION = record(
    {
        "op": {"enum": ["write", "wait"]},
        "view": ref("view"),
        "value": {"type": "integer"},
        "condition": {"enum": ["eq", "geq", "and", "nor"]},
    },
    "op view value",
)


@add_kind
class MemoryOpsNode(Node):
    """Batch memory operations (hipGraphAddBatchMemOpNode).

    Attributes
    ----------
    ops : tuple of MemoryOp
        1 to 256, executed in order; made by `hg.write_value` and `hg.wait_value`.
    """

    kind: ClassVar[str] = "memory_ops"
    work = ""
    reach = "device"
    placed = "memory"
    in_body = False
    apart = True

    ops: Annotated[
        tuple[MemoryOp, ...],
        Stored(
            _operations,
            lambda ops, names, _: [_operation_data(op, names) for op in ops],
            list_of(_OPERATION, minItems=1, maxItems=256),
            lambda ops, _: list(ops),
        ),
    ]

    def model_post_init(self, _: Any) -> None:
        for op in self.ops:
            for need in (_reached(op.view), WRITE)[: 1 + (op.op == "write")]:
                require_met(self.name, op.view, need)

    def _reached(self) -> list[tuple[ArrayView, Need]]:
        return [(op.view, _reached(op.view)) for op in self.ops]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of(op.view for op in self.ops)

    @property
    def memory_operations(self) -> tuple[MemoryOp, ...]:
        return self.ops

    @property
    def waits(self) -> bool:
        return any(op.op == "wait" for op in self.ops)

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        return tuple(Access(op.view, "write" if op.op == "write" else "read") for op in self.ops)

    def describe(self) -> str:
        return ", ".join(f"{op.op} {op.view.name} {op.value}" for op in self.ops)
