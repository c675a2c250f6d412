"""Calls that a rank does not make although others do: it has refused them, its program has ended before, or it is late.

Every rank numbers the launches of an Executable alike, those that it refuses too. A refusal is an error of all ranks only where
another rank has made the launch of that number: what all refuse alike leaves them together. The same holds for `gather`.

A wait whose time is up may be for a rank that itself waits for another one. So ranks ask each other whom they wait for; at fault
is one that waits for nobody.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ASK_S: Final = 1.0
"""How long a rank that gives up a wait lets the others say whom they wait for."""


@dataclass
class Calls:
    """The launches of one Executable by this rank."""

    key: str  # the same on all ranks, and no other Executable's
    what: str  # for errors
    partners: frozenset[int]  # the ranks that the devices of this one wait for
    launcher: Any  # what counts those that compiled code has made; None if there is none
    made: int = 0  # by Python
    closed: bool = False  # whether the Executable waits for nobody any more
    _refused: dict[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many launches have been asked for so far, without one that is still being judged."""
        return self.made + len(self._refused) + (0 if self.launcher is None else self.launcher.launches)

    def refuse(self, why: str) -> None:
        """Note that the launch at hand is refused."""
        self._refused[self.count] = why

    def has_made(self, number: int) -> bool:
        """Return whether a launch has been made, by its number from 0."""
        return number < self.count and number not in self._refused

    def told(self) -> dict[str, Any]:
        """Return what the other ranks are told."""
        return {"refused": self._refused, "count": self.count}


class Absences:
    """What this rank and the others have told of launches that they do not make."""

    def __init__(self) -> None:
        self._own: dict[str, Calls] = {}
        self._told: dict[int, dict[str, Any]] = {}
        self._waits: dict[int, Mapping[int, str]] = {}
        """By thread the ranks that it waits for, each with what that one does not do."""
        self._number = 0
        self.asks = False
        """Whether this rank asks the others whom they wait for."""

    def follow(self, *followed: Calls) -> None:
        """Count the calls of an Executable."""
        more = {calls.key: calls for calls in followed}
        self._own = {**self._own, **more}  # another dict: other threads may be looking through it

    @property
    def partners(self) -> frozenset[int]:
        """The ranks that the devices of this one wait for in any launch."""
        return frozenset().union(*(calls.partners for calls in self._own.values()))

    def wait_for(self, late: Mapping[int, str]) -> None:
        """Note which ranks this thread waits for now, each with what it does not do."""
        self._waits[threading.get_ident()] = late

    def told(self, *, ended: bool = False) -> bytes:
        """Return what the other ranks are to be told."""
        self._number += 1
        calls = {key: calls.told() for key, calls in self._own.items() if calls.count}
        waits = {rank: doing for late in tuple(self._waits.values()) for rank, doing in late.items()}
        return json.dumps({"number": self._number, "ended": ended, "calls": calls, "waits": waits, "asks": self.asks}).encode()

    def hear(self, rank: int, said: bytes) -> bool:
        """Note what another rank has told; return whether that is new, and asks whom this one waits for."""
        told = json.loads(said)
        if told["number"] == self._told.get(rank, {}).get("number"):
            return False
        self._told[rank] = {**told, "at": time.monotonic()}
        return bool(told["asks"])

    def waiting(self, rank: int) -> dict[int, str]:
        """Return whom another rank waits for, as it has told a moment ago."""
        said = self._told.get(rank)
        if said is None or time.monotonic() - said["at"] > 2 * ASK_S:
            return {}
        return {int(other): doing for other, doing in said["waits"].items()}

    def at_fault(self, late: Mapping[int, str], me: int) -> tuple[int, str] | None:
        """Return a rank that keeps rank `me` waiting and waits for nobody, and what it does not do; None if all wait."""
        found = {me: "", **late}
        ranks = [*late]
        for rank in ranks:
            theirs = self.waiting(rank)
            if not theirs:
                return rank, found[rank]
            more = {other: f"{doing}, which rank {rank} waits for" for other, doing in theirs.items() if other not in found}
            found |= more
            ranks += more
        return None

    def missed(self) -> tuple[str, int] | None:
        """Return why a launch that this rank has made lacks another rank, and that rank's number."""
        for rank, said in self._told.items():
            for key, calls in self._own.items():
                if calls.closed:
                    continue
                theirs = said["calls"].get(key, {"refused": {}, "count": 0})
                for number, why in theirs["refused"].items():
                    if calls.has_made(int(number)):
                        return f"rank {rank} has refused {calls.what}: {why}", rank
                if said["ended"] and rank in calls.partners and calls.count > theirs["count"]:
                    return f"rank {rank} has come to the end of its program, without {calls.what}", rank
        return None
