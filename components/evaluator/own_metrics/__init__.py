"""Metrics that TFMA has not, as its own classes."""
