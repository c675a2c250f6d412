"""What nodes call that cross between ranks: messages through the host, and messages and collectives on a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .collectives import dtype_name
from .partition import Message
from .runtimes.base import Runtime
from .transports import Transfer
from .transports.nccl import Call, Nccl, collective, receive, send
from .world import Ranks


@dataclass(frozen=True)
class Exchange:
    """The function of an eager node that sends and receives; equal to others that do the same.

    Attributes
    ----------
    ranks : Ranks
    messages : tuple of Message
        In the order of the arrays that it is called with; those without bytes take none.
    first_tag : int
    """

    waits: ClassVar[bool] = True
    """It is called when everything before has been done."""

    ranks: Ranks = field(compare=False)
    messages: tuple[Message, ...]
    first_tag: int

    def __call__(self, stream: Any, *parts: Any) -> None:
        """Send and receive; everything before has been done.

        Raises
        ------
        RankError
        """
        ranks = self.ranks
        given = iter(parts)
        transfers = []
        for message in self.messages:
            part = None if message.dst is None else next(given)
            address = 0 if part is None else getattr(part, "ptr", None) or part.ctypes.data
            sends = message.source == ranks.rank
            other = message.target if sends else message.source
            tag = self.first_tag + message.number
            transfers.append(Transfer(message.name, other, sends, tag, address, message.nbytes, part))
        ranks.transport.exchange(transfers, ranks.timeout_s)

    @property
    def __name__(self) -> str:  # shown where a function's own name would be
        return "exchange"


@dataclass(frozen=True)
class OnStream:
    """The function of a node that puts messages between devices, or a collective, on a stream; equal to others that do the same.

    Attributes
    ----------
    link : Nccl
    ranks : Ranks
    messages : tuple of Message
        In the order of the arrays that it is called with.
    """

    link: Nccl = field(compare=False)
    ranks: Ranks = field(compare=False)
    messages: tuple[Message, ...]
    _last: list[Any] = field(default_factory=list, compare=False, repr=False)
    """Addresses, and what was issued for them."""

    def __call__(self, stream: Any, *parts: Any) -> None:
        """Put the work on the stream, and wait for nothing.

        Raises
        ------
        RankError
        """
        addresses = [part.ptr for part in parts]
        if not self._last or self._last[0] != addresses:
            given = iter(addresses)
            calls = [call for message in self.messages for call in calls_of(message, self.ranks, lambda _: next(given))]
            names = ", ".join(repr(message.name) for message in self.messages[:4]) + ", ..." * (len(self.messages) > 4)
            keys = frozenset(_key(message, self.ranks.rank) for message in self.messages)
            self._last[:] = addresses, self.link.prepared(calls), keys, names
        _, prepared, keys, names = self._last
        self.link.issue(prepared, int(stream), keys, names)

    @property
    def __name__(self) -> str:  # shown where a function's own name would be
        return "messages"


def calls_of(message: Message, ranks: Ranks, memory: Callable[[int], int]) -> Iterator[Call]:
    """Yield what this rank calls for a message.

    Parameters
    ----------
    memory : callable
        Returns the address of the next array, of which the number of bytes is given.
    """
    whole = message.together
    if whole is None:
        sends = message.source == ranks.rank
        address = memory(message.nbytes)
        yield send(address, message.nbytes, message.target) if sends else receive(address, message.nbytes, message.source)
        return
    views = whole.of(ranks.rank)
    target, source = (0 if view is None else memory(view.nbytes) for view in views)
    some = next(view for view in (*whole.targets, *whole.sources))
    yield from collective(
        whole.does,
        whole.op,
        whole.root,
        dtype_name(some.dtype),
        target,
        source,
        whole.part_bytes,
        some.dtype.itemsize,
        ranks.size,
    )


def _key(message: Message, rank: int) -> tuple[Any, ...]:
    """Return what messages have in common that use the same connections."""
    whole = message.together
    if whole is None:
        return (message.target,) if message.source == rank else (message.source, "gives")
    return whole.does, whole.op, whole.root, str(whole.targets[0].dtype), whole.part_bytes


def connect(link: Nccl, ranks: Ranks, messages: Sequence[Message], runtime: Runtime, device: int) -> None:
    """Do the like of all messages once, on memory of its own: what connects ranks can not be captured.

    Every rank calls it with the same messages.

    Raises
    ------
    RankError
    """
    mine = [m for m in messages if m.on_devices and (m.together is not None or ranks.rank in (m.source, m.target))]
    first = {_key(message, ranks.rank): message for message in reversed(mine)}
    kept = [message for message in mine if first[_key(message, ranks.rank)] is message]
    groups = [[message] for message in kept if message.together is not None]
    pairs = [message for message in kept if message.together is None]
    with runtime.using_device(device), link.watched("compile"):
        stream = runtime.stream_create()
        try:
            for group in ([pairs] if pairs else []) + groups:
                made: list[int] = []

                def memory(nbytes: int, made: list[int] = made) -> int:
                    made.append(runtime.malloc(max(nbytes, 1)))
                    return made[-1]

                try:
                    calls = [call for message in group for call in calls_of(message, ranks, memory)]
                    keys = frozenset(_key(message, ranks.rank) for message in group)
                    link.issue(link.prepared(calls), stream, keys, "the first messages")
                    while not runtime.stream_wait(stream, 0.05):
                        pass
                    link.raise_broken()
                finally:
                    for pointer in made:
                        runtime.free(pointer)
        finally:
            runtime.stream_destroy(stream)
