"""Rows in the forms that Python programs have: dicts, columns and DataFrames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_module.errors import DataError, shorten

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Row = dict[str, Any]
"""A row: its values by the names of the columns."""
EXPECTED = "a list of dicts, a dict of lists, or a pandas DataFrame"


def is_frame(rows: Any) -> bool:
    """Returns whether the rows are a pandas DataFrame; does not import pandas."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def to_rows(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any] | pd.DataFrame) -> list[Row]:
    """Returns rows with JSON values, and with bytes and paths of pictures.

    NaN, None, NaT and missing keys are missing values.

    Args:
      rows: a list with a dict per row, a dict with a list per column, or a DataFrame.

    Raises:
      DataError: the rows have another form, there is no row, or a value is of another type.
    """
    if is_frame(rows):
        if twice := list(rows.columns[rows.columns.duplicated()]):  # type: ignore[union-attr]
            raise DataError(f"rows: the DataFrame has the column `{twice[0]}` twice.")
        given = rows.to_dict("records")  # type: ignore[union-attr]
    elif isinstance(rows, Mapping):
        given = _from_columns(rows)
    elif isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows):
        given = list(rows)
    else:
        raise DataError(f"rows: this is {_describe(rows)}, expected {EXPECTED}.")
    if not given:
        raise DataError(f"rows: there is no row; give {EXPECTED}.")
    return [{str(name): _plain(value, str(name)) for name, value in row.items()} for row in given]


def _describe(rows: Any) -> str:
    inside = f" of {type(rows[0]).__name__}" if isinstance(rows, list | tuple) and rows else ""
    return f"a {type(rows).__name__}{inside}"


def _from_columns(columns: Mapping[str, Any]) -> list[Row]:
    values = {name: _values(column) for name, column in columns.items()}
    if single := [name for name, column in values.items() if column is None]:
        raise DataError(
            f"rows: the column `{single[0]}` has a single value, expected a list with a value per"
            " row; for one row, write a list with one dict."
        )
    lists: dict[str, list[Any]] = {name: column or [] for name, column in values.items()}
    if len(lengths := {len(column) for column in lists.values()}) > 1:
        raise DataError(f"rows: the columns have different numbers of rows: {sorted(lengths)}.")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _values(column: Any) -> list[Any] | None:
    """Returns the values of a column, or None for a single value."""
    if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__len__"):
        return None
    return list(column)


def _plain(value: Any, name: str) -> Any:
    """Returns a value of Python, NumPy or pandas as a value of JSON."""
    kind = getattr(getattr(value, "dtype", None), "name", "")
    if kind == "datetime64[ns]":
        value = value.astype("datetime64[us]")  # NumPy returns nanoseconds as whole numbers.
    if hasattr(value, "tolist") and not kind.startswith("timedelta64"):
        value = value.tolist()
    if value is None or isinstance(value, str | bytes | bool | int | Path):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise DataError(f"rows: the column `{name}` is infinite, expected a finite number.")
        return None if math.isnan(value) else value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, datetime | date):
        return value.isoformat(*([" "] if isinstance(value, datetime) else []))
    if isinstance(value, list | tuple):
        return [_inner(item, name) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _inner(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, Decimal):
        return _plain(float(value), name)
    raise unusable_error(value, name)


def _inner(value: Any, name: str) -> Any:
    if isinstance(value, bytes):
        raise unusable_error(value, name)
    return _plain(value, name)


def unusable_error(value: Any, name: str) -> DataError:
    """Returns the error for a value of a type that no column takes."""
    return DataError(
        f"rows: the column `{name}` is {shorten(repr(value), 60)} of the type"
        f" {type(value).__name__}, expected a number, text, a date, a list or None."
    )


def like(rows: Any, answers: pa.Table) -> Any:
    """Returns a table in the form in which the rows were given: DataFrame, columns or dicts."""
    if is_frame(rows):
        frame = answers.to_pandas()
        frame.index = rows.index
        return frame
    return answers.to_pydict() if isinstance(rows, Mapping) else answers.to_pylist()
