"""Days of retraining that are recorded without training."""
