"""Finds a pipeline's data files and spans, and fetches published weights."""
