"""What the name of a column says of it."""

from __future__ import annotations

import re

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
    """Whether a column is called as identifiers are."""
    words = _words(name)
    return bool(words and words[-1] in _IDENTIFIERS) or name.strip().lower() in _ROW_NUMBERS


def names_places(name: str) -> bool:
    """Whether a column is called as postal codes are."""
    return not _PLACES.isdisjoint(_words(name))


def counts_time(name: str) -> bool:
    """Whether a column is called as what counts time."""
    return not _TIMES.isdisjoint(_words(name))


def names_moments(name: str) -> bool:
    """Whether a column is called as moments are, such as `created_at`."""
    return not _MOMENTS.isdisjoint(_words(name))


def names_births(name: str) -> bool:
    """Whether a column is called as dates of birth are, which say nothing of when a row is from."""
    return not _BIRTHS.isdisjoint(_words(name))


def measures(name: str) -> bool:
    """Whether a column is called as what is measured, counted or ranked."""
    return not _QUANTITIES.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    """`PassengerId`, `passenger_id` and `passenger id` alike."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", apart.lower())
