"""Executable: a compiled workflow with its own memory, launched again and again by one cheap call.

`executable.Executable` is what users hold: it locks, refuses what comes after the end, and hands each call to whoever owns the
data that the call is about. `state` is what the graph is between two changes, `changes` makes the next one of what is asked, and
`instance` owns everything and lets the program do what the state says. docs/architecture.md has the whole.
"""

from .executable import Executable
from .instance import UPDATES_BEFORE_AFRESH
from .known import Known
from .stats import Stats

__all__ = ["UPDATES_BEFORE_AFRESH", "Executable", "Known", "Stats"]
