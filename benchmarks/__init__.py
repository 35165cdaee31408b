"""Benchmarks of Scopeline, and comparisons with stock TFX, Keras and TensorFlow.

The benchmarks print tables and assert nothing.
"""
