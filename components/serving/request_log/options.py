"""What is written down of requests, and where: as the command line and the config say."""

from __future__ import annotations

import difflib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from components.serving.versions import newest_version
from trainer_module.errors import ConfigError
from trainer_module.export.interface import read_interface

DEFAULT_LIMIT = 4096
"""Megabytes that a log may have: days of a busy server, and little of a disk."""
MEGABYTE = 1_000_000
_NEAR = 0.8
"""Names that are as like as this may be meant for each other."""


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


def check_log(options: LogOptions) -> None:
    """Makes the folder.

    Raises:
      ConfigError: nothing can be written to it, or the share is none.
    """
    if not 0 < options.sample <= 1:
        raise ConfigError(
            f"--sample {options.sample:g}: right is a share of the requests, such as 0.1."
        )
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        # Each server has one of its own: others may begin at the same moment.
        with tempfile.NamedTemporaryFile(dir=options.folder, prefix=".trial-"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--log-requests {options.folder} cannot be written ({error.strerror or error}): give"
            " a folder that you may write."
        ) from None


def check_dropped(options: LogOptions, serving: Path) -> None:
    """Refuses a name that may be a misspelt column, which would be written down all the same.

    Args:
      options: of the log.
      serving: the folder of the versions; the newest that was not withdrawn tells the columns.

    Raises:
      ConfigError: a name is close to that of a column, and of no column.
    """
    version = newest_version(serving)
    if version is None:
        return
    columns = [column.name for column in read_interface(version).columns]
    for name in sorted(options.dropped.difference(columns)):
        if near := difflib.get_close_matches(name, columns, n=1, cutoff=_NEAR):
            raise ConfigError(
                f"log.drop: the model asks for no column {name!r}; did you mean {near[0]!r}?"
            )
