"""Simulated days of retraining, recorded without training."""
