"""The config's sections `requests` and `log`: how a model is asked, and what is kept of that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from trainer_module.sections import Settings


class OnUnreadable(StrEnum):
    """What a text does that the model cannot read as what its column is."""

    MISSING = "missing"
    REFUSE = "refuse"


class RequestSettings(Settings):
    """How `serve` and `predict` take what a model is asked."""

    on_unreadable: OnUnreadable = OnUnreadable.MISSING
    """What a text does that the model cannot read as the number, the date, or the yes or no of its
    column: it counts as a missing value, and is counted, or the request is refused."""


class LogSettings(Settings):
    """What `serve --log-requests` writes down."""

    drop: list[str] = []
    """Columns that are left out, such as those with people's names; those that `features` ignores
    are as well."""


DEFAULT_LIMIT = 4096
"""Megabytes that a log may have: days of a busy server, and little of a disk."""
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class LogOptions:
    """A log of requests."""

    folder: Path
    sample: float = 1.0
    """The share of requests that is written down."""
    most_bytes: int = DEFAULT_LIMIT * MEGABYTE
    """Of all its files; then the oldest day goes."""
    dropped: frozenset[str] = frozenset()
    """Columns of the data that are not written down."""
