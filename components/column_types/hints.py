"""What the name of a column, and how its texts are written, say of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_module.features.number_format import SPACES
from trainer_module.features.numeric import NO, YES

_IDENTIFIERS = {"id", "ids", "uuid", "guid", "pk", "rowid"}
_PLACES = {"zip", "zipcode", "postcode", "postal", "plz"}
_ROW_NUMBERS = {"", "#", "index", "idx", "row", "no", "nr", "number", "key", "unnamed: 0"}
"""Whole names: in a longer one such a word may be of something that is measured."""
_TIMES = {
    *("time", "timestamp", "date", "year", "yr", "quarter", "month", "week", "day", "hour"),
    *("minute", "second", "period", "epoch", "step", "t", "years", "months", "weeks", "days"),
    *("hours", "minutes", "seconds", "age"),
}
"""What counts up because time goes on."""
_QUANTITIES = {
    *("rank", "ranking", "position", "place", "points", "score", "scores", "rating", "grade"),
    *("level", "count", "amount", "price", "cost", "value", "total", "size", "area", "length"),
    *("width", "height", "depth", "weight", "distance", "mileage", "miles", "km", "duration"),
    *("speed", "percentile", "percent", "income", "salary", "temperature", "dose", "seats"),
}
"""What a number may be the only one of its size of, as in a ranking."""
_MOMENTS = {"time", "timestamp", "date", "datetime", "epoch", "ts", "at", "on"}
_BIRTHS = {"birth", "birthday", "birthdate", "born", "dob"}


def identifies(name: str) -> bool:
    """Returns whether a column is called as identifiers are."""
    words = _words(name)
    return bool(words and words[-1] in _IDENTIFIERS) or name.strip().lower() in _ROW_NUMBERS


def names_places(name: str) -> bool:
    """Returns whether a column is called as postal codes are."""
    return not _PLACES.isdisjoint(_words(name))


def counts_time(name: str) -> bool:
    """Returns whether a column is called as what counts time."""
    return not _TIMES.isdisjoint(_words(name))


def names_moments(name: str) -> bool:
    """Returns whether a column is called as moments are, such as `created_at`."""
    return not _MOMENTS.isdisjoint(_words(name))


def names_births(name: str) -> bool:
    """Returns whether a column is called as dates of birth are, which say nothing of when a row
    is from.
    """
    return not _BIRTHS.isdisjoint(_words(name))


def measures(name: str) -> bool:
    """Returns whether a column is called as what is measured, counted or ranked."""
    return not _QUANTITIES.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    """`PassengerId`, `passenger_id` and `passenger id` alike."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", apart.lower())


_LOOKED_AT = 100
"""Of the values, to find out what is wrong with them."""
_NEARLY_ALL = 0.9
_CURRENCY = r"(?:[$€£¥₹]|usd|eur|gbp|chf)"
_NUMBER = re.compile(
    rf"\(?[+-]?\s*{_CURRENCY}?\s*[+-]?(?:\d{{1,3}}(?:[,.'\u00a0 ]\d{{3}})+|\d+)(?:[.,]\d+)?"
    rf"\s*(?:%|{_CURRENCY})?\)?",
    re.IGNORECASE,
)
"""Numbers as people write them: thousands apart, with a currency, in per cent."""
_CODE = re.compile(r"(?=.*\d)[\w.:/#-]+")
_DIGITS = re.compile(r"\d+")
_LONGEST_NUMBER = 15
"""Digits of a number that is a quantity."""


def mean_yes_or_no(values: Sequence[str]) -> bool:
    """Returns whether values mean yes or no, and both come up."""
    words = {value.strip(SPACES).lower() for value in values}
    return words <= {*YES, *NO} and not words.isdisjoint(YES) and not words.isdisjoint(NO)


def are_codes(values: Sequence[str]) -> bool:
    """Returns whether values are single words with digits, as the codes of things are."""
    return all(_CODE.fullmatch(value.strip()) for value in values)


def describe_written_numbers(values: Sequence[str]) -> str | None:
    """What keeps numbers from being numbers; None if they are none."""
    first = values[:_LOOKED_AT]
    numbers = [value for value in first if _NUMBER.fullmatch(value.strip())]
    if len(numbers) < _NEARLY_ALL * len(first) or are_digits(numbers):
        return None
    shown = next((value for value in numbers if not _DIGITS.fullmatch(value)), numbers[0])
    return f"numbers written as text, such as {shown!r}: write them as plain numbers"


def are_digits(numbers: Sequence[str]) -> bool:
    """Returns whether numbers are codes of digits alone: with zeros before them, or very long."""
    digits = [number for number in numbers if _DIGITS.fullmatch(number)]
    has_zeros = any(number[0] == "0" and len(number) > 1 for number in digits)
    is_long = any(len(number) > _LONGEST_NUMBER for number in digits)
    return len(digits) == len(numbers) and (has_zeros or is_long)
