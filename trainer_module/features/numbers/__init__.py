"""Numbers: how they are written, and the scales that they are brought to."""
