"""The inference of column types: the kind of a column, and whether its text holds numbers, codes or
amounts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.dates import DAYS_FORMAT
from components.example_gen.columns.encoded import (
    ARROW_TYPES,
    Cell,
    ColumnKind,
    excerpt,
    no_values,
    single_values,
)
from trainer_module.features.date_formats import Form
from trainer_module.features.number_format import AMOUNT, PLACEHOLDERS, is_placeholder

# The pattern of a number for Python, as in TFX's CsvExampleGen. Values are trimmed before.
NUMBER = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)$"
_INTEGER = r"^[+-]?\d+$"
# Integers with fewer characters fit into 64 bits.
_MIN_OVERSIZED_LENGTH = 19
_MAX_EXACT = 2**24
"""The largest number up to which float32 holds every integer."""

_MAX_PLACEHOLDER_LENGTH = max(map(len, PLACEHOLDERS))
# A number with a decimal comma, and possibly with points between thousands.
_COMMA_NUMBER = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+$"

# The minimum share of integers with leading zeros, for a column to hold codes.
_MIN_PADDED_SHARE = 0.01

# The format and the number of digits of a day that is written as an integer.
_DAY, _DAY_DIGITS = Form.parse(DAYS_FORMAT), 8

# The number of strings from which is decided whether a column may hold amounts.
_SAMPLE_TEXTS = 100
_MAX_WORDS = 2_000


@dataclass(frozen=True)
class ColumnSurvey:
    """The kind of a column, and counts of its values."""

    kind: ColumnKind = ColumnKind.UNKNOWN
    numbers: int = 0
    """The number of values that are numbers."""
    texts: int = 0
    """The number of values that are not numbers, including placeholders and numbers with a decimal
    comma."""
    first_text: Cell | None = None
    """The first text that is not a placeholder; the first text if all are placeholders."""
    placeholders: Counter[str] = field(default_factory=Counter)
    """The counts of texts that may mean a missing number, such as NA. A column of numbers and
    placeholders is numeric. A column of placeholders alone has the kind UNKNOWN."""
    comma_numbers: int = 0
    """The number of texts that are numbers with a decimal comma."""
    needs_integers: bool = False
    """Whether the column has integers that float32 cannot hold."""
    padded: int = 0
    """The number of integers that begin with 0 and have more digits, such as postal codes."""
    first_padded: Cell | None = None
    """The first integer that begins with 0 and has more digits."""
    widths: tuple[int, int] | None = None
    """The number of characters of the shortest and the longest integer."""
    amounts: int = 0
    """The number of texts that are amounts, such as $1,234.50. It is 0 if one of the first texts is
    neither an amount nor a placeholder."""
    days: int = 0
    """The number of integers that are days, such as 20260131."""
    words: frozenset[str] = frozenset()
    """A sample of the distinct texts in a column of labels that must be numbers."""

    @property
    def holds_codes(self) -> bool:
        """Whether the integers are codes, so that '02139' must not become 2139.

        Integers with leading zeros are codes if all integers have the same number of characters, or
        if at least 1% of them begin with 0.
        """
        if self.kind is not ColumnKind.INT or not self.padded or self.widths is None:
            return False
        return self.widths[0] == self.widths[1] or self.padded >= _MIN_PADDED_SHARE * self.numbers

    @property
    def holds_days(self) -> bool:
        """Whether all values are days such as 20260131, which float32 cannot hold exactly."""
        return self.kind is ColumnKind.INT and self.days == self.numbers > 0

    @property
    def are_amounts(self) -> bool:
        """Whether all texts are amounts or placeholders, and at least one is an amount."""
        return 0 < self.amounts == self.texts - self.placeholders.total()

    @property
    def is_mixed(self) -> bool:
        """Whether the column holds text, but more numbers than text."""
        if self.are_amounts:
            return False
        other_texts = self.texts - self.placeholders.total() - self.comma_numbers
        return self.texts > 0 and self.numbers + self.comma_numbers > other_texts

    def merge(self, other: ColumnSurvey) -> ColumnSurvey:
        """Returns the survey of the rows of both surveys."""
        return ColumnSurvey(
            max(self.kind, other.kind),
            self.numbers + other.numbers,
            self.texts + other.texts,
            _first_text(self.first_text, other.first_text),
            self.placeholders + other.placeholders,
            self.comma_numbers + other.comma_numbers,
            self.needs_integers or other.needs_integers,
            self.padded + other.padded,
            self.first_padded or other.first_padded,
            _widest(self.widths, other.widths),
            self.amounts + other.amounts,
            self.days + other.days,
            sample_words(self.words | other.words),
        )


def sample_words(words: frozenset[str]) -> frozenset[str]:
    """Returns at most `_MAX_WORDS` of the words. The sample does not depend on the order in which
    words are collected and merged.
    """
    return frozenset(nsmallest(_MAX_WORDS, words, lambda word: (crc32(word.encode()), word)))


def survey_text(
    values: pa.BinaryArray, file: str, first_row: int, min_kind: ColumnKind
) -> ColumnSurvey:
    """Returns the survey of a batch of a CSV column.

    Args:
      values: the cells; nulls are missing values.
      min_kind: the kind of the rows before the batch. Smaller kinds are not tried.
    """
    count = len(values) - values.null_count
    if not count:
        return ColumnSurvey()
    integers = parse_numbers(values, ColumnKind.INT) if min_kind <= ColumnKind.INT else None
    if integers is not None:
        if not _has_hexadecimals(values):
            return _survey_integers(integers, values, file, first_row)
    elif min_kind <= ColumnKind.FLOAT and parse_numbers(values, ColumnKind.FLOAT) is not None:
        kind = ColumnKind.BYTES if _has_oversized_integers(values) else ColumnKind.FLOAT
        return ColumnSurvey(kind, numbers=count)
    trimmed = _trim(values)
    numeric = pc.match_substring_regex(trimmed, NUMBER)
    texts = np.flatnonzero(pc.fill_null(numeric, True).to_numpy(zero_copy_only=False) == 0)
    column = ColumnSurvey(ColumnKind.BYTES, numbers=count - len(texts), texts=len(texts))
    if not len(texts):
        return column
    non_numbers = trimmed.take(pa.array(texts))
    placeholders = _count_placeholders(non_numbers)
    row = int(texts[int(np.argmin(are_placeholders(non_numbers).to_numpy(zero_copy_only=False)))])
    first_text = Cell(file, first_row + row, excerpt(values[row].as_py()))
    if placeholders.total() == len(texts):
        numbers = survey_text(without_placeholders(values), file, first_row, min_kind)
        return replace(numbers, texts=len(texts), first_text=first_text, placeholders=placeholders)
    return replace(
        column,
        first_text=first_text,
        placeholders=placeholders,
        comma_numbers=_count_comma_numbers(trimmed),
        amounts=_count_amounts(non_numbers),
    )


def without_placeholders(values: pa.BinaryArray) -> pa.BinaryArray:
    """Returns the cells, with null instead of placeholders for a missing number, such as NA."""
    return pc.if_else(are_placeholders(_trim(values)), pa.scalar(None, pa.binary()), values)


def _survey_integers(
    integers: pa.Array | pa.ChunkedArray, values: pa.BinaryArray, file: str, first_row: int
) -> ColumnSurvey:
    """Returns the survey of a batch of integers."""
    numbers = values.drop_null()
    offsets = np.frombuffer(numbers.buffers()[1], np.int32)[numbers.offset :][: len(numbers) + 1]
    data, widths = np.frombuffer(numbers.buffers()[2], np.uint8), np.diff(offsets)
    padded = (data[offsets[:-1]] == ord("0")) & (widths > 1)
    column = ColumnSurvey(
        ColumnKind.INT,
        numbers=len(numbers),
        needs_integers=needs_integers(integers),
        padded=int(padded.sum()),
        widths=(int(widths.min()), int(widths.max())),
        days=_count_days(numbers) if (widths == _DAY_DIGITS).all() else 0,
    )
    if not column.padded:
        return column
    value = numbers[int(np.argmax(padded))].as_py()
    row = first_row + pc.index(values, value).as_py()
    return replace(column, first_padded=Cell(file, row, value.decode()))


def _count_days(numbers: pa.BinaryArray) -> int:
    texts = numbers.view(pa.string())
    return pc.sum(pc.match_substring_regex(texts, rf"\A(?:{_DAY.pattern})\z")).as_py() or 0


def _first_text(one: Cell | None, other: Cell | None) -> Cell | None:
    cells = [cell for cell in (one, other) if cell is not None]
    real_texts = (cell for cell in cells if not is_placeholder(cell.value))
    return next(real_texts, cells[0] if cells else None)


def _widest(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def needs_integers(numbers: pa.Array | pa.ChunkedArray) -> bool:
    """Returns whether float32 cannot hold some of the integers."""
    bounds = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return high is not None and max(high, -low) > _MAX_EXACT


def is_number(text: str) -> bool:
    """Returns whether a string is a number, with a decimal point or a decimal comma."""
    return bool(re.match(NUMBER, text.strip()) or is_comma_number(text))


def is_comma_number(text: str) -> bool:
    """Returns whether a string is a number with a decimal comma."""
    return bool(re.match(_COMMA_NUMBER, text.strip()))


def parse_numbers(values: pa.BinaryArray, kind: ColumnKind) -> pa.Array | None:
    """Returns the values as int64 (INT) or float64 (FLOAT), or None if a value is not a number.

    Nulls remain nulls.
    """
    target = pa.int64() if kind is ColumnKind.INT else pa.float64()
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        pass
    try:
        # Python accepts spaces around a number, and a plus sign. Arrow accepts neither of them.
        return pc.replace_substring_regex(_trim(values), r"^\+([\d.])", r"\1").cast(target)
    except pa.ArrowInvalid:
        return None


def encode_text(
    values: pa.BinaryArray, kind: ColumnKind, missing: Sequence[float] = ()
) -> pa.LargeListArray:
    """Returns a batch of a CSV column as an encoded column.

    Args:
      missing: numbers that mean a missing value, such as -999.

    Raises:
      pa.ArrowInvalid: a value is not of the kind.
    """
    if kind is ColumnKind.UNKNOWN:
        return no_values(len(values))
    if kind is ColumnKind.BYTES:
        return single_values(values)
    numbers = parse_numbers(values, kind)
    if numbers is None:
        others = without_placeholders(values)
        numbers = parse_numbers(
            without_zero_fractions(others) if kind is ColumnKind.INT else others, kind
        )
    if numbers is None:
        raise pa.ArrowInvalid("a value is not a number")
    if missing:
        is_missing = pc.is_in(numbers.cast(pa.float64(), safe=False), pa.array(missing))
        numbers = pc.if_else(is_missing, pa.scalar(None, numbers.type), numbers)
    # Values are parsed as float64 first, like in Python. Parsing as float32 may round differently.
    return single_values(numbers.cast(ARROW_TYPES[kind], safe=False))


def without_zero_fractions(values: pa.BinaryArray) -> pa.BinaryArray:
    """Returns texts of numbers such as `6.0` as `6`; other texts remain."""
    texts = _trim(values)
    return pc.replace_substring_regex(texts, r"^([+-]?\d+)\.0*$", r"\1").cast(pa.binary())


def holds_any(values: pa.Array, characters: bytes) -> bool:
    """Returns whether the buffer of the values contains one of the characters.

    The buffer may contain more than the values, so the result may be True without a match.
    """
    data = values.buffers()[2]
    bytes_of_values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return any(bool((bytes_of_values == character).any()) for character in characters)


def _trim(values: pa.BinaryArray) -> pa.StringArray:
    # Bytes are viewed as text: Arrow's ASCII functions also accept bytes that are not UTF-8.
    return pc.ascii_trim_whitespace(values.view(pa.string()))


def _count_placeholders(texts: pa.StringArray) -> Counter[str]:
    short = texts.filter(pc.less_equal(pc.binary_length(texts), _MAX_PLACEHOLDER_LENGTH))
    counts = pc.value_counts(short.filter(are_placeholders(short)))
    values, numbers = counts.field("values"), counts.field("counts")
    return Counter(dict(zip(values.to_pylist(), numbers.to_pylist(), strict=True)))


def are_placeholders(texts: pa.StringArray) -> pa.BooleanArray:
    """Returns whether each string is a placeholder for a missing number. Nulls are not."""
    return pc.is_in(pc.ascii_lower(pc.ascii_trim_whitespace(texts)), pa.array(sorted(PLACEHOLDERS)))


def _count_comma_numbers(texts: pa.StringArray) -> int:
    if not holds_any(texts, b","):
        return 0
    return pc.sum(pc.match_substring_regex(texts, _COMMA_NUMBER)).as_py() or 0


def _count_amounts(texts: pa.StringArray) -> int:
    """Returns the number of strings that are amounts.

    If one of the first strings is neither an amount nor a placeholder, the result is 0.
    """
    if len(texts) > _SAMPLE_TEXTS:
        sample = texts.slice(0, _SAMPLE_TEXTS)
        if _count_amounts(sample) + _count_placeholders(sample).total() < len(sample):
            return 0
    return pc.sum(pc.match_substring_regex(texts, rf"\A(?:{AMOUNT})\z")).as_py() or 0


def _has_hexadecimals(values: pa.BinaryArray) -> bool:
    """Returns whether some values are like 0x1F, which is an integer for Arrow, but text for Python
    and TFX.
    """
    # A joint search of all bytes is ten times faster than a search of each value.
    data = values.buffers()[2].to_pybytes()
    return any(
        x in data and pc.any(pc.match_substring(values, x.decode())).as_py() for x in (b"x", b"X")
    )


def _has_oversized_integers(values: pa.BinaryArray) -> bool:
    """Returns whether some values are integers of more than 64 bits. TFX's CsvExampleGen writes
    columns with such integers as text.
    """
    long = _trim(values.filter(pc.greater_equal(pc.binary_length(values), _MIN_OVERSIZED_LENGTH)))
    integers = long.filter(pc.match_substring_regex(long, _INTEGER))
    return parse_numbers(integers.cast(pa.binary()), ColumnKind.INT) is None
