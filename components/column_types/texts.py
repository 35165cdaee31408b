"""What texts are that stand for something else: yes and no, numbers, codes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_module.features.number_format import SPACES
from trainer_module.features.numeric import NO, YES

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
    """Whether values mean yes or no, and both come up."""
    words = {value.strip(SPACES).lower() for value in values}
    return words <= {*YES, *NO} and not words.isdisjoint(YES) and not words.isdisjoint(NO)


def are_codes(values: Sequence[str]) -> bool:
    """Whether values are single words with digits, as the codes of things are."""
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
    """Whether numbers are codes of digits alone: with zeros before them, or very long."""
    digits = [number for number in numbers if _DIGITS.fullmatch(number)]
    has_zeros = any(number[0] == "0" and len(number) > 1 for number in digits)
    is_long = any(len(number) > _LONGEST_NUMBER for number in digits)
    return len(digits) == len(numbers) and (has_zeros or is_long)
