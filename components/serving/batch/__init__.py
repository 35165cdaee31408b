"""Batch predictions for the rows of files."""
