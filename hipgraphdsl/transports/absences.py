"""Launches that a rank does not make although others do: it has refused them, or its program has ended before.

Every rank numbers the launches of an Executable alike, those that it refuses too. A refusal is an error of all ranks only where
another rank has made the launch of that number: what all refuse alike leaves them together.
"""

from __future__ import annotations

import json
from typing import Any


class Calls:
    """The launches of one Executable by this rank.

    Attributes
    ----------
    key : str
        The same on all ranks, and no other Executable's.
    what : str
        For errors.
    partners : frozenset of int
        The ranks that the devices of this one wait for.
    launcher : object or None
        What counts those that compiled code has made, if there is some.
    """

    def __init__(self, key: str, what: str, partners: frozenset[int], launcher: Any) -> None:
        self.key = key
        self.what = what
        self.partners = partners
        self.made = 0
        """How many it has made by Python."""
        self.launcher = launcher
        self.closed = False
        """Whether the Executable waits for nobody any more."""
        self._refused: dict[int, str] = {}

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

    def follow(self, *followed: Calls) -> None:
        """Count the calls of an Executable."""
        self._own = {
            **self._own,
            **{calls.key: calls for calls in followed},
        }  # another one: other threads may be looking through it

    @property
    def partners(self) -> frozenset[int]:
        """The ranks that the devices of this one wait for in any launch."""
        return frozenset().union(*(calls.partners for calls in self._own.values()))

    def told(self, *, ended: bool) -> bytes:
        """Return what the other ranks are to be told."""
        return json.dumps(
            {"ended": ended, "calls": {key: calls.told() for key, calls in self._own.items() if calls.count}}
        ).encode()

    def hear(self, rank: int, said: bytes) -> None:
        """Note what another rank has told."""
        self._told[rank] = json.loads(said)

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
