"""Evaluator: what TFX measures and what it lacks, and a bound that every useful model keeps."""
