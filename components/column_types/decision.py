"""The rules that choose each column's type from facts about its values.

If no rule applies, a column is numeric or categorical by its dtype: a model without a useful column
loses more than a model with a useless column.
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
    numbers_rows,
)
from trainer_module.errors import counted
from trainer_module.features.number_format import NumberFormat, are_plain, find_number_format

ENOUGH_ROWS = 100
"""The minimum number of rows for a constant, or for distinct values in all rows, to count."""
FEW_ROWS = 10
"""The minimum number of rows for the rules for identifiers and sentences."""
CODE_ROWS = 50
"""The minimum number of rows for distinct codes to be identifiers."""
MAX_VOCABULARY = 5_000
"""The maximum number of distinct values for a vocabulary; of more values most would be rare."""
HASH_BUCKETS = 2_000
"""The number of hash buckets of a categorical column with more values than a vocabulary has."""
ROWS_PER_NAME = 5
"""The minimum average number of rows per value, for identifiers to be categories."""
Rule = Callable[[Facts], Choice | None]
"""A function that returns the type of a column, or None if the rule does not apply."""


def find_empty(facts: Facts) -> Choice | None:
    """Ignores a column that has no value in any row."""
    return None if facts.known else ignore(f"no value in any of {counted(facts.rows, 'row')}")


def find_constant(facts: Facts) -> Choice | None:
    """Ignores a constant column, unless some rows have no value or the sample is small."""
    if facts.distinct > 1 or counts_time(facts.name):
        return None
    value = repr(facts.examples[0]) if facts.is_text else f"{facts.low:g}"
    if facts.has_gaps:
        rows = f"in {facts.known:,} of {facts.rows:,} rows, and no value in the others"
        return replace(choose_by_dtype(facts), reason=f"{value} {rows}")
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
    """Returns the choice to ignore a column."""
    return Choice({"type": "ignore"}, reason)


def describe_values(facts: Facts) -> str:
    """Returns the number of distinct values of a column as text."""
    return f"{facts.distinct:,} different values in {facts.known:,} rows"


_GAPLESS = 1.05
"""The maximum ratio of the range of the numbers to the number of rows, if numbers count rows."""
_MAX_NAMES = 1_000
"""The maximum number of distinct identifiers that are categories."""
_MAX_SENTINELS = 2
"""The maximum number of distinct negative numbers among identifiers, such as -1 or -999."""


def _day_number(facts: Facts) -> Choice | None:
    if not facts.are_days:
        return None
    return Choice({"type": "date", "format": DAYS_FORMAT}, f"days such as {facts.low:.0f}")


def _number_identifier(facts: Facts) -> Choice | None:
    if not facts.is_whole or facts.known < FEW_ROWS:
        return None
    if not facts.is_exact:
        # Numbers that differ in the data may be equal as float32.
        return (
            ignore("an identifier by the column's name, with more digits than float32 holds")
            if identifies(facts.name)
            else None
        )
    if facts.distinct < facts.sample_rows:
        return None
    is_quantity = counts_time(facts.name) or measures(facts.name)
    is_numbering = numbers_rows(facts.name) and facts.known >= ENOUGH_ROWS and not is_quantity
    if identifies(facts.name) or is_numbering:
        return ignore(
            f"a different whole number in each of {facts.sample_rows:,} rows, and a column name"
            " that means an identifier"
        )
    if not _counts_rows(facts) or is_quantity:
        return None
    return ignore(
        f"counts the rows from {facts.low:,.0f} to {facts.high:,.0f}, as an identifier does"
    )


def _counts_rows(facts: Facts) -> bool:
    """Returns whether the numbers count the rows, from any first number and almost without gaps.

    In 100 or more rows, a quantity rarely takes each number of a range once.
    """
    rows = facts.total_rows * facts.known / facts.rows
    return facts.known >= ENOUGH_ROWS and facts.high - facts.low + 1 <= _GAPLESS * rows


def _number_names(facts: Facts) -> Choice | None:
    """Returns categorical for integers that are postal codes, or identifiers that repeat."""
    are_names = identifies(facts.name) or names_places(facts.name)
    repeats = facts.distinct * ROWS_PER_NAME <= facts.sample_rows and facts.distinct <= _MAX_NAMES
    if not are_names or not facts.is_whole or not facts.is_exact or not repeats:
        return None
    if facts.known < ENOUGH_ROWS or facts.negative > _MAX_SENTINELS:
        return None
    reason = f"{facts.distinct:,} different identifiers, by the column's name"
    return Choice({"type": "categorical"}, reason)


def _zero_or_one(facts: Facts) -> Choice | None:
    """Returns boolean for integers from 0 to 1, which nearly always mean no and yes."""
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


_IDENTIFIER_SHARE = 0.95
"""A column is an identifier if a larger share of the rows has distinct values."""
_SENTENCE_SHARE = 0.5
"""A column may hold sentences if a larger share of the rows has distinct values."""
_SENTENCE_SPACES = 3
"""The minimum average number of spaces in a sentence."""
_SENTENCE_LENGTH = 10
"""The minimum average number of characters in a sentence without spaces."""
_MAX_TOKENS = 512
_MIN_TOKENS = 8
_TOKENS_PER_WORD = 1.1
"""The number of tokens per word; punctuation adds tokens."""


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
    misfit = next((value for value in facts.examples if not number_format.fits([value])), None)
    return Choice(
        settings,
        reason if misfit is None else f"{reason}; values such as {misfit!r} count as missing",
    )


def _are_quantities(facts: Facts, number_format: NumberFormat) -> bool:
    """Returns whether numbers in text are quantities, not identifiers."""
    if number_format.unit or not (are_plain(facts.examples) or identifies(facts.name)):
        return True
    has_code_name = identifies(facts.name) or names_places(facts.name)
    return not has_code_name and facts.distinct * ROWS_PER_NAME > facts.known


def _mixed_notation(facts: Facts) -> Choice | None:
    """Returns the type of a column of dates or numbers whose notation is not uniform."""
    if facts.dates is not None:
        reason: str | None = facts.dates.description
    else:
        reason = describe_number_texts(facts.examples)
    if reason is None:
        return None
    if _is_distinct(facts):
        return ignore(f"{reason}; as categories, nearly all values would occur only once")
    return replace(choose_by_dtype(facts), reason=reason)


def _sentences(facts: Facts) -> Choice | None:
    if facts.known < FEW_ROWS or not _is_varied(facts):
        return None
    if not facts.has_words and facts.mean_length >= _SENTENCE_LENGTH:
        settings: dict[str, Any] = {"type": "text", "tokens": "characters", "ngrams": 3}
        contents = "sentences without spaces between words, split into characters"
        usual_tokens = facts.usual_length
    elif facts.mean_spaces >= _SENTENCE_SPACES:
        settings, contents, usual_tokens = {"type": "text"}, "sentences", facts.usual_words
    else:
        return None
    length = min(_MAX_TOKENS, max(_MIN_TOKENS, math.ceil(_TOKENS_PER_WORD * usual_tokens)))
    tokens = settings.get("tokens", "words")
    reason = f"{contents} ({describe_values(facts)}); the model reads the first {length} {tokens}"
    return Choice({**settings, "max_tokens": length}, reason)


def _text_identifier(facts: Facts) -> Choice | None:
    if not _is_distinct(facts):
        return None
    contents = "an identifier" if identifies(facts.name) or are_codes(facts.examples) else "a name"
    return ignore(f"{describe_values(facts)}, as {contents} has")


def _many_values(facts: Facts) -> Choice | None:
    if facts.distinct <= MAX_VOCABULARY:
        return None
    settings = {"type": "categorical", "hash_buckets": HASH_BUCKETS}
    return Choice(settings, f"text with very many values ({describe_values(facts)})")


def _is_varied(facts: Facts) -> bool:
    """Returns whether most rows have distinct values, or there are too many for a vocabulary."""
    return facts.distinct_share > _SENTENCE_SHARE or facts.distinct > MAX_VOCABULARY


def _is_distinct(facts: Facts) -> bool:
    """Returns whether nearly all rows have distinct values, in enough rows to exclude chance."""
    if identifies(facts.name):
        min_rows = FEW_ROWS
    else:
        min_rows = CODE_ROWS if are_codes(facts.examples) else ENOUGH_ROWS
    return facts.known >= min_rows and facts.distinct_share > _IDENTIFIER_SHARE


def choose_characters(facts: Facts) -> Choice | None:
    """Returns text split into characters for a column of names, or None for another column.

    If names are the only column left, the model can only learn from their spelling.
    """
    may_be_names = facts.is_text and not facts.longest and facts.known >= ENOUGH_ROWS
    if not may_be_names or not _is_varied(facts) or are_codes(facts.examples):
        return None
    length = min(_MAX_TOKENS, max(_MIN_TOKENS, math.ceil(_TOKENS_PER_WORD * facts.usual_length)))
    settings = {"type": "text", "tokens": "characters", "ngrams": 3, "max_tokens": length}
    reason = f"names, split into characters ({describe_values(facts)})"
    return Choice(settings, f"{reason}, as no other column is left")


TEXT_RULES: tuple[Rule, ...] = (
    # The rule for dates precedes the rule for constants, as the data of one day has one date.
    _date,
    find_constant,
    _yes_or_no,
    _number_in_text,
    _mixed_notation,
    _sentences,
    _text_identifier,
    _many_values,
)


_MAX_LIST_VALUES = 50
"""The maximum number of values of a list that a model reads; later values add little and cost as
much."""


def choose_types(columns: Sequence[Facts]) -> dict[str, Choice]:
    """Returns the type of each column, by name.

    If the rules ignore all columns, every column that is not constant becomes an input.
    """
    choices = {facts.name: _choose(facts) for facts in columns}
    if all(choice.is_ignored for choice in choices.values()):
        for facts in columns:
            if facts.distinct > 1:
                as_input = choose_characters(facts) or choose_by_dtype(facts)
                reason = f"{choices[facts.name].reason}, but no other column is left"
                choices[facts.name] = replace(as_input, reason=reason)
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
    """Returns the type of lists whose lengths differ: categorical for text and integers, a sequence
    for other numbers.
    """
    length = min(facts.longest, _MAX_LIST_VALUES)
    kind = "text" if facts.is_text else "whole numbers" if facts.is_integer else "numbers"
    reason = f"lists of up to {facts.longest:,} values, {kind}"
    if length < facts.longest:
        reason += f"; the model reads the first {length}"
    if kind == "numbers":
        return Choice({"type": "sequence", "length": length}, reason)
    settings: dict[str, Any] = {"type": "categorical", "many": True, "max_values": length}
    if facts.distinct > MAX_VOCABULARY:
        settings["hash_buckets"] = HASH_BUCKETS
    return Choice(settings, reason)
