"""Whether a pipeline is due, and why: from its triggers, its history and what the data shows."""
