"""Certifies a blessed model before it is pushed: all ways of asking it give the same answers."""
