"""Requests and their answers, written down as spans that a later config can read."""
