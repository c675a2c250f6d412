"""Launches of several nodes as one (batches and chains), and launches that begin while those before them end."""

from .. import lazily

__getattr__ = lazily(
    __name__,
    {
        "entry_of": "batching",
        "in_batches": "grouping",
        "waiting_source": "waiting",
        "waits": "waiting",
        "with_chains": "chains",
        "with_programmatic_edges": "programmatic",
    },
)
