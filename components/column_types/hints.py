"""Hints about a column's meaning from its name and the notation of its values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_module.features.number_format import SPACES
from trainer_module.features.numeric import NO, YES

_IDENTIFIERS = {"id", "ids", "uuid", "guid", "pk", "rowid"}
_PLACES = {"zip", "zipcode", "postcode", "postal", "plz"}
_ROW_NUMBERS = {"", "#", "index", "idx", "row", "no", "nr", "number", "key", "unnamed: 0"}
"""The column names that mean a row number. Within a longer name, these words may mean a
quantity."""
_NUMBERINGS = {"no", "nr", "num", "number", "nummer", "numero", "número", "numéro"}
"""The last words of column names that mean an identifier if the numbers differ in each row."""
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
    """Returns whether a column's name means an identifier, such as `user_id`, or a row number."""
    return names_ids(name) or name.strip().lower() in _ROW_NUMBERS


def names_ids(name: str) -> bool:
    """Returns whether a column's name says that it is an identifier, such as `user_id`."""
    words = _words(name)
    return bool(words and words[-1] in _IDENTIFIERS)


def numbers_rows(name: str) -> bool:
    """Returns whether a column's name ends with a word for numbering, such as `invoice_no`."""
    words = _words(name)
    return bool(words and words[-1] in _NUMBERINGS)


def names_places(name: str) -> bool:
    """Returns whether a column's name means a postal code."""
    return not _PLACES.isdisjoint(_words(name))


def counts_time(name: str) -> bool:
    """Returns whether a column's name means a value that increases with time, such as `year`."""
    return not _TIMES.isdisjoint(_words(name))


def names_moments(name: str) -> bool:
    """Returns whether a column's name means a point in time, such as `created_at`."""
    return not _MOMENTS.isdisjoint(_words(name))


def names_births(name: str) -> bool:
    """Returns whether a column's name means a date of birth, which is not the date of the row."""
    return not _BIRTHS.isdisjoint(_words(name))


def measures(name: str) -> bool:
    """Returns whether a column's name means a quantity, a count or a rank."""
    return not _QUANTITIES.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    """Returns the words of a name in lower case: `PassengerId` and `passenger_id` give the same."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", separated.lower())


_SAMPLE_VALUES = 100
"""The number of values from which the notation is determined."""
_MIN_NUMBER_SHARE = 0.9
"""The minimum share of numbers among the values, for a column to hold numbers."""
_CURRENCY = r"(?:[$€£¥₹]|usd|eur|gbp|chf)"
_NUMBER = re.compile(
    rf"\(?[+-]?\s*{_CURRENCY}?\s*[+-]?(?:\d{{1,3}}(?:[,.'\u00a0 ]\d{{3}})+|\d+)(?:[.,]\d+)?"
    rf"\s*(?:%|{_CURRENCY})?\)?",
    re.IGNORECASE,
)
"""The pattern of numbers with thousands separators, a currency or a per cent sign."""
_CODE = re.compile(r"(?=.*\d)[\w.:/#-]+")
_DIGITS = re.compile(r"\d+")
_MAX_DIGITS = 15
"""The maximum number of digits of a quantity; longer numbers are codes."""


def are_yes_or_no(values: Sequence[str]) -> bool:
    """Returns whether all values mean yes or no, with at least one yes and one no."""
    words = {value.strip(SPACES).lower() for value in values}
    return words <= {*YES, *NO} and not words.isdisjoint(YES) and not words.isdisjoint(NO)


def are_codes(values: Sequence[str]) -> bool:
    """Returns whether each value is a single word with a digit, like a product code."""
    return all(_CODE.fullmatch(value.strip()) for value in values)


def describe_number_texts(values: Sequence[str]) -> str | None:
    """Returns why numbers in text are not read as numbers, or None for values of another kind."""
    sample = values[:_SAMPLE_VALUES]
    numbers = [value for value in sample if _NUMBER.fullmatch(value.strip())]
    if len(numbers) < _MIN_NUMBER_SHARE * len(sample) or are_digits(numbers):
        return None
    shown = next((value for value in numbers if not _DIGITS.fullmatch(value)), numbers[0])
    return f"numbers written as text, such as {shown!r}: write them as plain numbers"


def are_digits(numbers: Sequence[str]) -> bool:
    """Returns whether all strings consist of digits, and some of them have leading zeros or more
    than 15 digits, so that they are codes.
    """
    digits = [number for number in numbers if _DIGITS.fullmatch(number)]
    has_zeros = any(number[0] == "0" and len(number) > 1 for number in digits)
    is_long = any(len(number) > _MAX_DIGITS for number in digits)
    return len(digits) == len(numbers) and (has_zeros or is_long)
