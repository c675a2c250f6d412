"""The plan as data (`steps`), and the passes that make one of a workflow (`planning`)."""
