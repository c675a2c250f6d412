"""Calls that a rank does not make although others do: it has refused them, its program has ended earlier, or it is late.

All ranks number the launches of an Executable alike, including refused ones. A refusal is an error for all ranks only if
another rank has made the launch of that number; a launch that all ranks refuse keeps them in step. The same holds for `gather`.

When a wait times out, the rank waited for may itself wait for another one. So ranks ask each other which ranks they wait for;
the rank at fault is one that waits for no other.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ASK_S: Final = 1.0
"""How long a rank whose wait has timed out waits for the others to report which ranks they wait for."""


@dataclass
class Calls:
    """The launches of one Executable by this rank."""

    key: str  # the same on all ranks, unique to the Executable
    what: str  # for errors
    partners: frozenset[int]  # the ranks that the devices of this one wait for
    launcher: Any  # counts the launches that compiled code has made; None if there is none
    made: int = 0  # launches made by Python
    closed: bool = False  # whether the Executable no longer waits for other ranks
    _refused: list[tuple[int, int, str]] = field(default_factory=list)
    """The refused launches: number of the first, how many follow each other for one reason, and the reason."""

    @property
    def count(self) -> int:
        """Number of launches requested so far, made or refused, without one that is still being checked."""
        refused = sum(count for _, count, _ in self._refused)
        return self.made + refused + (0 if self.launcher is None else self.launcher.launches)

    def refuse(self, why: str) -> None:
        """Record that the current launch is refused."""
        first, count, reason = self._refused[-1] if self._refused else (0, 0, "")
        if reason == why and first + count == self.count:
            self._refused[-1] = first, count + 1, why
        else:
            self._refused.append((self.count, 1, why))

    def has_made(self, first: int, count: int) -> bool:
        """Return whether any of `count` launches has been made; `first` is the number of the first, from 0."""
        end = min(first + count, self.count)
        refused = sum(max(min(end, mine + n) - max(first, mine), 0) for mine, n, _ in self._refused)
        return end - first > refused

    def told(self) -> dict[str, Any]:
        """Return the counts and refusals to report to the other ranks."""
        return {"refused": self._refused, "count": self.count}


class Absences:
    """Reports of this rank and of the others: which launches they do not make, and which ranks they wait for."""

    def __init__(self) -> None:
        self._own: dict[str, Calls] = {}
        self._told: dict[int, dict[str, Any]] = {}
        self._waits: dict[int, Mapping[int, str]] = {}
        """By thread ID, the ranks that the thread waits for, each with its missing action, such as "does not send 'x'"."""
        self._number = 0
        self.asks = False
        """Whether this rank asks the others which ranks they wait for."""

    def follow(self, *followed: Calls) -> None:
        """Track the calls of an Executable."""
        more = {calls.key: calls for calls in followed}
        self._own = {**self._own, **more}  # a new dict: other threads may be iterating over the old one

    @property
    def partners(self) -> frozenset[int]:
        """The ranks that the devices of this one wait for in any launch."""
        return frozenset().union(*(calls.partners for calls in self._own.values()))

    def wait_for(self, late: Mapping[int, str]) -> None:
        """Record which ranks this thread waits for now, each with its missing action."""
        self._waits[threading.get_ident()] = late

    def told(self, *, ended: bool = False) -> bytes:
        """Return a new report for the other ranks."""
        self._number += 1
        calls = {key: calls.told() for key, calls in self._own.items() if calls.count}
        waits = {rank: doing for late in tuple(self._waits.values()) for rank, doing in late.items()}
        return json.dumps({"number": self._number, "ended": ended, "calls": calls, "waits": waits, "asks": self.asks}).encode()

    def hear(self, rank: int, said: bytes) -> bool:
        """Store the report of another rank; return whether it is new and asks which ranks this one waits for."""
        told = json.loads(said)
        if told["number"] == self._told.get(rank, {}).get("number"):
            return False
        self._told[rank] = {**told, "at": time.monotonic()}
        return bool(told["asks"])

    def waiting(self, rank: int) -> dict[int, str]:
        """Return which ranks another rank waits for by its last report; empty if that is older than ``2 * ASK_S``."""
        said = self._told.get(rank)
        if said is None or time.monotonic() - said["at"] > 2 * ASK_S:
            return {}
        return {int(other): doing for other, doing in said["waits"].items()}

    def at_fault(self, late: Mapping[int, str], me: int) -> tuple[int, str] | None:
        """Return a rank that blocks rank `me` and waits for no other, and its missing action; None if all wait."""
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
        """Return why another rank does not make a launch that this rank has made, and that rank; None if all are made."""
        for rank, said in self._told.items():
            for key, calls in self._own.items():
                if calls.closed:
                    continue
                theirs = said["calls"].get(key, {"refused": [], "count": 0})
                for first, count, why in theirs["refused"]:
                    if calls.has_made(first, count):
                        return f"rank {rank} has refused {calls.what}: {why}", rank
                if said["ended"] and rank in calls.partners and calls.count > theirs["count"]:
                    return f"rank {rank} has come to the end of its program, without {calls.what}", rank
        return None
