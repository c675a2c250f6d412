"""Counts and times of one Executable."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True, repr=False)
class Stats:
    """Counts and times of one Executable.

    Attributes
    ----------
    nodes, edges, lanes : int
        Of the plan.
    launches : int
        Launches so far.
    instantiations : int
        How often the graph has been instantiated; more than 1 after changes that could not be made in place.
    updates : int
        Nodes whose parameters were set in place.
    plan_us, build_us : float
        Times of the last planning and of the last building with instantiation, in microseconds.
    device_bytes, host_bytes : int
        Memory that the Executable owns.
    """

    nodes: int = 0
    edges: int = 0
    lanes: int = 0
    launches: int = 0
    instantiations: int = 0
    updates: int = 0
    plan_us: float = 0.0
    build_us: float = 0.0
    device_bytes: int = 0
    host_bytes: int = 0

    def include(self, before: Stats) -> None:
        """Add the counts of a graph that has been replaced."""
        self.instantiations += before.instantiations
        self.launches += before.launches
        self.updates += before.updates

    def __repr__(self) -> str:
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        shown = (f"{name}={value:.1f}" if isinstance(value, float) else f"{name}={value}" for name, value in values)
        return f"Stats({', '.join(shown)})"
