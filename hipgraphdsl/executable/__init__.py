"""Executable: a compiled workflow with its own memory, launched repeatedly by one cheap call.

`executable.Executable` is the public class: it locks, refuses calls after `close`, and delegates each call to the object that
owns the data. `state` describes the graph between two changes, `changes` computes the next state from a request, and `instance`
owns all resources and applies a state to the program. docs/architecture.md describes the whole design.
"""

from .executable import Executable
from .instance import UPDATES_BEFORE_AFRESH
from .stats import Stats

__all__ = ["UPDATES_BEFORE_AFRESH", "Executable", "Stats"]
