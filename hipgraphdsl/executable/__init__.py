"""Executable: a compiled workflow with its own memory, launched again and again by one cheap call.

`executable.Executable` is what users hold: it locks, refuses what comes after the end, and hands each call to whoever owns
the data that the call is about.

===============  =================================================================================================
`state`          what the graph is between two changes: workflow, plan, which steps are off; and a change to the next
`changes`        the rules: from a state and what is asked to the change
`instance`       the program that does what the state says: built, launched, changed, built afresh
`parameters`     values, and the memory that they are bound to
`memory`         arrays, guard zones, packed arrays: allocated, read, written, returned
`in_flight`      the own stream, and launches that nobody has waited for
`compiled`       the compiled call path, where there is one
`devices`        which device is the thread's current one, and which reach each other's memory
===============  =================================================================================================

None knows the Executable, so nothing holds it in a cycle. Beside them are functions without data of their own: `uses` (what nodes
use, looked up when it is asked), `locking` (page-locks what must be), `scopes` (names to memory), `profiling`.
"""

from .executable import Executable
from .instance import UPDATES_BEFORE_AFRESH
from .known import Known
from .stats import Stats

__all__ = ["UPDATES_BEFORE_AFRESH", "Executable", "Known", "Stats"]
