"""Text: normalised, taken apart, and counted in TensorFlow's own operations."""
