"""Evaluator: what TFX measures, and a bound that every useful model keeps."""
