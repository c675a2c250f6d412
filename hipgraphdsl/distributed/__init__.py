"""One graph over several processes: the part of each rank, and what crosses between them."""
