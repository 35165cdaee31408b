"""Cells of a CSV before their types are known: trimmed, with missing ones as nulls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.columns import Cell, holds_any
from components.example_gen.csv_settings import CsvSettings
from trainer_module.errors import DataError

# Numbers with a decimal comma, in which points stand between thousands.
_COMMA_NUMBER = r"^\s*[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d+)?(e[+-]?\d+)?\s*$"


def clean_cells(values: pa.BinaryArray, settings: CsvSettings) -> pa.BinaryArray:
    """Cells as the settings want them; those that are missing have been found, but for spaces."""
    if settings.strip and holds_any(values, b" \t"):
        values = _trim(values, settings.missing_values)
    if settings.decimal == "," and holds_any(values, b",."):
        values = _with_points(values)
    return values


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
