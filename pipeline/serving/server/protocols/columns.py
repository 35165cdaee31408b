"""The rows or the columns that a request brings: whether they are those that the model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from pipeline.serving.servable import Arrays
from pipeline.serving.server.errors import RequestError, unknown_name
from pipeline.serving.server.protocols.values import to_array, type_of
from trainer_module.exported.interface import ModelInterface

Columns = dict[str, list[Any]]
"""Values of JSON by the names of requests, one a row, of which the types are not looked at yet."""


def from_rows(rows: Sequence[Any], interface: ModelInterface) -> Columns:
    """Columns by the names of requests, for an object of columns per row.

    Raises:
      RequestError: names the row that has other columns than the model.
    """
    names = list(interface.by_request)
    if len(names) > 1:
        try:
            if all(len(row) == len(names) for row in rows if type(row) is dict):
                values = zip(*map(itemgetter(*names), rows), strict=True)
                return dict(zip(names, map(list, values), strict=True))
        except (KeyError, TypeError, ValueError):
            pass  # The next lines say what is wrong.
    if not rows:
        raise RequestError("`instances` is empty: give one object a row.")
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


def to_arrays(columns: Columns, interface: ModelInterface) -> Arrays:
    """Tensors by the names of requests, [rows, ...] each.

    Raises:
      RequestError: names the row and the column that the model cannot take.
    """
    return {n: to_array(columns[n], column) for n, column in interface.by_request.items()}


def _wrong_keys(where: str, given: Mapping[str, Any], names: Sequence[str]) -> RequestError:
    for name in given:
        if name not in names:
            return unknown_name(where, str(name), names)
    missing = [name for name in names if name not in given]
    return RequestError(f"{where} lacks {', '.join(map(repr, missing))}: give every column.")
