"""TFRecords of tf.Examples, which go to the model as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import tensorflow as tf

from components.example_gen.columns.encoded import Cell
from components.example_gen.files.opening import is_gzip
from components.serving.batch.blocks import Block
from components.serving.model import EXAMPLES_INPUT
from components.serving.pictures import measure_pictures
from trainer_module.errors import ConfigError, DataError
from trainer_module.export.interface import ModelInterface

_RECORDS = 4096
"""That are read at once."""


def read_records(
    files: Sequence[str], kept: Sequence[str], interface: ModelInterface, max_pixels: int
) -> Iterator[Block]:
    """The records of files, in order.

    Args:
      files: gzipped where the name ends in .gz.
      kept: features that go along to the answers.
      interface: of the model.
      max_pixels: that a picture may have.

    Raises:
      DataError: a file is damaged, or holds something else.
    """
    for file in files:
        row = 1
        dataset = tf.data.TFRecordDataset(file, "GZIP" if is_gzip(file) else "")
        try:
            for records in dataset.batch(_RECORDS).as_numpy_iterator():
                first, examples = Cell(file, row), records.tolist()
                columns = {name: _column(name, examples, first) for name in kept}
                _check_pictures(examples, first, interface, max_pixels)
                yield Block(len(examples), first, None, examples, columns)
                row += len(examples)
        except tf.errors.OpError as error:
            raise DataError(
                f"{file} is damaged or cut off after about {row - 1} records: copy or write it"
                " again (a gzipped file's name must end in .gz)."
            ) from error


def _check_pictures(
    examples: Sequence[bytes], first: Cell, interface: ModelInterface, max_pixels: int
) -> None:
    """Raises DataError for the first record with a picture that the model cannot decode."""
    measure_pictures(
        {EXAMPLES_INPUT: np.array(examples, object)},
        interface,
        are_examples=True,
        most=max_pixels,
        where=lambda place: f"record {first.row + place} of {first.file}",
    )


def _column(name: str, examples: Sequence[bytes], first: Cell) -> pa.Array:
    """A feature of one value a record, null where a record lacks it."""
    return pa.array([_value(name, text, first, place) for place, text in enumerate(examples)])


def _value(name: str, serialised: bytes, first: Cell, place: int) -> str | float | None:
    feature = tf.train.Example.FromString(serialised).features.feature
    kind = feature[name].WhichOneof("kind") if name in feature else None
    found = list(getattr(feature[name], kind).value) if kind else []
    if len(found) > 1:
        raise ConfigError(
            f"--columns {name}: record {first.row + place} of {first.file} has {len(found)}"
            " values of it; leave it out."
        )
    if not found:
        return None
    value: bytes | float = found[0]
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
