"""Columns of raw values: their encoding, and the inference of their types."""
