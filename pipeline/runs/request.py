"""What a run is asked to do, besides what its config says."""

from __future__ import annotations

from dataclasses import dataclass

BY_HAND = "by hand"


@dataclass(frozen=True)
class RunRequest:
    """One run: why, up to which span, and how far."""

    because: str = BY_HAND
    """Goes into the ledger."""
    through: str | None = None
    """The span that the window ends at, a date or a number; default: the newest."""
    validate_only: bool = False
    """Whether to read and check the newest span, and go no further."""
    through_name: str = "--through"
    """What `through` was given as."""
