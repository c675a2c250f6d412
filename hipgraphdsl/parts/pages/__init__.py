"""Interactive pages of workflows and timelines."""
