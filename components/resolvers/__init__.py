"""Resolver strategies: which spans, statistics, caches and earlier models a run uses."""
