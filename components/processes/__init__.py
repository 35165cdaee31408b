"""Starts the processes of a cluster, watches them and says what went wrong.

TensorFlow is imported by `server` alone, once it serves.
"""
