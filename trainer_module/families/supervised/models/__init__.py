"""The networks that learn a label."""
