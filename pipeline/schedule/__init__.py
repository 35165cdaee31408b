"""Retraining by itself: what is due and why, on which window of spans, and what came of it."""
