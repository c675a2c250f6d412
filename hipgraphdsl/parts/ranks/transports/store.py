"""A key-value store that all ranks can reach: torch's, under torchrun, or one that the user passes.

Every wait polls the store, because a store's own blocking wait does not end when a rank fails. Once a second, each rank writes a
heartbeat and checks that of the next rank: for 1024 ranks, the store gets 3072 such requests a second.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from ....errors import DeclarationError, RankError, RuntimeUnavailable
from .base import LOOK_S, Transfer, Transport, listed

_PREFIX: Final = "hipgraphdsl/"
_METHODS: Final = ("set", "get", "check", "delete_key")
_PART: Final = 4 << 20  # bytes of one value; torch's store accepts 8 MiB
_SLEEP_S: Final = 0.01  # between two polls of a long wait
_BEAT_S: Final = 1.0
_SILENT_S: Final = 30.0  # a rank without a heartbeat for so long has died


class StoreTransport(Transport):
    """Transport of one rank over a store, which no earlier run may have used.

    The store has ``set(key, bytes)``, ``get(key)``, ``check([key, ...])`` and ``delete_key(key)``, as torch's Store.

    Raises
    ------
    DeclarationError
        If the store lacks a method.
    RankError
        If the ranks do not meet in time.
    """

    name = "store"

    def __init__(self, store: Any, rank: int, size: int, timeout_s: float) -> None:
        missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
        if missing:
            raise DeclarationError(
                f"ranks: store has the methods {', '.join(_METHODS)}, as torch's Store (got {store!r}, without"
                f" {', '.join(missing)})"
            )
        super().__init__()
        self._store = store
        self.rank, self.size = rank, size
        self._met: Counter[int] = Counter()
        self._sent: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._notes = 0
        self._heard = b""
        """Last value read of key ``absent``, which each new report of a rank changes."""
        self._ended = threading.Event()
        self._require_store()
        self._meet(timeout_s)
        threading.Thread(target=self._beat, name="hipgraphdsl ranks", daemon=True).start()

    def _require_store(self) -> None:
        """Raise if the store does not do what its methods are for, or if this rank has used it before."""
        key, value = f"here/{self.rank}", b"\0rank %d" % self.rank
        if self._ask("check", [key]):
            raise DeclarationError(
                f"ranks: rank {self.rank} has used this store before, in an earlier run or another process; give each run a store"
                f" of its own, and each process a rank of its own (got {self._store!r})"
            )
        self._ask("set", key, value)
        there, got = self._ask("check", [key]), self._ask("get", key)
        if not there or not isinstance(got, (bytes, bytearray, memoryview)) or bytes(got) != value:
            raise DeclarationError(
                f"ranks: after store.set(key, {value!r}), check([key]) is true and get(key) gives these bytes (got"
                f" {there!r} and {got!r} from {self._store!r})"
            )
        self._ask("delete_key", key)
        if self._ask("check", [key]):
            raise DeclarationError(
                f"ranks: after store.delete_key(key), check([key]) is false (got {self._store!r}, which keeps it)"
            )
        self._ask("set", key, value)

    def all_gather(self, data: bytes, what: str, timeout_s: float, world: int = 0) -> list[bytes]:
        with self._meetings[world]:
            self._require_whole(what)
            number = self._met[world]
            self._met[world] += 1
            self._ask("set", f"gather/{world}/{number}/{self.rank}", data)
            keys = {f"gather/{world}/{number}/{rank}": rank for rank in range(self.size)}
            self._until(keys, "does not come to", what, timeout_s)
            found = [self._ask("get", key) for key in keys]
            if number:  # all have read the previous one, because they have come to this one
                self._ask("delete_key", f"gather/{world}/{number - 1}/{self.rank}")
            return [bytes(entry) for entry in found]

    def _meet_at_end(self) -> None:
        self._require_whole("the end")
        self._ask("set", f"ended/{self.rank}", b"")
        self._until({f"ended/{rank}": rank for rank in range(self.size)}, "does not come to", "the end", math.inf)

    def exchange(self, transfers: Sequence[Transfer], timeout_s: float) -> None:
        names = listed([transfer.name for transfer in transfers])
        self._require_whole(names)
        for transfer in sorted(transfers, key=lambda transfer: not transfer.sends):
            source, target = (self.rank, transfer.rank) if transfer.sends else (transfer.rank, self.rank)
            message = f"message/{source}/{target}/{transfer.tag}"
            parts = [(at, min(_PART, transfer.nbytes - at)) for at in range(0, max(transfer.nbytes, 1), _PART)]
            counter = self._sent if transfer.sends else self._taken
            if transfer.sends and counter[message]:  # one at a time, else the store accumulates messages to a slow rank
                last = f"{message}/{counter[message] - 1}/{len(parts) - 1}"
                self._until({last: transfer.rank}, "does not take", names, timeout_s, there=False)
            for part, (at, nbytes) in enumerate(parts):
                key = f"{message}/{counter[message]}/{part}"
                if transfer.sends:
                    self._ask("set", key, ctypes.string_at(transfer.address + at, nbytes) if nbytes else b"")
                    continue
                self._until({key: transfer.rank}, "does not send", names, timeout_s)
                value = bytes(self._ask("get", key))
                if len(value) != nbytes:
                    self._raise(f"the store gives {len(value)} bytes of {transfer.name!r}, of which {nbytes} were sent", None)
                ctypes.memmove(transfer.address + at, value, nbytes)
                self._ask("delete_key", key)
            counter[message] += 1

    def _until(self, keys: dict[str, int], doing: str, what: str, timeout_s: float, *, there: bool = True) -> None:
        """Wait until all keys are set, or deleted if not `there`; `keys` maps each to the rank that must set or delete it."""
        wanted = list(keys)

        def late() -> dict[int, str]:
            return {rank: f"{doing} {what}" for key, rank in keys.items() if self._ask("check", [key]) != there}

        self.wait_until(lambda: self._ask("check", wanted) == there, late, what, timeout_s, _SLEEP_S)

    def _has_ended(self, rank: int) -> bool:
        return bool(self._ask("check", [f"ended/{rank}"]))

    def _ask(self, action: str, key: Any, *value: bytes) -> Any:
        named = [_PREFIX + entry for entry in key] if isinstance(key, list) else _PREFIX + key
        try:
            return getattr(self._store, action)(named, *value)
        except Exception as error:
            if not self._why:
                who, dead = "the store does not answer, whose process may have ended", None
                if self._neighbours is not None and (dead := self._neighbours.dead(LOOK_S)) is not None:
                    who = f"rank {dead} has died, and the store does not answer"
                self._why, self._culprit = f"{who}: {type(error).__name__}: {error}", dead
            raise RankError(self._why, rank=self._culprit) from error

    def _failure(self) -> bytes:
        return bytes(self._ask("get", "failed")) if self._ask("check", ["failed"]) else b""

    def _beat(self) -> None:
        """Write this rank's heartbeat once a second, and check that of the next rank."""
        assert self._neighbours is not None
        other, heard, since = (self.rank + 1) % self.size, b"", time.monotonic()
        count = 0
        with suppress(RankError):  # waiting threads raise it
            while not self._ended.wait(_BEAT_S):
                count += 1
                self._ask("set", f"alive/{self.rank}", str(count).encode())
                key = f"alive/{other}"
                said = bytes(self._ask("get", key)) if self._ask("check", [key]) else b""
                if said != heard or other in self._neighbours:
                    heard, since = said, time.monotonic()
                elif time.monotonic() - since > _SILENT_S:
                    self.fail(f"rank {other} has died: it has said nothing for {_SILENT_S:.0f} s", other)

    def _tell(self, note: bytes) -> None:
        with suppress(RankError):
            if not self._ask("check", ["failed"]):
                self._ask("set", "failed", note)

    def _tell_absences(self, told: bytes) -> None:
        self._ask("set", f"absent/{self.rank}", told)
        self._notes += 1
        self._ask("set", "absent", b"%d/%d" % (self.rank, self._notes))  # a new value each time, so that others notice

    def _hear_absences(self) -> None:
        last = bytes(self._ask("get", "absent")) if self._ask("check", ["absent"]) else b""
        if last != self._heard:
            self._heard = last
            for rank in range(self.size):
                if rank != self.rank and self._ask("check", [f"absent/{rank}"]):
                    self._hear_absences_of(rank, bytes(self._ask("get", f"absent/{rank}")))

    def close(self) -> None:
        atexit.unregister(self.close)
        if self.forked or self._ended.is_set():
            return
        self._come_to_end()
        self._ended.set()


def torch_store(timeout_s: float) -> tuple[Any, int, int]:
    """Return the store of torchrun's environment, the rank and the number of ranks.

    Raises
    ------
    RuntimeUnavailable
        If torch is not installed.
    RankError
        If the store cannot be reached in time.
    """
    from datetime import timedelta

    try:
        import torch.distributed as torch_distributed  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise RuntimeUnavailable(
            "this program was started as several ranks with torchrun's environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),"
            " and torch, whose store they meet by, is not there: install it, or call hg.ranks(rank=, size=, store=)",
            runtime="store",
            missing="binding",
        ) from error
    try:
        store, rank, size = next(torch_distributed.rendezvous("env://", timeout=timedelta(seconds=timeout_s)))
    except (RuntimeError, ValueError) as error:  # torch.distributed.DistError is a RuntimeError
        raise RankError(f"torch's store cannot be reached: {error}") from error
    return store, int(rank), int(size)
