"""Costs of a run: seconds and memory per component."""
