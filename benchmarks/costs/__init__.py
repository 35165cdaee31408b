"""What a run costs: seconds and memory, by component."""
