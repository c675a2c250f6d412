"""Launches of several nodes as one (batches and chains), and launches that begin while those before them end."""

from .batching import entry_of
from .chains import with_chains
from .grouping import in_batches
from .programmatic import with_programmatic_edges
from .waiting import waiting_source, waits

__all__ = ["entry_of", "in_batches", "waiting_source", "waits", "with_chains", "with_programmatic_edges"]
