"""What numbers may be: days, yes and no, identifiers, names of places."""

from __future__ import annotations

from components.column_types.choice import Choice
from components.column_types.dates import DAYS_FORMAT
from components.column_types.facts import Facts
from components.column_types.names import counts_time, identifies, measures, names_places
from components.column_types.rules.common import (
    ENOUGH_ROWS,
    FEW_ROWS,
    ROWS_PER_NAME,
    Rule,
    find_constant,
    ignore,
)

_GAPLESS = 1.05
"""How much more numbers a range may have than there are rows."""
_MOST_NAMES = 1_000
_MOST_SENTINELS = 2
"""Different negative numbers among names: what stands for a missing one, such as -1 or -999."""


def _day_number(facts: Facts) -> Choice | None:
    if not facts.are_days:
        return None
    return Choice({"type": "date", "format": DAYS_FORMAT}, f"days such as {facts.low:.0f}")


def _number_identifier(facts: Facts) -> Choice | None:
    if not facts.is_whole or facts.known < FEW_ROWS:
        return None
    if not facts.is_exact:
        # Different ones may have become the same.
        return (
            ignore("named as identifiers are, and too long for a number")
            if identifies(facts.name)
            else None
        )
    if facts.distinct < facts.seen:
        return None
    if identifies(facts.name):
        return ignore(f"another whole number in each of {facts.seen:,} rows, and a name of ids")
    if not _counts_rows(facts) or counts_time(facts.name) or measures(facts.name):
        return None
    return ignore(f"counts the rows ({facts.low:,.0f} to {facts.high:,.0f}), as an identifier does")


def _counts_rows(facts: Facts) -> bool:
    """Whether numbers are those of the rows: a range with no gap, wherever it begins.

    A quantity seldom takes each number of a range once, but a few rows of one may.
    """
    rows = facts.total_rows * facts.known / facts.rows
    return facts.known >= ENOUGH_ROWS and facts.high - facts.low + 1 <= _GAPLESS * rows


def _number_names(facts: Facts) -> Choice | None:
    """Numbers that stand for places or for what else comes up again."""
    are_names = identifies(facts.name) or names_places(facts.name)
    comes_again = facts.distinct * ROWS_PER_NAME <= facts.seen and facts.distinct <= _MOST_NAMES
    if not are_names or not facts.is_whole or not facts.is_exact or not comes_again:
        return None
    if facts.known < ENOUGH_ROWS or facts.negative > _MOST_SENTINELS:
        return None
    why = f"{facts.distinct:,} numbers that are names, as the column's name says"
    return Choice({"type": "categorical"}, why)


def _zero_or_one(facts: Facts) -> Choice | None:
    """A type without fractions holds true and false so, and rarely else these two numbers alone."""
    if not facts.is_integer or (facts.low, facts.high) != (0, 1) or facts.known < ENOUGH_ROWS:
        return None
    return Choice({"type": "boolean"}, "0 and 1, which mean no and yes")


NUMBER_RULES: tuple[Rule, ...] = (
    _day_number,
    find_constant,
    _zero_or_one,
    _number_identifier,
    _number_names,
)
