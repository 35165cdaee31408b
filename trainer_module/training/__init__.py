"""Trains networks: loops, callbacks, checkpoints, optimizers and compression."""
