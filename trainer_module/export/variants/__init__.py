"""Variants of a model for other runtimes: described, run and measured without TensorFlow."""
