"""What a run left behind: read from its artifacts, or from what its steps reported."""
