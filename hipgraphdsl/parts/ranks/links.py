"""Link: model of the connection between two ranks of a simulated machine, with the durations of messages and collectives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from numbers import Real

from ...errors import DeclarationError, shown


@dataclass(frozen=True, slots=True)
class Link:
    """The link between any two ranks, in each direction: a message takes ``latency_us + bytes / gb_s``.

    Messages from one rank to another are sequential; messages of other pairs, or in the other direction, do not slow them down.

    Attributes
    ----------
    latency_us : float
        Microseconds until the first byte arrives, from 0.
    gb_s : float
        Bandwidth, 10^9 bytes a second, above 0.

    Raises
    ------
    DeclarationError
        If a number is outside these ranges or not finite.
    """

    latency_us: float
    gb_s: float

    def __post_init__(self) -> None:
        for field, least in zip(fields(self), ("from 0", "above 0")):
            given = getattr(self, field.name)
            value = _as_float(given)
            if not 0 <= value < math.inf or (value == 0 and least == "above 0"):
                raise DeclarationError(f"Link: {field.name} is a finite number {least} (got {shown(given)})")
            object.__setattr__(self, field.name, value)

    def message_us(self, nbytes: int) -> float:
        """Return how long a message takes, in microseconds."""
        return self.latency_us + nbytes / (self.gb_s * 1e3)

    def collective_us(self, does: str, nbytes: int, size: int) -> float:
        """Return how long a collective of all ranks takes, in microseconds, with the algorithm that NCCL chooses.

        With latency a, time b per byte, p ranks and n bytes, and without the time of the reduction arithmetic:

        ===============================  ===============================  =====================================================
        all_reduce                       the shorter of the two           n: bytes on each rank
        .. by a ring                     ``2 (p - 1) (a + n b / p)``
        .. by a double binary tree       ``2 ceil(log2 p) a + 2 n b``
        all_gather, reduce_scatter       ``(p - 1) (a + n b)``            by a ring; n: bytes each rank contributes, or gets
        broadcast, reduce                ``(p - 1) a + n b``              by a pipeline along the ring; n: bytes on each rank
        all_to_all                       ``(p - 1) (a + n b)``            by pairs; n: bytes from each rank to each other rank
        ===============================  ===============================  =====================================================

        The ring of all_gather and reduce_scatter and the pairwise exchange are those of Thakur, Rabenseifner and Gropp,
        "Optimization of Collective Communication Operations in MPICH" (2005), sections 4.1 to 4.4; an all_reduce by a ring is a
        reduce_scatter followed by an all_gather. NCCL's algorithms per operation, and its choice of the one whose latency and
        bandwidth predict the shortest time, are in ``NCCL_ALGO`` of its documentation and in its ``src/graph/tuning.cc``.

        Parameters
        ----------
        does : {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"}
        nbytes : int
        size : int
            Number of participating ranks.
        """
        if size == 1:
            return 0.0
        a, b = self.latency_us, nbytes / (self.gb_s * 1e3)
        if does == "all_reduce":
            return min(2 * (size - 1) * (a + b / size), 2 * (size - 1).bit_length() * a + 2 * b)
        return (size - 1) * a + (b if does in ("broadcast", "reduce") else (size - 1) * b)


def _as_float(value: object) -> float:
    """Return a real number as a float, infinity if it is too large for a float, or NaN if it is not a real number."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.inf


def per_link(crossing: Iterable[tuple[tuple[int, int], int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the number of messages and total bytes per (sender, receiver), from each message's ends and size in bytes."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for ends, nbytes in crossing:
        count, total = found.get(ends, (0, 0))
        found[ends] = count + 1, total + nbytes
    return found
