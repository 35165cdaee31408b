"""What texts are that stand for something else: dates, yes and no, numbers, codes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_module.features.boolean import NO, YES
from trainer_module.features.date_formats import find_format

_LOOKED_AT = 100
"""Of the values, to find out what is wrong with them."""
_MAY_BE_DATE = re.compile(r"\s*(?:\d|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))", re.I)
_DATE_LENGTHS = range(6, 41)
"""From 1/2/03 to a date with the name of its month, a time and a zone."""
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


def date_format(values: Sequence[str]) -> str | None:
    """The format of dates; None if the values are none, or do not share one."""
    return find_format(values) if _may_be_dates(values) else None


def mean_yes_or_no(values: Sequence[str]) -> bool:
    """Whether values mean yes or no, and both come up."""
    words = {value.strip().lower() for value in values}
    return words <= {*YES, *NO} and not words.isdisjoint(YES) and not words.isdisjoint(NO)


def are_codes(values: Sequence[str]) -> bool:
    """Whether values are single words with digits, as the codes of things are."""
    return all(_CODE.fullmatch(value.strip()) for value in values)


def describe_odd_texts(values: Sequence[str]) -> str | None:
    """What keeps dates from being dates and numbers from being numbers; None if they are none."""
    return _describe_dates(values) or _describe_numbers(values[:_LOOKED_AT])


def _may_be_dates(values: Sequence[str]) -> bool:
    """Whether most of the first few values are dates by themselves; looks at no more of most."""
    first = values[:5]
    return sum(map(_is_date, first)) * 2 > len(first)


def _is_date(value: str) -> bool:
    """Whether a value is a date by itself; what cannot be one is not tried as each format."""
    is_likely = len(value) in _DATE_LENGTHS and _MAY_BE_DATE.match(value)
    return bool(is_likely) and find_format([value]) is not None


def _describe_dates(values: Sequence[str]) -> str | None:
    if not _may_be_dates(values):
        return None
    first = values[:_LOOKED_AT]
    if sum(map(_is_date, first)) < _NEARLY_ALL * len(first):
        return None
    dates = [value for value in values if _is_date(value)]
    if len(dates) < len(values):
        odd = next(value for value in values if not _is_date(value))
        return f"dates such as {dates[0]!r}, but {odd!r} among them: correct it"
    others = (value for value in dates if find_format([dates[0], value]) is None)
    shown = f"{dates[0]!r} and {next(others, dates[-1])!r}"
    return f"dates of more than one format, such as {shown}: write them alike"


def _describe_numbers(values: Sequence[str]) -> str | None:
    numbers = [value for value in values if _NUMBER.fullmatch(value.strip())]
    if len(numbers) < _NEARLY_ALL * len(values) or _are_digits(numbers):
        return None
    shown = next((value for value in numbers if not _DIGITS.fullmatch(value)), numbers[0])
    return f"numbers written as text, such as {shown!r}: write them as plain numbers"


def _are_digits(numbers: Sequence[str]) -> bool:
    """Whether numbers are codes of digits alone: with zeros before them, or very long."""
    digits = [number for number in numbers if _DIGITS.fullmatch(number)]
    has_zeros = any(number[0] == "0" and len(number) > 1 for number in digits)
    is_long = any(len(number) > _LONGEST_NUMBER for number in digits)
    return len(digits) == len(numbers) and (has_zeros or is_long)
