"""Reads, counts and weights transformed examples, and divides them among the replicas."""
