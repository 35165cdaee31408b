"""`train`, and its sections."""
