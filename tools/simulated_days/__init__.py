"""Records simulated nights of retraining, without training."""
