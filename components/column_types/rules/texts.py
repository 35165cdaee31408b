"""What text may be: dates, yes and no, numbers, sentences, names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from components.column_types.choice import Choice
from components.column_types.facts import Facts
from components.column_types.names import identifies, names_places
from components.column_types.rules.common import (
    ENOUGH_ROWS,
    FEW_ROWS,
    GAPLESS_ROWS,
    HASH_BUCKETS,
    MANY_VALUES,
    ROWS_PER_NAME,
    Rule,
    by_dtype,
    find_constant,
    ignore,
    values_of,
)
from components.column_types.texts import (
    are_codes,
    are_digits,
    describe_written_numbers,
    mean_yes_or_no,
)
from trainer_module.features.number_format import Writing, are_plain, find_writing

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
    writing = find_writing(facts.examples) if facts.dates is None else None
    if writing is None or are_digits(facts.examples) or not _are_quantities(facts, writing):
        return None
    settings = {"type": "numeric", "written": writing.style}
    settings |= {"unit": writing.unit} if writing.unit else {}
    shown = next(value for value in facts.examples if writing.fits([value]))
    why = f"numbers in text, such as {shown!r}"
    odd = next((value for value in facts.examples if not writing.fits([value])), None)
    return Choice(settings, why if odd is None else f"{why}; {odd!r} and the like count as missing")


def _are_quantities(facts: Facts, writing: Writing) -> bool:
    """Whether numbers in text are more than names: bare digits may be, that come up again."""
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
    """Whether most rows have a text of their own, or there are too many texts for categories."""
    return facts.own_values > _MOSTLY or facts.distinct > MANY_VALUES


def _is_own(facts: Facts) -> bool:
    """Whether nearly each row has a text of its own, and not because there are few rows."""
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
