"""Exit statuses of commands, and the errors that lead to them."""

from __future__ import annotations

GOOD, FAULTY, MISUSED, UNAVAILABLE = 0, 1, 2, 3
INTERRUPTED, PIPE = 130, 141  # what a shell reports for a program ended by SIGINT or SIGPIPE


class Misuse(Exception):
    """The command line is wrong; ends with status 2."""


class UserCodeFailed(Exception):
    """The user's own module or function raised; ends with status 1."""
