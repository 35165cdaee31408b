"""The config's sections `requests` (handling of inputs) and `log` (log of requests)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from trainer_module.sections import Settings


class OnUnreadable(StrEnum):
    """The treatment of texts that the model cannot parse as values of their column."""

    MISSING = "missing"
    """The text counts as a missing value, and the number of such texts is reported."""
    REFUSE = "refuse"
    """The request is rejected."""


class RequestSettings(Settings):
    """How `serve` and `predict` treat inputs."""

    on_unreadable: OnUnreadable = OnUnreadable.MISSING
    """The treatment of a text that the model cannot parse as the number, date or boolean of its
    column: `missing` counts it as a missing value and reports the number of such texts, `refuse`
    rejects the request."""


class LogSettings(Settings):
    """The contents of the log that `serve --log-requests` writes."""

    drop: list[str] = []
    """Columns to leave out of the log, such as names of people. Columns that `features` ignores are
    left out as well."""


SHOWN_COLUMNS = 5
"""The default number of columns in the explanation of a prediction."""
DEFAULT_LIMIT = 4096
"""The default size limit of a log in megabytes: enough for days of a busy server."""
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class LogOptions:
    """The options of a log of requests."""

    folder: Path
    sample: float = 1.0
    """The share of requests that is logged."""
    max_bytes: int = DEFAULT_LIMIT * MEGABYTE
    """The size limit of all files together. If they exceed the limit, the oldest day is deleted."""
    dropped: frozenset[str] = frozenset()
    """The columns of the data that are not logged."""
