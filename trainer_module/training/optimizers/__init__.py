"""Optimizers: built from the settings, with their learning rates, and with leaner steps."""
