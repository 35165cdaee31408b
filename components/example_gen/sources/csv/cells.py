"""Cells of a CSV before their types are known: trimmed, with missing ones as nulls."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.columns.seen import holds_any, parse_numbers
from components.example_gen.csv_settings import CsvSettings
from trainer_module.errors import DataError

# Numbers with a decimal comma, in which points stand between thousands.
_COMMA_NUMBER = r"^\s*[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d+)?(e[+-]?\d+)?\s*$"


def clean_cells(values: pa.BinaryArray, settings: CsvSettings) -> pa.BinaryArray:
    """Cells as the settings want them; those that are empty are nulls already."""
    values = mark_missing(values, settings.missing_values)
    if settings.strip and holds_any(values, b" \t"):
        values = _trim(values, settings.missing_values)
    if settings.decimal == "," and holds_any(values, b",."):
        values = _with_points(values)
    return values


def mark_missing(values: pa.BinaryArray, missing_values: list[str]) -> pa.BinaryArray:
    """The cells, with nulls for those that mean a missing value as they are written."""
    if not missing_values:
        return values
    missing = pc.is_in(values, pa.array([text.encode() for text in missing_values], pa.binary()))
    return pc.if_else(missing, pa.scalar(None, pa.binary()), values)


def missing_numbers(settings: CsvSettings) -> dict[str, float]:
    """The values that mean a missing one and are numbers: -999 is also written -999.0."""
    numbers = {}
    for text in settings.missing_values:
        cell = pa.array([text.encode()], pa.binary())
        cell = _with_points(cell) if settings.decimal == "," else cell
        number = parse_numbers(cell, ColumnKind.FLOAT)
        if number is not None and math.isfinite(number[0].as_py()):
            numbers[text] = number[0].as_py()
    return numbers


def find_missing(
    raw: pa.BinaryArray, cells: pa.BinaryArray, kind: ColumnKind, settings: CsvSettings
) -> set[str]:
    """Which of the values that mean a missing one occur in cells.

    Args:
      raw: as they are written.
      cells: as `clean_cells` gives them.
      kind: of these cells.
      settings: which values mean a missing one.
    """
    texts = raw.view(pa.string())
    texts = pc.ascii_trim_whitespace(texts) if settings.strip else texts
    found = {text for text in settings.missing_values if pc.index(texts, text).as_py() >= 0}
    if kind in (ColumnKind.INT, ColumnKind.FLOAT):
        numbers = parse_numbers(cells, ColumnKind.FLOAT)
        known = missing_numbers(settings).items()
        found |= {text for text, number in known if pc.index(numbers, number).as_py() >= 0}
    return found


def count_trimmed(before: pa.BinaryArray, after: pa.BinaryArray) -> int:
    """In how many cells spaces were taken away."""
    if before is after:
        return 0
    lengths = (pc.fill_null(pc.binary_length(cells), 0) for cells in (before, after))
    return int(pc.sum(pc.not_equal(*lengths)).as_py() or 0)


def check_no_nul(name: str, values: pa.BinaryArray, first: Cell) -> None:
    """Raises DataError for a cell with a NUL character, which no text holds."""
    if not holds_any(values, b"\0"):
        return
    found = pc.fill_null(pc.match_substring(values, "\0"), False).to_numpy(zero_copy_only=False)
    if found.any():
        raise DataError(
            f"Column {name!r} holds a NUL character in row {first.row + int(np.argmax(found))} of"
            f" {first.file}: the file is damaged, or its encoding is another one; write it again."
        )


def _trim(values: pa.BinaryArray, missing_values: list[str]) -> pa.BinaryArray:
    trimmed = pc.ascii_trim_whitespace(values.view(pa.string()))
    if pc.sum(pc.binary_length(trimmed)).as_py() == pc.sum(pc.binary_length(values)).as_py():
        return values
    missing = pc.is_in(trimmed, pa.array(["", *missing_values]))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed).view(pa.binary())


def _with_points(values: pa.BinaryArray) -> pa.BinaryArray:
    text = values.view(pa.string())
    points = pc.replace_substring(pc.replace_substring(text, ".", ""), ",", ".")
    is_number = pc.match_substring_regex(text, _COMMA_NUMBER, ignore_case=True)
    return pc.if_else(is_number, points, text).view(pa.binary())
