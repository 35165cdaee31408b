"""Measures the costs of a run: seconds and memory per component."""
