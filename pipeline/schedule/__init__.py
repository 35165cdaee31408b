"""Scheduled retraining: decides when a run is due and on which window of spans, and starts it."""
