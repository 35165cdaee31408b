"""Transformed examples: counted, kept in memory, weighted, and divided among the replicas in
batches.
"""
