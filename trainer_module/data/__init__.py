"""Transformed examples: counted, kept in memory, weighted, and dealt to the replicas in batches."""
