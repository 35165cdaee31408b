"""The type of a column, decided by what is known of it; the one place where that is decided.

In doubt a column stays what its numbers or its text make it: to leave out a column that matters
costs more than to keep one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from components.column_types.choice import Choice
from components.column_types.facts import Facts
from components.column_types.rules.common import HASH_BUCKETS, MANY_VALUES, by_dtype, find_empty
from components.column_types.rules.numbers import NUMBER_RULES
from components.column_types.rules.texts import TEXT_RULES, spelling

_LONGEST_LIST = 50
"""Values of a list that a model sees, at most: what follows says little, and costs as much."""


def choose_types(columns: Sequence[Facts]) -> dict[str, Choice]:
    """The type of each column, by name.

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
