"""What the rules of text and of numbers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from components.column_types.choice import Choice
from components.column_types.facts import Facts
from components.column_types.names import counts_time
from components.column_types.texts import are_digits
from trainer_module.errors import counted

ENOUGH_ROWS = 100
"""Of fewer, what is the same in all of them, or another in each, may be so by chance."""
FEW_ROWS = 10
"""Of fewer, nothing is said."""
GAPLESS_ROWS = 50
"""In so many rows no measurement takes each number of a range once."""
MANY_VALUES = 5_000
"""More different values than that get no vocabulary: the tail of it would be longer than what is
known of it."""
HASH_BUCKETS = 2_000
ROWS_PER_NAME = 5
"""Rows that each number has on average where numbers are names of what comes up again."""
Rule = Callable[[Facts], Choice | None]
"""Gives the type of a column that it is about, and None of others."""


def find_empty(facts: Facts) -> Choice | None:
    """A column without any value is left out."""
    return None if facts.known else ignore(f"no value in any of {counted(facts.rows, 'row')}")


def find_constant(facts: Facts) -> Choice | None:
    """So is one with one value, unless its gaps may tell something, or there are few rows."""
    if facts.distinct > 1 or counts_time(facts.name):
        return None
    value = repr(facts.examples[0]) if facts.is_text else f"{facts.low:g}"
    if facts.has_gaps:
        where = f"in {facts.known:,} of {facts.rows:,} rows, and no value in the others"
        return replace(by_dtype(facts), reason=f"{value} {where}")
    if facts.rows < ENOUGH_ROWS:
        why = f"{value} in each of only {counted(facts.rows, 'row')}"
        return replace(by_dtype(facts), reason=why)
    return ignore(f"{value} in each of {facts.rows:,} rows")


def by_dtype(facts: Facts) -> Choice:
    """What numbers and text are if nothing speaks against it."""
    if not facts.is_text:
        return Choice({"type": "numeric"}, f"numbers from {facts.low:g} to {facts.high:g}")
    what = "text"
    if are_digits(facts.examples):
        what = f"codes of digits, such as {facts.examples[0]!r},"
    return Choice({"type": "categorical"}, f"{what} of {counted(facts.distinct, 'value')}")


def ignore(reason: str) -> Choice:
    """Leaves a column out."""
    return Choice({"type": "ignore"}, reason)


def values_of(facts: Facts) -> str:
    """How many values a column has, in words."""
    return f"{facts.distinct:,} different values in {facts.known:,} rows"
