"""Certification of a blessed model before its push: all interfaces have to predict the same."""
