"""Pictures and pages of workflows and timelines."""
