"""Gradient-boosted trees: grown by YDF, exported as plain TensorFlow operations."""
