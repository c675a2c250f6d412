"""One graph over several processes: the part of each rank, and the messages between ranks."""

from .doors import builder, shared_for_drawing, shared_for_simulation

__all__ = ["builder", "shared_for_drawing", "shared_for_simulation"]
