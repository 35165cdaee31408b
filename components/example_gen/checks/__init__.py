"""Checks of whether a model can learn from the data; each raises a DataError that names the
remedy.
"""
