"""Predictions for the rows of files."""
