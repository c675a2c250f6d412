"""Executable: a compiled workflow with its own memory, launched again and again by one cheap call.

`executable.Executable` is what users hold: it locks, refuses what comes after the end, and hands each call to whoever owns
the data that the call is about.

===============  =================================================================================================
`arrangement`    what is to be done: the workflow, its plan, the steps, which are off, and every change to them
`built`          what has been built of that: the program, launched, changed in place, built afresh
`parameters`     values, the memory that they are bound to, and the steps that they reach
`memory`         arrays, guard zones, packed arrays: allocated, read, written, returned
`in_flight`      the own stream, and launches that nobody has waited for
`compiled`       the compiled call path, where there is one
`devices`        which device is the thread's current one, and which reach each other's memory
===============  =================================================================================================

Each knows only those below it, so nothing holds an Executable in a cycle. Beside them are functions without data of their own:
`changes` (the rules for other nodes), `scopes` (names to memory), `profiling`.
"""

from .built import UPDATES_BEFORE_AFRESH
from .executable import Executable
from .known import Known
from .stats import Stats

__all__ = ["UPDATES_BEFORE_AFRESH", "Executable", "Known", "Stats"]
