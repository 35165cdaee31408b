"""Hints from a column's name and from the notation of its texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_module.features.number_format import SPACES
from trainer_module.features.numeric import NO, YES

_IDENTIFIERS = {"id", "ids", "uuid", "guid", "pk", "rowid"}
_PLACES = {"zip", "zipcode", "postcode", "postal", "plz"}
_ROW_NUMBERS = {"", "#", "index", "idx", "row", "no", "nr", "number", "key", "unnamed: 0"}
"""The names that as a whole mean a row number; as a word of a longer name they may mean a
quantity."""
_TIMES = {
    *("time", "timestamp", "date", "year", "yr", "quarter", "month", "week", "day", "hour"),
    *("minute", "second", "period", "epoch", "step", "t", "years", "months", "weeks", "days"),
    *("hours", "minutes", "seconds", "age"),
}
"""The words for values that increase with time."""
_QUANTITIES = {
    *("rank", "ranking", "position", "place", "points", "score", "scores", "rating", "grade"),
    *("level", "count", "amount", "price", "cost", "value", "total", "size", "area", "length"),
    *("width", "height", "depth", "weight", "distance", "mileage", "miles", "km", "duration"),
    *("speed", "percentile", "percent", "income", "salary", "temperature", "dose", "seats"),
}
"""The words for quantities that may be distinct in each row, as in a ranking."""
_MOMENTS = {"time", "timestamp", "date", "datetime", "epoch", "ts", "at", "on"}
_BIRTHS = {"birth", "birthday", "birthdate", "born", "dob"}


def identifies(name: str) -> bool:
    """Returns whether a column has a name for identifiers."""
    words = _words(name)
    return bool(words and words[-1] in _IDENTIFIERS) or name.strip().lower() in _ROW_NUMBERS


def names_places(name: str) -> bool:
    """Returns whether a column has a name for postal codes."""
    return not _PLACES.isdisjoint(_words(name))


def counts_time(name: str) -> bool:
    """Returns whether a column has a name for values that increase with time."""
    return not _TIMES.isdisjoint(_words(name))


def names_moments(name: str) -> bool:
    """Returns whether a column has a name for points in time, such as `created_at`."""
    return not _MOMENTS.isdisjoint(_words(name))


def names_births(name: str) -> bool:
    """Returns whether a column has a name for dates of birth, which do not date the row."""
    return not _BIRTHS.isdisjoint(_words(name))


def measures(name: str) -> bool:
    """Returns whether a column has a name for quantities, counts or ranks."""
    return not _QUANTITIES.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    """Returns the words of a name: alike for `PassengerId`, `passenger_id` and `passenger id`."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", separated.lower())


_LOOKED_AT = 100
"""The number of values from which the notation is determined."""
_NEARLY_ALL = 0.9
_CURRENCY = r"(?:[$€£¥₹]|usd|eur|gbp|chf)"
_NUMBER = re.compile(
    rf"\(?[+-]?\s*{_CURRENCY}?\s*[+-]?(?:\d{{1,3}}(?:[,.'\u00a0 ]\d{{3}})+|\d+)(?:[.,]\d+)?"
    rf"\s*(?:%|{_CURRENCY})?\)?",
    re.IGNORECASE,
)
"""The pattern of numbers with thousands separators, a currency or a per cent sign."""
_CODE = re.compile(r"(?=.*\d)[\w.:/#-]+")
_DIGITS = re.compile(r"\d+")
_LONGEST_NUMBER = 15
"""The most digits of a number that is a quantity."""


def are_yes_or_no(values: Sequence[str]) -> bool:
    """Returns whether all values mean yes or no, and both occur."""
    words = {value.strip(SPACES).lower() for value in values}
    return words <= {*YES, *NO} and not words.isdisjoint(YES) and not words.isdisjoint(NO)


def are_codes(values: Sequence[str]) -> bool:
    """Returns whether values are single words with digits, as product codes are."""
    return all(_CODE.fullmatch(value.strip()) for value in values)


def describe_number_texts(values: Sequence[str]) -> str | None:
    """Returns why numbers count as text; None if the values are not numbers."""
    first = values[:_LOOKED_AT]
    numbers = [value for value in first if _NUMBER.fullmatch(value.strip())]
    if len(numbers) < _NEARLY_ALL * len(first) or are_digits(numbers):
        return None
    shown = next((value for value in numbers if not _DIGITS.fullmatch(value)), numbers[0])
    return f"numbers written as text, such as {shown!r}: write them as plain numbers"


def are_digits(numbers: Sequence[str]) -> bool:
    """Returns whether numbers are codes of digits: with leading zeros, or very long."""
    digits = [number for number in numbers if _DIGITS.fullmatch(number)]
    has_zeros = any(number[0] == "0" and len(number) > 1 for number in digits)
    is_long = any(len(number) > _LONGEST_NUMBER for number in digits)
    return len(digits) == len(numbers) and (has_zeros or is_long)
