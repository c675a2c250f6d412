"""One graph over several processes: the part of each rank, and the messages between ranks."""
