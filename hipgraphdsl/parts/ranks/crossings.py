"""Node functions that communicate between ranks: messages through the host, and messages and collectives on a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from ...nodes.collective import dtype_name
from ...runtimes.base import Runtime
from ...runtimes.data import LaunchCall
from .sharing import Message
from .transports import Transfer, listed
from .transports.nccl import Call, Nccl, collective, receive, send
from .world import Ranks


@dataclass(frozen=True)
class _Messages:
    """Base of functions of nodes: two are equal if they issue the same messages, also from other arrays of the same names."""

    ranks: Ranks = field(compare=False)
    messages: tuple[Message, ...] = field(compare=False)  # in the order of the array arguments; those without bytes have none
    _contents: tuple[tuple[Any, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_contents", tuple(message.content for message in self.messages))


@dataclass(frozen=True)
class Exchange(_Messages):
    """Function of an eager node that sends and receives; equal to others with the same messages and tags."""

    waits: ClassVar[bool] = True
    """The backend waits for the stream before it calls the function."""
    __name__ = "exchange"  # shown in place of a function's name

    first_tag: int

    def __call__(self, stream: Any, *parts: Any) -> None:
        """Send and receive all messages, and wait until they are done."""
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
class OnStream(_Messages):
    """Function of a node that issues device messages or a collective on a stream; equal to others with the same messages."""

    __name__ = "messages"  # shown in place of a function's name

    link: Nccl = field(compare=False)
    _last: list[Any] = field(default_factory=list, compare=False, repr=False)
    """Cache of the last call: array addresses, prepared calls, connection keys and message names."""

    def __call__(self, stream: Any, *parts: Any) -> None:
        """Issue the work on the stream without waiting for it."""
        addresses = [part.ptr for part in parts]
        if not self._last or self._last[0] != addresses:
            calls = self._calls(addresses)
            names = listed([message.name for message in self.messages])
            self._last[:] = addresses, self.link.prepared(calls), _keys(self.messages), names
        _, prepared, keys, names = self._last
        self.link.issue(prepared, int(stream), keys, names)

    def prepared(self, *given: Any) -> list[LaunchCall] | None:
        """Return the equivalent calls for arrays and a stream, given last; None if broken or if ranks are not yet connected."""
        *parts, stream = given
        if self.link.broken or self.link.unconnected(_keys(self.messages)):
            return None
        return self.link.group(self._calls([part.ptr for part in parts]), stream)

    def _calls(self, addresses: Sequence[int]) -> list[Call]:
        given = iter(addresses)
        return [call for message in self.messages for call in calls_of(message, self.ranks, lambda _: next(given))]


def calls_of(message: Message, ranks: Ranks, memory: Callable[[int], int]) -> Iterator[Call]:
    """Yield this rank's calls for a message; `memory` takes the size of the next array in bytes and returns its address."""
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
    """Return the connection keys of the collectives: collectives with equal keys use the same connections."""
    wholes = [message.together for message in messages if message.together is not None]
    return frozenset((whole.does, whole.op, whole.root, str(whole.targets[0].dtype), whole.part_bytes) for whole in wholes)


def connect(link: Nccl, ranks: Ranks, messages: Sequence[Message], runtime: Runtime, device: int, *, captured: bool) -> None:
    """Connect this rank with each peer that it exchanges messages with and is not yet connected to, using temporary memory.

    The library connects two ranks in the first group that needs it, only in the directions of that group, and fails if the two
    ranks ask for different directions: one rank may group messages that the other may not. Each pair is therefore connected in
    both directions, in one group on every rank. Every rank calls this function with the same messages. If messages are captured,
    one collective per connection key runs here too, because the calls that connect ranks cannot be captured.
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
    """Return device memory that `held` frees when it closes."""
    pointer = runtime.malloc(max(nbytes, 1))
    held.callback(runtime.free, pointer)
    return pointer
