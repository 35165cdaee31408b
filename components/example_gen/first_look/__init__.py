"""Looks at local files before TFX is imported, by ExampleGen's own checks; `formats` names them."""

ALL = "all"
"""The one split of what is looked at: which splits the rows go to is not known yet."""
