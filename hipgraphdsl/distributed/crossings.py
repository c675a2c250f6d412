"""What nodes call that cross between ranks: messages through the host, and messages and collectives on a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from ..collectives import dtype_name
from ..runtimes.base import Runtime
from ..runtimes.data import LaunchCall
from ..transports import Transfer, listed
from ..transports.nccl import Call, Nccl, collective, receive, send
from .sharing import Message
from .world import Ranks


@dataclass(frozen=True)
class Exchange:
    """The function of an eager node that sends and receives; equal to others that do the same."""

    waits: ClassVar[bool] = True
    """It is called when everything before has been done."""
    __name__ = "exchange"  # shown where a function's own name would be

    ranks: Ranks = field(compare=False)
    messages: tuple[Message, ...]  # in the order of the arrays that it is called with; those without bytes take none
    first_tag: int

    def __call__(self, stream: Any, *parts: Any) -> None:
        """Send and receive."""
        ranks = self.ranks
        given = iter(parts)
        transfers = []
        for message in self.messages:
            part = None if message.dst is None else next(given)
            address = 0 if part is None else getattr(part, "ptr", None) or part.ctypes.data
            sends = message.source == ranks.rank
            other = message.target if sends else message.source
            tag = ranks.tag(self.first_tag + message.number)
            transfers.append(Transfer(message.name, other, sends, tag, address, message.nbytes, part))
        ranks.transport.exchange(transfers, ranks.timeout_s)


@dataclass(frozen=True)
class OnStream:
    """The function of a node that puts messages between devices, or a collective, on a stream; equal to those that do so."""

    __name__ = "messages"  # shown where a function's own name would be

    link: Nccl = field(compare=False)
    ranks: Ranks = field(compare=False)
    messages: tuple[Message, ...]  # in the order of the arrays that it is called with
    _last: list[Any] = field(default_factory=list, compare=False, repr=False)
    """Addresses, and what was issued for them."""

    def __call__(self, stream: Any, *parts: Any) -> None:
        """Put the work on the stream, and wait for nothing."""
        addresses = [part.ptr for part in parts]
        if not self._last or self._last[0] != addresses:
            calls = self._calls(addresses)
            names = listed([message.name for message in self.messages])
            self._last[:] = addresses, self.link.prepared(calls), _keys(self.messages), names
        _, prepared, keys, names = self._last
        self.link.issue(prepared, int(stream), keys, names)

    def prepared(self, *given: Any) -> list[LaunchCall] | None:
        """Return calls that do the same, of arrays on a stream, which comes last; None while a rank would be waited for."""
        *parts, stream = given
        if self.link.broken or self.link.unconnected(_keys(self.messages)):
            return None
        return self.link.group(self._calls([part.ptr for part in parts]), stream)

    def _calls(self, addresses: Sequence[int]) -> list[Call]:
        given = iter(addresses)
        return [call for message in self.messages for call in calls_of(message, self.ranks, lambda _: next(given))]


def calls_of(message: Message, ranks: Ranks, memory: Callable[[int], int]) -> Iterator[Call]:
    """Yield what this rank calls for a message; `memory` takes the bytes of the next array and returns its address."""
    whole = message.together
    if whole is None:
        sends = message.source == ranks.rank
        address = memory(message.nbytes)
        yield send(address, message.nbytes, message.target) if sends else receive(address, message.nbytes, message.source)
        return
    target, source = (0 if view is None else memory(view.nbytes) for view in whole.views_of(ranks.rank))
    dtype = whole.targets[0].dtype
    how = whole.does, whole.op, whole.root, dtype_name(dtype)
    yield from collective(*how, target, source, whole.part_bytes, dtype.itemsize, ranks.size)


def _keys(messages: Sequence[Message]) -> frozenset[Any]:
    """Return what tells whether the like of collectives has been done before: those of equal keys use the same connections."""
    wholes = [message.together for message in messages if message.together is not None]
    return frozenset((whole.does, whole.op, whole.root, str(whole.targets[0].dtype), whole.part_bytes) for whole in wholes)


def connect(link: Nccl, ranks: Ranks, messages: Sequence[Message], runtime: Runtime, device: int, *, captured: bool) -> None:
    """Connect this rank with those that it sends to or receives from, on memory of its own, where it is not yet.

    The library connects ranks in the first group that needs it, in the directions of that group alone, and goes wrong where the
    two ask for different ones: the messages that one of them may put into a group together the other may not. So each pair is
    connected in both directions, in one group on every rank. Every rank calls it with the same messages. Where they are captured,
    the like of each collective is done too, because what connects ranks can not be captured.
    """
    me = ranks.rank
    ends = [(m.source, m.target) for m in messages if m.on_devices and m.together is None]
    others = link.unconnected({source + target - me for source, target in ends if me in (source, target)})
    first: dict[frozenset[Any], Message] = {}
    for message in messages:
        if captured and message.together is not None:
            first.setdefault(_keys([message]), message)
    wholes = [message for keys, message in first.items() if link.unconnected(keys)]
    if not others and not wholes:
        return
    with runtime.using_device(device), link.watched("compile"), ExitStack() as held:
        stream = runtime.stream_create()
        held.callback(runtime.stream_destroy, stream)
        for whole in ([None] if others else []) + wholes:
            with ExitStack() as arrays:
                memory = partial(_allocated, runtime, arrays)
                if whole is None:
                    calls = [call(memory(1), 1, other) for other in sorted(others) for call in (send, receive)]
                else:
                    calls = list(calls_of(whole, ranks, memory))
                keys = others if whole is None else _keys([whole])
                link.issue(link.prepared(calls), stream, keys, "the first messages")
                while not runtime.stream_wait(stream, 0.05):
                    pass
                link.raise_broken()


def _allocated(runtime: Runtime, held: ExitStack, nbytes: int) -> int:
    """Return memory that is freed at the end of a block."""
    pointer = runtime.malloc(max(nbytes, 1))
    held.callback(runtime.free, pointer)
    return pointer
