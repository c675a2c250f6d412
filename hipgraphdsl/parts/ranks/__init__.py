"""One graph over several processes: the part of each rank, and the messages between ranks."""

from .. import lazily

__getattr__ = lazily(__name__, {"builder": "doors", "shared_for_drawing": "doors", "shared_for_simulation": "doors"})
