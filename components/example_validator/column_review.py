"""Columns that a model should not be given, found by looking at the train split.

A constant teaches nothing, an identifier or a sentence taken for a category is a value of its own
in each row, a copy counts twice, and a column that gives the label away will not be there, or not
be known, when the model is asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer_module.settings import Task

_FEWEST_ROWS = 50
"""Of fewer, hardly anything can be said."""
_NEARLY_ALL = 0.95
"""Share of the rows with a value of their own in an identifier."""
_MOSTLY = 0.5
"""Share of the rows with a value of their own in a column of sentences."""
_SENTENCE_SPACES = 3
"""Spaces that a sentence has on average, at the least."""
_GIVEN_AWAY = 0.99
"""AUC, or accuracy, that one column reaches by itself only if it holds the answer."""
_GIVEN_AWAY_RANKS = 0.999
"""The same as a rank correlation with a number."""
_ROWS_PER_VALUE = 20
"""Rows that each value needs on average for what it says of the label to be more than chance."""


@dataclass(frozen=True)
class ColumnFinding:
    """A column, and what speaks against it."""

    column: str
    found: str

    def __str__(self) -> str:
        name = json.dumps(self.column, ensure_ascii=False)
        key = self.column if self.column.isidentifier() else name
        return f"column {name} {self.found}; to leave it out: features: {{{key}: {{type: ignore}}}}"

    def to_json(self) -> dict[str, Any]:
        """As `ColumnFinding(**...)` takes it."""
        return asdict(self)


def review_columns(columns: Mapping[str, pa.Array], label: str, task: Task) -> list[ColumnFinding]:
    """What speaks against columns, at most one thing of each.

    Args:
      columns: the features and the label, by name; [rows] each, of numbers or bytes, null where a
        value is missing. Columns of which the config says what they are have no place here.
      label: the label's name.
      task: what is predicted.
    """
    labels = columns[label]
    if len(labels) < _FEWEST_ROWS:
        return []
    target = _Target(labels, task)
    twins: dict[bytes, str] = {}
    findings = []
    for name, values in columns.items():
        if name != label:
            found = next(_speaks_against(name, values, target, twins), None)
            if found is not None:
                findings.append(ColumnFinding(name, found))
    return findings


def _speaks_against(
    name: str, values: pa.Array, target: _Target, twins: dict[bytes, str]
) -> Iterator[str]:
    known = values.drop_null()
    if not len(known):
        yield "has no value in any row"
        return
    distinct = pc.count_distinct(known).as_py()
    if distinct == 1 and not values.null_count:
        yield f"is {_show(known[0])} in every row"
        return
    yield from _identifies(known, distinct)
    twin = twins.setdefault(_digest(values), name)
    if twin != name:
        yield f"is the same as {json.dumps(twin, ensure_ascii=False)} in every row"
    yield from target.is_given_away_by(values, distinct)


def _identifies(known: pa.Array, distinct: int) -> Iterator[str]:
    """Whether a column is another in nearly each row, as numbers that are measured may be."""
    share = distinct / len(known)
    counted = f"{distinct:,} different values in {len(known):,} rows"
    if _is_text(known):
        text = known.cast(pa.binary()).cast(pa.string(), safe=False)
        spaces = pc.mean(pc.count_substring(text, " ")).as_py()
        if spaces >= _SENTENCE_SPACES and share > _MOSTLY:
            yield f"holds sentences ({counted}), each of which would be a category of its own"
        elif share > _NEARLY_ALL:
            yield f"has {counted}, as an identifier has"
    elif share == 1 and _are_whole(known):
        yield f"has another whole number in each of {len(known):,} rows, as an identifier has"


class _Target:
    """The label, and how well a column by itself predicts it."""

    def __init__(self, labels: pa.Array, task: Task) -> None:
        self._task = task
        if task is Task.REGRESSION:
            self._labels = _ranks(labels.to_numpy(zero_copy_only=False).astype(np.float64))
        else:
            encoded = labels.dictionary_encode()
            # In order, so that of two classes the second is the positive one.
            order = pc.array_sort_indices(encoded.dictionary).to_numpy()
            self._labels = np.argsort(order)[encoded.indices.to_numpy(zero_copy_only=False)]

    def is_given_away_by(self, values: pa.Array, distinct: int) -> Iterator[str]:
        """Says so where a column says the label nearly without error."""
        groups = _groups(values, distinct)
        if self._task is Task.REGRESSION:
            if not _is_text(values) and values.null_count == 0:
                numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
                correlation = abs(np.corrcoef(_ranks(numbers), self._labels)[0, 1])
                if correlation >= _GIVEN_AWAY_RANKS:
                    yield f"gives the label away (rank correlation {correlation:.4f})"
        elif groups is not None:
            name, reached = self._reached(groups)
            if reached >= _GIVEN_AWAY:
                yield f"gives the label away ({name} {reached:.4f} by itself)"

    def _reached(self, groups: np.ndarray) -> tuple[str, float]:
        """What always answering with a group's most frequent class, or its share, comes to."""
        classes = int(self._labels.max()) + 1
        counts = np.zeros((int(groups.max()) + 1, classes))
        np.add.at(counts, (groups, self._labels), 1)
        if classes != 2:
            largest = counts.sum(0).max() / counts.sum()
            reached = counts.max(1).sum() / counts.sum()
            # Where nearly all rows are of one class, every column is right nearly always.
            return "accuracy", reached if 1 - reached < (1 - largest) / 2 else 0.0
        counts = counts[np.argsort(counts[:, 1] / counts.sum(1))]
        below = np.cumsum(counts[:, 0]) - counts[:, 0] / 2
        negative, positive = counts.sum(0)
        return "AUC", float((counts[:, 1] * below).sum() / (positive * negative))


def _groups(values: pa.Array, distinct: int) -> np.ndarray | None:
    """Rows by what their values are, or nearly are; None where there are too many for that."""
    rows = len(values)
    most = max(rows // _ROWS_PER_VALUE, 2)
    if distinct <= most:
        encoded = values.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(zero_copy_only=False)
    if _is_text(values):
        return None
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    edges = np.unique(np.nanquantile(numbers, np.linspace(0, 1, most + 1)[1:-1]))
    return np.where(np.isnan(numbers), len(edges) + 1, np.searchsorted(edges, numbers))


def _ranks(numbers: np.ndarray) -> np.ndarray:
    """Ranks; equal numbers share theirs."""
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[inverse]


def _is_text(values: pa.Array) -> bool:
    return not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type))


def _are_whole(known: pa.Array) -> bool:
    if pa.types.is_integer(known.type):
        return True
    numbers = known.to_numpy(zero_copy_only=False)
    return bool(np.all(numbers == np.floor(numbers)))


def _digest(values: pa.Array) -> bytes:
    """The same for columns that are equal in every row."""
    digest = hashlib.blake2b(str(values.type).encode())
    digest.update(np.packbits(values.is_valid().to_numpy(zero_copy_only=False)).tobytes())
    filled = values.drop_null()
    if _is_text(values):
        lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False)
        digest.update(lengths.tobytes())
        digest.update(pc.binary_join(pa.array([filled.to_pylist()]), b"")[0].as_buffer())
    else:
        digest.update(filled.to_numpy(zero_copy_only=False).tobytes())
    return digest.digest()


def _show(value: pa.Scalar) -> str:
    found = value.as_py()
    return (
        repr(found.decode(errors="backslashreplace")) if isinstance(found, bytes) else f"{found:g}"
    )
