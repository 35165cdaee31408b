"""Describes, runs and measures the variants of a model for other runtimes, without TensorFlow."""
