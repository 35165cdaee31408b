"""The rows or the columns that a request brings: whether they are those that the model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from components.serving.servable import Arrays
from components.serving.server.errors import RequestError, unknown_name
from components.serving.server.protocols.values import (
    groups_of_numbers,
    numbers_at_once,
    to_array,
    type_of,
)
from trainer_module.export.interface import ModelInterface

Rows = list[Any]
"""Rows of JSON, each of which should be an object with a key per column."""
Columns = dict[str, list[Any]]
"""Values of JSON by the names of requests, one a row, of which the types are not looked at yet."""


def from_rows(rows: Rows, interface: ModelInterface) -> Columns:
    """Columns by the names of requests, for at least one row.

    Raises:
      RequestError: names the row that has other columns than the model.
    """
    names = list(interface.by_request)
    if len(names) > 1:
        try:
            if set(map(len, rows)) == {len(names)}:
                values = zip(*map(itemgetter(*names), rows), strict=True)
                return dict(zip(names, map(list, values), strict=True))
        except (KeyError, TypeError, ValueError):
            pass  # The next lines say what is wrong.
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            if len(names) == 1:
                return from_columns({names[0]: rows}, interface)
            raise RequestError(
                f"instances[{place}] is {type_of(row)}, expected an object with a key per column:"
                f" {', '.join(sorted(names))}."
            )
        if row.keys() != set(names):
            if len(names) == 1 and row.keys() == {"b64"}:
                return from_columns({names[0]: rows}, interface)
            raise _wrong_keys(f"instances[{place}]", row, names)
    return {name: [row[name] for row in rows] for name in names}


def from_columns(columns: Mapping[str, Any], interface: ModelInterface) -> Columns:
    """The same for a list of values per column."""
    known = interface.by_request
    if columns.keys() != known.keys():
        raise _wrong_keys("inputs", columns, list(known))
    for name in known:
        if not isinstance(columns[name], list):
            said = type_of(columns[name])
            raise RequestError(f"{name!r} is {said}, expected a list of rows.")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise RequestError(
            f"the columns of `inputs` have different numbers of rows: {sorted(lengths)}."
        )
    return {name: columns[name] for name in known}


def rows_to_arrays(rows: Rows, interface: ModelInterface) -> Arrays:
    """Tensors by the names of requests, [rows, ...] each, for at least one row.

    Raises:
      RequestError: names the row and the column that the model cannot take.
    """
    found = _from_like_rows(rows, interface)
    return to_arrays(from_rows(rows, interface), interface) if found is None else found


def _from_like_rows(rows: Rows, interface: ModelInterface) -> Arrays | None:
    """The same without a list for each column of numbers; None where rows are not all as usual."""
    columns = interface.by_request
    groups = groups_of_numbers(columns.values())
    names = [[column.request for column in group] for group in groups]
    try:
        if set(map(len, rows)) != {len(columns)}:
            return None
        flat = [_values_of(of, rows) for of in names]
        others = {n: [row[n] for row in rows] for n in set(columns).difference(*names)}
    except (KeyError, TypeError):
        return None
    found: Arrays = {}
    for group, values in zip(groups, flat, strict=True):
        arrays = numbers_at_once(values, group, are_rows=True)
        if arrays is None:
            return None
        found |= arrays
    return {n: found[n] if n in found else to_array(others[n], c) for n, c in columns.items()}


def _values_of(names: Sequence[str], rows: Rows) -> list[Any]:
    """The values of some columns, row by row."""
    if len(names) == 1:
        return [row[names[0]] for row in rows]
    return list(chain.from_iterable(map(itemgetter(*names), rows)))


def to_arrays(columns: Columns, interface: ModelInterface) -> Arrays:
    """The same for a list of values per column."""
    known = interface.by_request
    found: Arrays = {}
    for group in groups_of_numbers(known.values()):
        flat = list(chain.from_iterable(columns[column.request] for column in group))
        found |= numbers_at_once(flat, group, are_rows=False) or {}
    return {
        name: found[name] if name in found else to_array(columns[name], column)
        for name, column in known.items()
    }


def _wrong_keys(where: str, given: Mapping[str, Any], names: Sequence[str]) -> RequestError:
    for name in given:
        if name not in names:
            return unknown_name(where, str(name), names)
    missing = [name for name in names if name not in given]
    return RequestError(f"{where} lacks {', '.join(map(repr, missing))}: give every column.")
