"""What a look at local files finds before TFX is imported; `formats` says who takes it."""

from __future__ import annotations

from dataclasses import dataclass

ALL = "all"
"""The one split of what is looked at: which splits the rows go to is not known yet."""


@dataclass(frozen=True)
class FirstLook:
    """What was found in files that can be used."""

    columns: frozenset[str]
    """Their names."""
    notes: tuple[str, ...] = ()
    """What people should know of how the files are read."""
