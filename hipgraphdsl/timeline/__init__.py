"""When nodes ran, or would run."""
