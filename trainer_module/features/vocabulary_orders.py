"""Orders of vocabularies: functions from the counts of a column's values to its sorted
vocabulary.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer_module.errors import DataError

_SHOWN = 20
"""The most classes in a message."""

logger = logging.getLogger(__name__)

MOST_COUNTED = 200_000
"""The number of most frequent values whose counts are kept, to limit the memory."""

Counts = Sequence[tuple[bytes, int]]
"""The values of one column, each with the number of its occurrences."""

Order = Callable[[Counts], list[bytes]]
Weigh = Callable[[Counts], Sequence[float]]
"""A function from the counts of a column's values to numbers that the graph stores."""


def most_frequent(count: tuple[bytes, int]) -> tuple[int, bytes]:
    """Returns a sort key of a count: by descending frequency, ties in the order of bytes."""
    return -count[1], count[0]


@dataclass(frozen=True)
class ByFrequency:
    """An order by descending frequency, with ties in the order of bytes."""

    size: int
    """The most values, besides the first ones."""
    first: tuple[str, ...] = ()
    """Entries before all others, whether they occur or not."""
    column: str = ""
    """The name of the column, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the vocabulary by index; logs a warning for a column with very many values."""
        if len(counts) >= MOST_COUNTED:
            logger.warning(
                "column %r has %d different values or more, of which the %d most frequent have "
                "an index of their own: if it is an identifier, set features: {%s: {type: "
                "ignore}}; otherwise hash_buckets distinguishes the others",
                self.column, MOST_COUNTED, self.size, self.column,
            )  # fmt: skip
        first = [value.encode() for value in self.first]
        others = [value for value, _ in sorted(counts, key=most_frequent) if value not in first]
        return first + others[: self.size]


@dataclass(frozen=True)
class ClassOrder:
    """An order of all values: as numbers if `numeric`, bytewise otherwise."""

    label: str
    """The name of the label's column, for messages."""
    numeric: bool

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the classes by index; raises DataError without a class, or for a fractional
        number.
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
    """An order that is given, whether its classes occur or not."""

    label: str
    """The name of the label's column, for messages."""
    classes: tuple[str, ...]
    key: str = "task.order"
    """The config key of the order, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the classes by index; raises DataError if another class occurs."""
        known = {name.encode(): None for name in self.classes}
        for value, _ in counts:
            if value not in known:
                found = value.decode(errors="backslashreplace")
                raise DataError(
                    f"label {self.label!r} holds {found!r}, which {self.key} lacks; "
                    f"{self._right(found)}"
                )
        return [*known]

    def _right(self, found: str) -> str:
        """Returns a list of the valid classes for a message, with the closest one if there are
        many.
        """
        more = len(self.classes) - _SHOWN
        if more <= 0:
            return f"it has {', '.join(self.classes)}."
        near = difflib.get_close_matches(found, self.classes, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{hint}It has {', '.join(self.classes[:_SHOWN])} and {more:,} more."
