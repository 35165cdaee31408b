"""What a candidate came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TrialResult:
    """What a candidate came to."""

    value: float
    """Of the objective, at the epoch that would be exported."""
    metrics: Mapping[str, float]
    """All that was measured there."""
    examples: int
    """That it was measured on."""
    epochs: int
    best_epoch: int
    was_pruned: bool
    """Whether it was given up before its end."""
    seconds: float
