"""Measurements against stock TFX, side by side; printed as tables, never asserted."""
