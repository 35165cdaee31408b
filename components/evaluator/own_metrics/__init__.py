"""Metrics that TFMA has not got, or not in this sense: the same as scikit-learn's of their names.

TFMA finds them by module and class name, and makes them of their name alone.
"""
