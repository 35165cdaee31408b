"""Text features: normalisation, tokenization and counting, in TensorFlow's own operations."""
