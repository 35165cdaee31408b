"""The type of a column, decided by what is known of it; the one place where that is decided.

In doubt a column stays what its numbers or its text make it: to leave out a column that matters
costs more than to keep one that does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from components.column_types.choice import Choice
from components.column_types.dates import DAYS_FORMAT
from components.column_types.facts import Facts
from components.column_types.hints import (
    are_codes,
    are_digits,
    counts_time,
    describe_written_numbers,
    identifies,
    mean_yes_or_no,
    measures,
    names_places,
)
from trainer_module.errors import counted
from trainer_module.features.number_format import NumberFormat, are_plain, find_number_format

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
    """Returns a column without any value is left out."""
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
    """Returns how many values a column has, in words."""
    return f"{facts.distinct:,} different values in {facts.known:,} rows"


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
    """Returns whether numbers are those of the rows: a range with no gap, wherever it begins.

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
    """Returns a type without fractions holds true and false so, and rarely else these two
    numbers alone.
    """
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


_NEARLY_ALL = 0.95
"""Share of the rows with a value of their own in an identifier."""
_MOSTLY = 0.5
"""Share of the rows with a value of their own in a column of sentences."""
_SENTENCE_SPACES = 3
"""Spaces that a sentence has on average, at the least."""
_SENTENCE_LENGTH = 10
"""Characters that it has without spaces."""
_LONGEST_TEXT = 512
"""Tokens that a model sees, at most; those that it sees at least come next."""
_SHORTEST_TEXT = 8
_ROOM = 1.1
"""How many tokens there are for one word: signs are some as well."""


def _date(facts: Facts) -> Choice | None:
    dates = facts.dates
    if dates is None or not dates.are_alike:
        return None
    return Choice({"type": "date", "format": dates.format}, dates.description)


def _yes_or_no(facts: Facts) -> Choice | None:
    if not mean_yes_or_no(facts.examples):
        return None
    shown = " and ".join(map(repr, facts.examples[:2]))
    return Choice({"type": "boolean"}, f"{shown} mean yes and no")


def _written_number(facts: Facts) -> Choice | None:
    writing = find_number_format(facts.examples) if facts.dates is None else None
    if writing is None or are_digits(facts.examples) or not _are_quantities(facts, writing):
        return None
    settings = {"type": "numeric", "written": writing.style}
    settings |= {"unit": writing.unit} if writing.unit else {}
    shown = next(value for value in facts.examples if writing.fits([value]))
    why = f"numbers in text, such as {shown!r}"
    odd = next((value for value in facts.examples if not writing.fits([value])), None)
    return Choice(settings, why if odd is None else f"{why}; {odd!r} and the like count as missing")


def _are_quantities(facts: Facts, writing: NumberFormat) -> bool:
    """Returns whether numbers in text are more than names: bare digits may be, that come up
    again.
    """
    if writing.unit or not (are_plain(facts.examples) or identifies(facts.name)):
        return True
    is_named = identifies(facts.name) or names_places(facts.name)
    return not is_named and facts.distinct * ROWS_PER_NAME > facts.known


def _odd_text(facts: Facts) -> Choice | None:
    """Of numbers or dates that something is wrong with."""
    if facts.dates is not None:
        why: str | None = facts.dates.description
    else:
        why = describe_written_numbers(facts.examples)
    if why is None:
        return None
    if _is_own(facts):
        return ignore(f"{why}; as a category each row would have its own")
    return replace(by_dtype(facts), reason=why)


def _sentences(facts: Facts) -> Choice | None:
    if facts.known < FEW_ROWS or not _is_varied(facts):
        return None
    if not facts.has_words and facts.mean_length >= _SENTENCE_LENGTH:
        settings: dict[str, Any] = {"type": "text", "tokens": "characters", "ngrams": 3}
        why = "sentences without spaces between words, taken character by character"
        usual = facts.usual_length
    elif facts.mean_spaces >= _SENTENCE_SPACES:
        settings, why, usual = {"type": "text"}, "sentences", facts.usual_words
    else:
        return None
    length = min(_LONGEST_TEXT, max(_SHORTEST_TEXT, math.ceil(_ROOM * usual)))
    tokens = settings.get("tokens", "words")
    reason = f"{why} ({values_of(facts)}), of which the first {length} {tokens} count"
    return Choice({**settings, "max_tokens": length}, reason)


def _text_identifier(facts: Facts) -> Choice | None:
    if not _is_own(facts):
        return None
    what = "an identifier" if identifies(facts.name) or are_codes(facts.examples) else "a name"
    return ignore(f"{values_of(facts)}, as {what} has")


def _many_values(facts: Facts) -> Choice | None:
    if facts.distinct <= MANY_VALUES:
        return None
    settings = {"type": "categorical", "hash_buckets": HASH_BUCKETS}
    return Choice(settings, f"text of very many values ({values_of(facts)})")


def _is_varied(facts: Facts) -> bool:
    """Returns whether most rows have a text of their own, or there are too many texts for
    categories.
    """
    return facts.own_values > _MOSTLY or facts.distinct > MANY_VALUES


def _is_own(facts: Facts) -> bool:
    """Returns whether nearly each row has a text of its own, and not because there are few rows."""
    is_clear = identifies(facts.name) or are_codes(facts.examples)
    enough = FEW_ROWS if identifies(facts.name) else GAPLESS_ROWS if is_clear else ENOUGH_ROWS
    return facts.known >= enough and facts.own_values > _NEARLY_ALL


def spelling(facts: Facts) -> Choice | None:
    """Of names that are all there is, another in most rows: as categories they would tell nothing.

    What they have in common is how they are spelt.
    """
    is_named = facts.is_text and not facts.longest and facts.known >= ENOUGH_ROWS
    if not is_named or not _is_varied(facts) or are_codes(facts.examples):
        return None
    length = min(_LONGEST_TEXT, max(_SHORTEST_TEXT, math.ceil(_ROOM * facts.usual_length)))
    settings = {"type": "text", "tokens": "characters", "ngrams": 3, "max_tokens": length}
    why = f"names, taken character by character ({values_of(facts)})"
    return Choice(settings, f"{why}, as no other column is left")


TEXT_RULES: tuple[Rule, ...] = (
    # Before what is constant: the data of one day has one date.
    _date,
    find_constant,
    _yes_or_no,
    _written_number,
    _odd_text,
    _sentences,
    _text_identifier,
    _many_values,
)


_LONGEST_LIST = 50
"""Values of a list that a model sees, at most: what follows says little, and costs as much."""


def choose_types(columns: Sequence[Facts]) -> dict[str, Choice]:
    """Returns the type of each column, by name.

    A column that seems to be an identifier is kept where nothing else would be left to learn from.
    """
    choices = {facts.name: _choose(facts) for facts in columns}
    if all(choice.is_ignored for choice in choices.values()):
        for facts in columns:
            if facts.distinct > 1:
                kept = spelling(facts) or by_dtype(facts)
                reason = f"{choices[facts.name].reason}, but no other column is left"
                choices[facts.name] = replace(kept, reason=reason)
    left = [facts for facts in columns if not choices[facts.name].is_ignored]
    if len(left) == 1 and choices[left[0].name].type == "categorical":
        choices |= {facts.name: choice for facts in left if (choice := spelling(facts))}
    return choices


def _choose(facts: Facts) -> Choice:
    if facts.longest:
        return _list(facts)
    rules = (find_empty, *(TEXT_RULES if facts.is_text else NUMBER_RULES))
    found = (rule(facts) for rule in rules)
    return next((choice for choice in found if choice is not None), by_dtype(facts))


def _list(facts: Facts) -> Choice:
    """Lists of several lengths: text and whole numbers are names, other numbers a sequence."""
    length = min(facts.longest, _LONGEST_LIST)
    kind = "text" if facts.is_text else "whole numbers" if facts.is_integer else "numbers"
    reason = f"lists of up to {facts.longest:,} values, {kind}"
    if length < facts.longest:
        reason += f", of which the first {length} count"
    if kind == "numbers":
        return Choice({"type": "sequence", "length": length}, reason)
    settings: dict[str, Any] = {"type": "categorical", "many": True, "max_values": length}
    if facts.distinct > MANY_VALUES:
        settings["hash_buckets"] = HASH_BUCKETS
    return Choice(settings, reason)
