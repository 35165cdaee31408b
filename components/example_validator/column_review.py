"""Columns that a model should not be given, found by looking at the train split.

A constant teaches nothing, an identifier or a sentence taken for a category is a value of its own
in each row, a copy counts twice, and a column that gives the label away will not be there, or not
be known, when the model is asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.facts import Counts
from components.example_validator.dated_rows import SplitFinding
from components.example_validator.leakage import Strength, Target, value_codes
from trainer_module.settings import Task

_FEWEST_ROWS = 50
"""Of fewer, hardly anything can be said."""
_NEARLY_ALL = 0.95
"""Share of the rows with a value of their own in an identifier."""
_MOSTLY = 0.5
"""Share of the rows with a value of their own in a column of sentences."""
_SENTENCE_SPACES = 3
"""Spaces that a sentence has on average, at the least."""
_FEWEST_UNUSUAL = 5
"""Rows without a column's most frequent value that rule out that two columns agree by chance."""


@dataclass(frozen=True)
class ColumnFinding:
    """A column, and what speaks against it."""

    column: str
    found: str
    gives_away: bool = False
    """Whether the column gives the label away."""

    def __str__(self) -> str:
        name = json.dumps(self.column, ensure_ascii=False)
        key = self.column if self.column.isidentifier() else name
        return f"column {name} {self.found}; to leave it out: features: {{{key}: {{type: ignore}}}}"


@dataclass(frozen=True)
class Review:
    """What speaks against columns and the split, and which column says most of the label."""

    findings: tuple[ColumnFinding, ...] = ()
    """Those of columns that give the label away come first."""
    strongest: Strength | None = None
    """Of all columns that were looked at; None where there are too few rows to tell."""
    split: SplitFinding | None = None

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Review:
        """Takes what `to_json` gives."""
        findings = tuple(ColumnFinding(**finding) for finding in values["findings"])
        # Older releases say nothing of the split.
        strongest, split = values["strongest"], values.get("split")
        return cls(
            findings,
            Strength(**strongest) if strongest else None,
            SplitFinding(**split) if split else None,
        )


def review_columns(
    columns: Mapping[str, pa.Array],
    label: str,
    task: Task,
    numbers: Mapping[str, np.ndarray] | None = None,
    typed: Collection[str] = (),
    groups: pa.Array | None = None,
    counts: Mapping[str, Counts] | None = None,
) -> Review:
    """Looks at each column by itself and beside those before it; says one thing of each at most.

    Args:
      columns: the features and the label, by name; [rows] each, of numbers or bytes, null where a
        value is missing. Columns of which the config says what they are have no place here.
      label: the label's name.
      task: what is predicted.
      numbers: columns of text, the label's too, as the numbers or days that are written there:
        [rows] each, NaN where there is none.
      typed: columns that are taken for more than numbers or categories, which may therefore be
        the same, or another, in each row.
      groups: [rows], equal where rows are kept together in one split; None where none are.
      counts: what is known of all rows of the split that `columns` are a sample of.
    """
    counts = counts or {}
    if len(columns[label]) < _FEWEST_ROWS:
        return Review()
    as_numbers = {n: _numbers(values) for n, values in columns.items() if not _is_text(values)}
    as_numbers |= numbers or {}
    target = Target(label_numbers(columns[label], as_numbers.get(label), task), task, groups)
    twins: dict[tuple[str, bytes], str] = {}
    findings, strengths = [], []
    for name, values in columns.items():
        if name == label:
            continue
        found = next(_is_no_use(values, counts.get(name), is_typed=name in typed), None)
        if values.null_count < len(values) and value_codes(values).any():
            strength = target.strength_of(name, values, as_numbers.get(name))
            strengths += [strength] if strength is not None else []
            if found is None:
                plain = as_numbers.keys() - {*(numbers or {}), *typed}
                found = next(_repeats(name, columns, as_numbers.get(name), plain, twins), None)
            if strength is not None and strength.gives_away:
                findings.append(ColumnFinding(name, f"gives the label away ({strength})", True))
                continue
        if found is not None:
            findings.append(ColumnFinding(name, found))
    findings.sort(key=lambda finding: not finding.gives_away)
    strongest = max(strengths, key=lambda strength: strength.value, default=None)
    return Review(tuple(findings), strongest)


def _is_no_use(values: pa.Array, counts: Counts | None, *, is_typed: bool) -> Iterator[str]:
    known = values.drop_null()
    if not (len(known) if counts is None else counts.known):
        yield "has no value in any row"
    elif len(known) and not is_typed:
        distinct, rows = pc.count_distinct(known).as_py(), len(known)
        is_constant = distinct == 1 and not values.null_count
        if counts is not None:
            is_constant = is_constant and counts.is_constant
            if counts.distinct is not None:
                distinct, rows = counts.distinct, counts.known
        if is_constant:
            yield f"is {_show(known[0])} in every row"
        else:
            yield from _identifies(known, distinct, rows)


def _repeats(
    name: str,
    columns: Mapping[str, pa.Array],
    numbers: np.ndarray | None,
    plain: Collection[str],
    twins: dict[tuple[str, bytes], str],
) -> Iterator[str]:
    """Whether a column says what one before it says already.

    Of two `plain` numbers, such as the latitude and the longitude of a few places, each has its
    own order to tell.
    """
    values = columns[name]
    # In the order of their first rows, values that stand for each other have the same numbers.
    codes = value_codes(values)
    twin = twins.setdefault(("values", _digest(codes)), name)
    counts = np.bincount(codes)
    is_chance = len(codes) - counts.max() < _FEWEST_UNUSUAL
    shown = json.dumps(twin, ensure_ascii=False)
    if twin != name and values.equals(columns[twin]):
        yield f"is the same as {shown} in every row"
    elif (
        twin != name
        and not {name, twin} <= {*plain}
        and len(counts) <= _MOSTLY * len(codes)
        and not is_chance
    ):
        yield (
            f"maps one to one to {shown}: each of {len(counts):,} values of the one stands for one "
            "of the other, and one of the two columns is enough"
        )
    if numbers is not None and not is_chance:
        order = np.unique(numbers, return_inverse=True)[1]
        is_falling = order[0] > order.max() - order[0]
        order = np.where(np.isnan(numbers), -1, order.max() - order if is_falling else order)
        twin = twins.setdefault(("order", _digest(order)), name)
        if twin != name:
            yield (
                f"rises or falls with {json.dumps(twin, ensure_ascii=False)} in every row, as the "
                "same in another unit does, and one of the two columns is enough"
            )


def _identifies(known: pa.Array, distinct: int, rows: int) -> Iterator[str]:
    """Whether a column is another in nearly each row, as numbers that are measured may be."""
    share = distinct / rows
    counted = f"{distinct:,} different values in {rows:,} rows"
    if _is_text(known):
        text = known.cast(pa.binary()).cast(pa.string(), safe=False)
        spaces = pc.mean(pc.count_substring(text, " ")).as_py()
        if spaces >= _SENTENCE_SPACES and share > _MOSTLY:
            yield f"holds sentences ({counted}), each of which would be a category of its own"
        elif share > _NEARLY_ALL:
            yield f"has {counted}, as an identifier has"
    elif share == 1 and _are_whole(known):
        yield f"has another whole number in each of {len(known):,} rows, as an identifier has"


def label_numbers(labels: pa.Array, numbers: np.ndarray | None, task: Task) -> np.ndarray:
    """The label as numbers, or as numbers of its classes in order, NaN where it is missing.

    In order, so that of two classes the second is the positive one.
    """
    if not task.is_classification:
        return np.full(len(labels), np.nan) if numbers is None else numbers
    classes = pc.rank(labels, null_placement="at_end", tiebreaker="dense").to_numpy() - 1.0
    classes[~labels.is_valid().to_numpy(zero_copy_only=False)] = np.nan
    return classes


def _numbers(values: pa.Array) -> np.ndarray:
    """Numbers of any type; NaN where there is none."""
    return values.to_numpy(zero_copy_only=False).astype(np.float64)


def _is_text(values: pa.Array) -> bool:
    return not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type))


def _are_whole(known: pa.Array) -> bool:
    if pa.types.is_integer(known.type):
        return True
    numbers = known.to_numpy(zero_copy_only=False)
    return bool(np.all(numbers == np.floor(numbers)))


def _digest(codes: np.ndarray) -> bytes:
    """The same for columns of the same codes."""
    return hashlib.blake2b(codes.astype(np.int64).tobytes()).digest()


def _show(value: pa.Scalar) -> str:
    found = value.as_py()
    return (
        repr(found.decode(errors="backslashreplace")) if isinstance(found, bytes) else f"{found:g}"
    )
