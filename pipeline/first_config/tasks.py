"""The task of a label, by its values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from components.column_types.facts import Facts
from components.column_types.hints import are_digits, counts_time, measures
from pipeline.first_config.scales import order_words
from trainer_module.features.number_format import find_number_format
from trainer_module.settings.tasks import BaseTask, as_task, supervised_class

_MAX_CLASSES = 20
"""The maximum number of different whole numbers that are classes."""
_ROWS_PER_CLASS = 10
"""The minimum average number of rows of such a class."""
_HIGHEST = 10
"""The highest rating."""
_RATINGS = {
    *("rating", "ratings", "stars", "star", "grade", "quality", "satisfaction"),
    *("bewertung", "note", "noten", "calificacion", "nota", "voto"),
}
"""The words in names of ratings."""
_COUNTS = {"count", "counts", "cnt", "number", "num"}


def reads_numbers(facts: Facts) -> bool:
    """Returns whether the texts of a label are numbers such as $22,500, and not codes or times."""
    number_format = find_number_format(facts.examples) if facts.is_text else None
    is_quantity = number_format is not None and number_format.style != "clock"
    return is_quantity and facts.dates is None and not are_digits(facts.examples)


def choose_task(facts: Facts, may_order: bool) -> BaseTask:
    """Returns the task of a label: binary, multiclass, ordinal, regression or count.

    Two different values are two classes. Text is classes, unless it is numbers with a unit or with
    thousands separators; words of a known order, such as low, medium and high, are ordered classes.
    Whole numbers are ordered classes if they are few and the name of the column means a rating, and
    classes if they are few and the name does not mean a quantity.

    Args:
      facts: the facts about the label.
      may_order: whether the task may be ordinal: the facts are about all rows, so that the order
        has all classes, and no column is text or a picture, for which ordinal models are worse.
    """
    if facts.distinct == 2:
        return as_task("binary")
    if facts.is_text:
        if reads_numbers(facts):
            return as_task("regression")
        order = order_words(facts.examples) if may_order else []
        return _ordinal(order) if order else as_task("multiclass")
    if facts.is_whole and facts.low >= 0 and not _COUNTS.isdisjoint(_words(facts.name)):
        return as_task("count")
    has_rows = facts.distinct * _ROWS_PER_CLASS <= facts.known
    if _are_ratings(facts) and has_rows and may_order:
        return _ordinal(range(int(facts.low), int(facts.high) + 1))
    is_quantity = not facts.is_whole or measures(facts.name) or counts_time(facts.name)
    if is_quantity or facts.distinct > _MAX_CLASSES:
        return as_task("regression")
    return as_task("multiclass" if has_rows else "regression")


def _ordinal(order: Sequence[str | int]) -> BaseTask:
    return supervised_class("ordinal").model_validate({"kind": "ordinal", "order": list(order)})


def _are_ratings(facts: Facts) -> bool:
    """Returns whether a column's name means ratings, and its values are those of a short scale."""
    is_short = facts.low >= 0 and facts.high <= _HIGHEST and facts.high - facts.low >= 2
    return facts.is_whole and is_short and not _RATINGS.isdisjoint(_words(facts.name))


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_\d]+", name.lower())
