"""Errors that a user can fix.

Each message is one complete sentence, which the command prints without a traceback.
"""

from collections.abc import Iterable
from pathlib import Path


class ScopelineError(Exception):
    """The base class of all errors that the command prints without a traceback."""


class InternalError(ScopelineError):
    """An unexpected error; the message names the log with the traceback."""


class DiskFullError(InternalError):
    """A full disk; the message names the file and the free space.

    The remedy is usually to free space.
    """


class WorkerError(InternalError):
    """The end of a process that shared the work of a step; the message names the process and the
    cause.
    """


class ConfigError(ScopelineError):
    """A config that cannot be used; nothing has run."""


class TryLaterError(ConfigError):
    """A resource that is busy or unavailable; nothing has run, and a later attempt may succeed."""


class DataError(ScopelineError):
    """Data that cannot be used; the message names the file, row or column, the problem and the
    fix.
    """


class DamagedFileError(DataError):
    """A file that changed after it was written; the message names the damage and the remedy."""

    path = Path()
    damage = ""

    @classmethod
    def of(cls, path: Path, damage: str, remedy: str) -> "DamagedFileError":
        """Returns the error of a file.

        As for all errors of this module, the constructor takes only the message.

        Args:
          path: the path of the damaged file.
          damage: the damage, as the predicate of a sentence about the file.
          remedy: the command or the action that repairs the file.
        """
        error = cls(f"{path} {damage}: {remedy}")
        error.path, error.damage = path, damage
        return error


class DriftError(DataError):
    """Data that drifted from older data under the same schema, and that no person has accepted."""


class TrainingError(ScopelineError):
    """A training that cannot continue; the message names the problem and a remedy."""


class MemberLimitError(TrainingError):
    """A member of an ensemble that the size or the classes of the data exclude."""


class DivergedError(TrainingError):
    """A training whose losses or predictions are no longer finite numbers."""


MAX_REASON_LENGTH = 300
"""The maximum number of characters that a message quotes of another library's error."""


def shorten(error: object, max_length: int = MAX_REASON_LENGTH) -> str:
    """Returns the message of another library's error on one line, cut at a word and marked with
    `...`.

    Args:
      error: an error, or its message.
      max_length: the maximum number of characters, including the dots.
    """
    text = " ".join(str(error).split())
    if len(text) <= max_length:
        return text
    cut = text[: max_length - 3]
    if text[max_length - 3] != " ":
        head, _, _ = cut.rpartition(" ")
        # A single long word, such as a path, is cut inside the word.
        cut = head if len(head) > max_length // 2 else cut
    return f"{cut.rstrip()}..."


def as_key(name: str) -> str:
    """Returns a name as a key of a flow mapping in YAML, in quotes where YAML needs them."""
    import yaml

    text = yaml.safe_dump(
        {name: 0}, allow_unicode=True, default_flow_style=True, width=float("inf")
    )
    return str(text.strip()[1:].removesuffix(": 0}"))


def enumerate_names(names: Iterable[str], conjunction: str) -> str:
    """Returns names as an enumeration in a sentence: `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 row`, `2,000 classes`.

    Args:
      number: the number.
      noun: the noun in the singular. Its plural adds `s`, or `es` if the noun ends in `s`.
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
