"""From how often the values of a column occur to its vocabulary: which values, in which order."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer_module.errors import DataError

_SHOWN = 20
"""Classes that a message names."""

logger = logging.getLogger(__name__)

MOST_COUNTED = 200_000
"""Of a column with more values the most frequent ones are counted on, lest they fill the memory."""

Counts = Sequence[tuple[bytes, int]]
"""Values of one column, each with the number of its occurrences."""

Order = Callable[[Counts], list[bytes]]
Weigh = Callable[[Counts], Sequence[float]]
"""From the counts of a column's values to numbers that the graph is to know."""


def most_frequent(count: tuple[bytes, int]) -> tuple[int, bytes]:
    """Sorts counts by frequency, equal ones in the order of bytes."""
    return -count[1], count[0]


@dataclass(frozen=True)
class ByFrequency:
    """The most frequent values first; values as frequent as each other in the order of bytes."""

    size: int
    """At most this many values."""
    first: tuple[str, ...] = ()
    """Come before all others, whether they occur or not."""
    column: str = ""
    """Its name, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the vocabulary by index; warns of a column with so many values that few have
        one.
        """
        if len(counts) >= MOST_COUNTED:
            logger.warning(
                "column %r has %d different values or more, of which the %d most frequent have "
                "an index of their own: if it is an identifier, leave it out by features: {%s: "
                "{type: ignore}}; otherwise hash_buckets keeps the others apart",
                self.column, MOST_COUNTED, self.size, self.column,
            )  # fmt: skip
        first = [value.encode() for value in self.first]
        others = [value for value, _ in sorted(counts, key=most_frequent) if value not in first]
        return first + others[: self.size]


@dataclass(frozen=True)
class ClassOrder:
    """All values, sorted: as numbers if `numeric`, bytewise otherwise."""

    label: str
    """The label's column, for error messages."""
    numeric: bool

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the classes by index; DataError if there are none, or a number that is not
        whole.
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
    """All classes of an order that is given, whether they occur or not."""

    label: str
    """The label's column, for error messages."""
    classes: tuple[str, ...]
    key: str = "task.order"
    """That gives it."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the classes by index; DataError if another one occurs."""
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
        """Returns the classes, or of many the one that is most like what was found."""
        more = len(self.classes) - _SHOWN
        if more <= 0:
            return f"it has {', '.join(self.classes)}."
        near = difflib.get_close_matches(found, self.classes, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{hint}It has {', '.join(self.classes[:_SHOWN])} and {more:,} more."
