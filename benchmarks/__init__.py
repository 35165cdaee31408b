"""Benchmarks against stock TFX and others; results are printed as tables, never asserted."""
