"""Orders of vocabularies: functions that sort the counted values of a column into a vocabulary."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer_module.errors import DataError

_SHOWN = 20
"""The maximum number of classes in a message."""

logger = logging.getLogger(__name__)

MOST_COUNTED = 200_000
"""The number of most frequent values per column whose counts are kept, to limit the memory."""

Counts = Sequence[tuple[bytes, int]]
"""The values of one column, each with its number of occurrences."""

Order = Callable[[Counts], list[bytes]]
"""A function from the counts of a column's values to the vocabulary, in the order of its indices.
"""
Weigh = Callable[[Counts], Sequence[float]]
"""A function from the counts of a column's values to numbers that the graph stores."""


def most_frequent(count: tuple[bytes, int]) -> tuple[int, bytes]:
    """Returns a sort key: the most frequent value first, equally frequent values by their bytes."""
    value, occurrences = count
    return -occurrences, value


@dataclass(frozen=True)
class ByFrequency:
    """The order of `most_frequent`."""

    size: int
    """The maximum number of values after the entries of `first`."""
    first: tuple[str, ...] = ()
    """Entries with which the vocabulary begins, whether they occur or not."""
    column: str = ""
    """The name of the column, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the vocabulary; logs a warning for a column with very many different values."""
        if len(counts) >= MOST_COUNTED:
            logger.warning(
                "column %r has at least %d different values; only the %d most frequent values have "
                "their own index. If the column is an identifier, set features: {%s: {type: "
                "ignore}}; otherwise set hash_buckets to distinguish the other values",
                self.column, MOST_COUNTED, self.size, self.column,
            )  # fmt: skip
        first = [value.encode() for value in self.first]
        others = [value for value, _ in sorted(counts, key=most_frequent) if value not in first]
        return first + others[: self.size]


@dataclass(frozen=True)
class ClassOrder:
    """The order of a label's classes: by number or by bytes."""

    label: str
    """The name of the label's column, for messages."""
    numeric: bool
    """Whether the classes are whole numbers, and are ordered by number."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the classes in order.

        Raises:
          DataError: there is no class, or `numeric` is true and a class is not a whole number.
        """
        classes = sorted(value for value, _ in counts)
        if not classes:
            raise DataError(f"label {self.label!r} has no value in the train split.")
        if not self.numeric:
            return classes
        for value in classes:
            if not value.removeprefix(b"-").isdigit():
                raise DataError(
                    f"label {self.label!r} holds {value.decode()}, but a class must be a whole "
                    "number or text; use task: regression to predict a number."
                )
        return sorted(classes, key=int)


@dataclass(frozen=True)
class GivenOrder:
    """The order of the classes in the config, whether they occur in the data or not."""

    label: str
    """The name of the label's column, for messages."""
    classes: tuple[str, ...]
    key: str = "task.order"
    """The config key of the order, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the classes in order; raises DataError if another class occurs."""
        classes = {name.encode(): None for name in self.classes}
        for value, _ in counts:
            if value not in classes:
                text = value.decode(errors="backslashreplace")
                raise DataError(
                    f"label {self.label!r} holds {text!r}, which is not in {self.key}; "
                    f"{self._describe_classes(text)}"
                )
        return [*classes]

    def _describe_classes(self, value: str) -> str:
        """Returns the classes for a message, or some of them and the most similar to the value."""
        more = len(self.classes) - _SHOWN
        if more <= 0:
            return f"its classes are {', '.join(self.classes)}."
        similar = difflib.get_close_matches(value, self.classes, n=1)
        hint = f"did you mean {similar[0]!r}? " if similar else ""
        return f"{hint}Its classes are {', '.join(self.classes[:_SHOWN])} and {more:,} more."
