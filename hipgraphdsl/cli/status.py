"""What a command ends with: its exit status, and the errors that choose it."""

from __future__ import annotations

GOOD, FAULTY, MISUSED, UNAVAILABLE = 0, 1, 2, 3
INTERRUPTED, PIPE = 130, 141  # what a shell reports for a program that SIGINT or SIGPIPE ended


class Misuse(Exception):
    """The command line is wrong; ends with status 2."""


class UserCodeFailed(Exception):
    """The user's own module or function raised; ends with status 1."""
