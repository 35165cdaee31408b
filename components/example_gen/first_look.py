"""What the looks at local files before TFX is imported share; `formats` says who takes one."""

ALL = "all"
"""The one split of what is looked at: which splits the rows go to is not known yet."""
