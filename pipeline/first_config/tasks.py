"""The task of a label, by its values."""

from __future__ import annotations

import re

from components.column_types.facts import Facts
from components.column_types.hints import are_digits, counts_time, measures
from trainer_module.features.number_format import find_number_format

_MAX_CLASSES = 20
"""The maximum number of different whole numbers that are classes."""
_ROWS_PER_CLASS = 10
"""The minimum average number of rows of such a class."""
_COUNTS = {"count", "counts", "cnt", "number", "num"}


def reads_numbers(facts: Facts) -> bool:
    """Returns whether the texts of a label are numbers such as $22,500, and not codes or times."""
    number_format = find_number_format(facts.examples) if facts.is_text else None
    is_quantity = number_format is not None and number_format.style != "clock"
    return is_quantity and facts.dates is None and not are_digits(facts.examples)


def choose_task(facts: Facts) -> str:
    """Returns the task of a label: binary, multiclass, regression or count.

    Two different values are two classes. Text is classes, unless it is numbers with a unit or with
    thousands separators. Whole numbers are classes if they are few, and if the name of the column
    does not mean a quantity.
    """
    if facts.distinct == 2:
        return "binary"
    if facts.is_text:
        return "regression" if reads_numbers(facts) else "multiclass"
    if facts.is_whole and facts.low >= 0 and not _COUNTS.isdisjoint(_words(facts.name)):
        return "count"
    is_quantity = not facts.is_whole or measures(facts.name) or counts_time(facts.name)
    if is_quantity or facts.distinct > _MAX_CLASSES:
        return "regression"
    return "multiclass" if facts.distinct * _ROWS_PER_CLASS <= facts.known else "regression"


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_\d]+", name.lower())
