"""Weights of an earlier model as the start of a training."""
