"""Errors that are a user's to mend: their message is one complete sentence, shown as it is."""

from collections.abc import Iterable
from pathlib import Path


class ScopelineError(Exception):
    """Base of all errors that the runner shows without a traceback."""


class InternalError(ScopelineError):
    """Something went wrong that no check foresaw: names the log that holds the traceback."""


class DiskFullError(InternalError):
    """A disk is full: names the file and the room there is; once there is more, it may succeed."""


class WorkerError(InternalError):
    """A process that shared the work of a step has ended: names it and what ended it."""


class ConfigError(ScopelineError):
    """The configuration cannot be used; nothing ran."""


class TryLaterError(ConfigError):
    """What is needed is busy or away now: nothing ran, and later the same may succeed."""


class DataError(ScopelineError):
    """The data cannot be used: names the file, row or column, what was found and what is right."""


class DamagedFileError(DataError):
    """A file is not what was written: names it, what is wrong with it, and what to do."""

    path = Path()
    what = ""

    @classmethod
    def of(cls, path: Path, what: str, remedy: str) -> "DamagedFileError":
        """Returns the error of a file; like all errors here, one can be made of its sentence
        alone.
        """
        error = cls(f"{path} {what}: {remedy}")
        error.path, error.what = path, what
        return error


class DriftError(DataError):
    """The data keeps its schema, but is not like older data any more: somebody has to accept it."""


class TrainingError(ScopelineError):
    """Training cannot go on: names what was asked and what would work."""


LONGEST_REASON = 300
"""Characters of another library's error that are enough to see what is wrong."""


def shorten(said: object, most: int = LONGEST_REASON) -> str:
    """What another library says, on one line: whole, or as many words as fit, and `...`.

    Args:
      said: an error, or its text.
      most: characters, of the dots too.
    """
    text = " ".join(str(said).split())
    if len(text) <= most:
        return text
    cut = text[: most - 3]
    if text[most - 3] != " ":
        head, _, _ = cut.rpartition(" ")
        # A single word of such a length, as of a path, is cut.
        cut = head if len(head) > most // 2 else cut
    return f"{cut.rstrip()}..."


def enumerate_names(names: Iterable[str], conjunction: str) -> str:
    """Names in a sentence: `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def counted(number: int, noun: str) -> str:
    """Returns a number and what it counts: `1 row`, `2,000 classes`.

    Args:
      number: of them.
      noun: in the singular; its plural ends in s, or in es after an s.
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
