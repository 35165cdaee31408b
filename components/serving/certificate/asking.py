"""Golden rows as the requests of each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import (
    ARROW_TYPES,
    Cell,
    first_values,
    lists,
    no_values,
)
from components.infra_validator.rows import GoldenRow
from components.serving.model import EXAMPLES_INPUT, Model
from components.serving.requests import kind_of_column, to_request
from components.serving.servable import Arrays
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface, RawColumn

AT_ONCE = 32
"""Rows that are asked for together, which may be pictures."""


@dataclass(frozen=True)
class GoldenRequest:
    """A model, and what it is asked."""

    model: Model
    rows: Sequence[GoldenRow]
    columns: pa.RecordBatch
    """The rows as ExampleGen's sources would read them."""
    tensors: Arrays
    """The rows as `serving_raw` takes them."""

    @classmethod
    def of(cls, model: Model, rows: Sequence[GoldenRow]) -> GoldenRequest:
        """Takes the examples apart."""
        columns = _read_columns(rows, model.interface)
        return cls(
            model, rows, columns, to_request(columns, Cell("the golden rows", 1), model.interface)
        )

    @property
    def examples(self) -> np.ndarray:
        """The rows as `serving_default` takes them."""
        return np.array([row.example for row in self.rows], object)

    @property
    def slices(self) -> list[slice]:
        """Those of the rows that are asked for together."""
        return [slice(start, start + AT_ONCE) for start in range(0, len(self.rows), AT_ONCE)]

    def table(self) -> pa.Table:
        """The rows as a file of columns has them: a single value as such, several as a list."""
        found = {}
        for column in self.model.interface.columns:
            values = self.columns.column(column.name)
            found[column.name] = first_values(values) if column.width == 1 else values
        return pa.table(found)


def join(parts: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
    """The answers to slices as those to all rows."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def ask_examples(asked: GoldenRequest) -> Arrays:
    """By the signature of serialised tf.Examples."""
    examples = asked.examples
    return join(
        [asked.model.predict_examples({EXAMPLES_INPUT: examples[part]}) for part in asked.slices]
    )


def ask_raw(asked: GoldenRequest) -> Arrays:
    """By the signature of a tensor per column."""
    parts = ({n: tensor[part] for n, tensor in asked.tensors.items()} for part in asked.slices)
    return join([asked.model.predict(part) for part in parts])


def _read_columns(rows: Sequence[GoldenRow], interface: ModelInterface) -> pa.RecordBatch:
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        parsed = [tf.train.Example.FromString(row.example).features.feature for row in rows]
    except DecodeError as error:
        raise DataError(
            f"a golden row is no tf.Example ({error}): push the version again."
        ) from None
    columns = [_read_column(parsed, column) for column in interface.columns]
    return pa.RecordBatch.from_arrays(columns, [column.name for column in interface.columns])


def _read_column(parsed: Sequence[Any], column: RawColumn) -> pa.LargeListArray:
    kind = kind_of_column(column.dtype, column.is_whole)
    values: list[Any] = []
    lengths = np.zeros(len(parsed), np.int64)
    for place, features in enumerate(parsed):
        # Asking the message for a key that it lacks would add it.
        which = features[column.name].WhichOneof("kind") if column.name in features else None
        if which is not None:
            found = list(getattr(features[column.name], which).value)
            lengths[place] = len(found)
            values += found
    if not values:
        return no_values(len(parsed), kind)
    return lists(pa.array(values, ARROW_TYPES[kind]), lengths)
