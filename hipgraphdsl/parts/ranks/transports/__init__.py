"""Transports: how bytes get from one rank to another. Each imports its library when it is opened, and no other module does."""

from .absences import Calls
from .base import WORLDS, Transfer, Transport, listed
from .single import SingleTransport

__all__ = ["WORLDS", "Calls", "SingleTransport", "Transfer", "Transport", "listed"]
