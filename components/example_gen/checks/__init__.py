"""Checks of the data before training. A failed check raises a DataError that describes the
correction.
"""
