"""The choice of each column's type from facts about its values; the only place for these rules.

In doubt a column is numeric or categorical by its dtype: leaving out a column that matters costs
more than including one that does not.
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
    are_yes_or_no,
    counts_time,
    describe_number_texts,
    identifies,
    measures,
    names_places,
)
from trainer_module.errors import counted
from trainer_module.features.number_format import NumberFormat, are_plain, find_number_format

ENOUGH_ROWS = 100
"""The number of rows below which a constant, or a different value in each row, may be chance."""
FEW_ROWS = 10
"""The number of rows below which no rule for identifiers or sentences applies."""
GAPLESS_ROWS = 50
"""The number of rows from which a measurement would not take each number of a range once."""
MANY_VALUES = 5_000
"""The most distinct values for a vocabulary; with more, most of them would be rare."""
HASH_BUCKETS = 2_000
ROWS_PER_NAME = 5
"""The least average number of rows per value for numbers that are identifiers of repeated
things."""
Rule = Callable[[Facts], Choice | None]
"""A function that returns the type of columns to which it applies, and None for others."""


def find_empty(facts: Facts) -> Choice | None:
    """Ignores a column that has no value in any row."""
    return None if facts.known else ignore(f"no value in any of {counted(facts.rows, 'row')}")


def find_constant(facts: Facts) -> Choice | None:
    """Ignores a constant column, unless missing values may carry information, or there are few
    rows.
    """
    if facts.distinct > 1 or counts_time(facts.name):
        return None
    value = repr(facts.examples[0]) if facts.is_text else f"{facts.low:g}"
    if facts.has_gaps:
        where = f"in {facts.known:,} of {facts.rows:,} rows, and no value in the others"
        return replace(choose_by_dtype(facts), reason=f"{value} {where}")
    if facts.rows < ENOUGH_ROWS:
        reason = f"{value} in each of only {counted(facts.rows, 'row')}"
        return replace(choose_by_dtype(facts), reason=reason)
    return ignore(f"{value} in each of {facts.rows:,} rows")


def choose_by_dtype(facts: Facts) -> Choice:
    """Returns the default type: numeric for numbers, categorical for text."""
    if not facts.is_text:
        return Choice({"type": "numeric"}, f"numbers from {facts.low:g} to {facts.high:g}")
    contents = "text"
    if are_digits(facts.examples):
        contents = f"codes of digits, such as {facts.examples[0]!r},"
    return Choice({"type": "categorical"}, f"{contents} of {counted(facts.distinct, 'value')}")


def ignore(reason: str) -> Choice:
    """Returns the choice to leave a column out, with a reason."""
    return Choice({"type": "ignore"}, reason)


def describe_values(facts: Facts) -> str:
    """Returns the number of distinct values of a column, in words."""
    return f"{facts.distinct:,} different values in {facts.known:,} rows"


_GAPLESS = 1.05
"""The largest ratio of a range of numbers to the number of rows for an identifier."""
_MOST_NAMES = 1_000
_MOST_SENTINELS = 2
"""The most distinct negative numbers among identifiers: sentinels such as -1 or -999."""


def _day_number(facts: Facts) -> Choice | None:
    if not facts.are_days:
        return None
    return Choice({"type": "date", "format": DAYS_FORMAT}, f"days such as {facts.low:.0f}")


def _number_identifier(facts: Facts) -> Choice | None:
    if not facts.is_whole or facts.known < FEW_ROWS:
        return None
    if not facts.is_exact:
        # Distinct numbers may be equal as float32.
        return (
            ignore("an identifier by its name, with more digits than a number holds")
            if identifies(facts.name)
            else None
        )
    if facts.distinct < facts.sample_rows:
        return None
    if identifies(facts.name):
        return ignore(
            f"a different whole number in each of {facts.sample_rows:,} rows, and the name of an"
            " identifier"
        )
    if not _counts_rows(facts) or counts_time(facts.name) or measures(facts.name):
        return None
    return ignore(
        f"numbers the rows from {facts.low:,.0f} to {facts.high:,.0f}, as an identifier does"
    )


def _counts_rows(facts: Facts) -> bool:
    """Returns whether the numbers count the rows: a range without gaps, wherever it begins.

    A quantity seldom takes each number of a range once, except in a few rows.
    """
    rows = facts.total_rows * facts.known / facts.rows
    return facts.known >= ENOUGH_ROWS and facts.high - facts.low + 1 <= _GAPLESS * rows


def _number_names(facts: Facts) -> Choice | None:
    """Returns categorical for integers that are places or identifiers of repeated things."""
    are_names = identifies(facts.name) or names_places(facts.name)
    repeats = facts.distinct * ROWS_PER_NAME <= facts.sample_rows and facts.distinct <= _MOST_NAMES
    if not are_names or not facts.is_whole or not facts.is_exact or not repeats:
        return None
    if facts.known < ENOUGH_ROWS or facts.negative > _MOST_SENTINELS:
        return None
    reason = f"{facts.distinct:,} different identifiers, by the column's name"
    return Choice({"type": "categorical"}, reason)


def _zero_or_one(facts: Facts) -> Choice | None:
    """Returns boolean for integers that are only 0 and 1, which rarely mean anything but no and
    yes.
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
"""The share of rows with distinct values from which a column is an identifier."""
_MOSTLY = 0.5
"""The share of rows with distinct values from which a column may hold sentences."""
_SENTENCE_SPACES = 3
"""The least average number of spaces in a sentence."""
_SENTENCE_LENGTH = 10
"""The least average number of characters in a sentence without spaces."""
_LONGEST_TEXT = 512
"""The largest number of tokens of a text; the smallest comes next."""
_SHORTEST_TEXT = 8
_ROOM = 1.1
"""The number of tokens per word, as punctuation makes tokens too."""


def _date(facts: Facts) -> Choice | None:
    dates = facts.dates
    if dates is None or not dates.are_alike:
        return None
    return Choice({"type": "date", "format": dates.format}, dates.description)


def _yes_or_no(facts: Facts) -> Choice | None:
    if not are_yes_or_no(facts.examples):
        return None
    shown = " and ".join(map(repr, facts.examples[:2]))
    return Choice({"type": "boolean"}, f"{shown} mean yes and no")


def _number_in_text(facts: Facts) -> Choice | None:
    number_format = find_number_format(facts.examples) if facts.dates is None else None
    if (
        number_format is None
        or are_digits(facts.examples)
        or not _are_quantities(facts, number_format)
    ):
        return None
    settings = {"type": "numeric", "written": number_format.style}
    settings |= {"unit": number_format.unit} if number_format.unit else {}
    shown = next(value for value in facts.examples if number_format.fits([value]))
    reason = f"numbers in text, such as {shown!r}"
    odd = next((value for value in facts.examples if not number_format.fits([value])), None)
    return Choice(
        settings, reason if odd is None else f"{reason}; values such as {odd!r} count as missing"
    )


def _are_quantities(facts: Facts, number_format: NumberFormat) -> bool:
    """Returns whether numbers in text are quantities, and not identifiers such as repeated bare
    digits.
    """
    if number_format.unit or not (are_plain(facts.examples) or identifies(facts.name)):
        return True
    is_named = identifies(facts.name) or names_places(facts.name)
    return not is_named and facts.distinct * ROWS_PER_NAME > facts.known


def _mixed_notation(facts: Facts) -> Choice | None:
    """Returns the type of numbers or dates that are not written uniformly."""
    if facts.dates is not None:
        reason: str | None = facts.dates.description
    else:
        reason = describe_number_texts(facts.examples)
    if reason is None:
        return None
    if _is_distinct(facts):
        return ignore(f"{reason}; nearly every row would be a category of its own")
    return replace(choose_by_dtype(facts), reason=reason)


def _sentences(facts: Facts) -> Choice | None:
    if facts.known < FEW_ROWS or not _is_varied(facts):
        return None
    if not facts.has_words and facts.mean_length >= _SENTENCE_LENGTH:
        settings: dict[str, Any] = {"type": "text", "tokens": "characters", "ngrams": 3}
        why = "sentences without spaces between words, split into characters"
        usual = facts.usual_length
    elif facts.mean_spaces >= _SENTENCE_SPACES:
        settings, why, usual = {"type": "text"}, "sentences", facts.usual_words
    else:
        return None
    length = min(_LONGEST_TEXT, max(_SHORTEST_TEXT, math.ceil(_ROOM * usual)))
    tokens = settings.get("tokens", "words")
    reason = f"{why} ({describe_values(facts)}); the model reads the first {length} {tokens}"
    return Choice({**settings, "max_tokens": length}, reason)


def _text_identifier(facts: Facts) -> Choice | None:
    if not _is_distinct(facts):
        return None
    contents = "an identifier" if identifies(facts.name) or are_codes(facts.examples) else "a name"
    return ignore(f"{describe_values(facts)}, as {contents} has")


def _many_values(facts: Facts) -> Choice | None:
    if facts.distinct <= MANY_VALUES:
        return None
    settings = {"type": "categorical", "hash_buckets": HASH_BUCKETS}
    return Choice(settings, f"text with very many values ({describe_values(facts)})")


def _is_varied(facts: Facts) -> bool:
    """Returns whether most rows have distinct texts, or there are too many texts for categories."""
    return facts.distinct_share > _MOSTLY or facts.distinct > MANY_VALUES


def _is_distinct(facts: Facts) -> bool:
    """Returns whether nearly all rows have distinct texts, in enough rows to exclude chance."""
    is_clear = identifies(facts.name) or are_codes(facts.examples)
    enough = FEW_ROWS if identifies(facts.name) else GAPLESS_ROWS if is_clear else ENOUGH_ROWS
    return facts.known >= enough and facts.distinct_share > _NEARLY_ALL


def choose_characters(facts: Facts) -> Choice | None:
    """Returns characters as tokens for names, which as categories would mostly be distinct.

    Used for names that are the only column left, so that a model can learn from their spelling.
    """
    is_named = facts.is_text and not facts.longest and facts.known >= ENOUGH_ROWS
    if not is_named or not _is_varied(facts) or are_codes(facts.examples):
        return None
    length = min(_LONGEST_TEXT, max(_SHORTEST_TEXT, math.ceil(_ROOM * facts.usual_length)))
    settings = {"type": "text", "tokens": "characters", "ngrams": 3, "max_tokens": length}
    reason = f"names, split into characters ({describe_values(facts)})"
    return Choice(settings, f"{reason}, as no other column is left")


TEXT_RULES: tuple[Rule, ...] = (
    # Dates come before constants, as the data of one day has one date.
    _date,
    find_constant,
    _yes_or_no,
    _number_in_text,
    _mixed_notation,
    _sentences,
    _text_identifier,
    _many_values,
)


_LONGEST_LIST = 50
"""The most values of a list that a model reads; later ones add little and cost as much."""


def choose_types(columns: Sequence[Facts]) -> dict[str, Choice]:
    """Returns the type of each column, by name.

    A column that looks like an identifier is kept if there is nothing else to learn from.
    """
    choices = {facts.name: _choose(facts) for facts in columns}
    if all(choice.is_ignored for choice in choices.values()):
        for facts in columns:
            if facts.distinct > 1:
                choice_of_input = choose_characters(facts) or choose_by_dtype(facts)
                reason = f"{choices[facts.name].reason}, but no other column is left"
                choices[facts.name] = replace(choice_of_input, reason=reason)
    inputs = [facts for facts in columns if not choices[facts.name].is_ignored]
    if len(inputs) == 1 and choices[inputs[0].name].type == "categorical":
        choices |= {facts.name: choice for facts in inputs if (choice := choose_characters(facts))}
    return choices


def _choose(facts: Facts) -> Choice:
    if facts.longest:
        return _list(facts)
    rules = (find_empty, *(TEXT_RULES if facts.is_text else NUMBER_RULES))
    matches = (rule(facts) for rule in rules)
    return next((choice for choice in matches if choice is not None), choose_by_dtype(facts))


def _list(facts: Facts) -> Choice:
    """Returns the type for lists of several lengths: text and integers are categorical, others a
    sequence.
    """
    length = min(facts.longest, _LONGEST_LIST)
    kind = "text" if facts.is_text else "whole numbers" if facts.is_integer else "numbers"
    reason = f"lists of up to {facts.longest:,} values, {kind}"
    if length < facts.longest:
        reason += f"; the model reads the first {length}"
    if kind == "numbers":
        return Choice({"type": "sequence", "length": length}, reason)
    settings: dict[str, Any] = {"type": "categorical", "many": True, "max_values": length}
    if facts.distinct > MANY_VALUES:
        settings["hash_buckets"] = HASH_BUCKETS
    return Choice(settings, reason)
