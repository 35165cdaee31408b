"""Vocabularies of all categorical columns in one pass, and the classes of the label.

TFT's own vocabularies take a dozen Beam stages per column, which dominate Transform on small data,
and are ordered by frequency alone. A label needs an order that stays from one retraining to the
next, and in which the 1 of a 0/1 label is the positive class.
"""

from __future__ import annotations

import collections
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam

from trainer_module.errors import DataError

CLASSES = "label_classes"
"""The name under which TFTransformOutput knows the classes."""

Counts = Sequence[tuple[bytes, int]]
"""Values of one column, each with the number of its occurrences."""


@dataclass(frozen=True)
class ByFrequency:
    """The most frequent values first; values as frequent as each other in the order of bytes."""

    size: int
    """At most this many values."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """The vocabulary by index."""
        return [value for value, _ in sorted(counts, key=lambda c: (-c[1], c[0]))[: self.size]]


@dataclass(frozen=True)
class ClassOrder:
    """All values, sorted: as numbers if `numeric`, bytewise otherwise."""

    label: str
    """The label's column, for error messages."""
    numeric: bool

    def __call__(self, counts: Counts) -> list[bytes]:
        """The classes by index; DataError if there are none, or a number that is not whole."""
        classes = sorted(value for value, _ in counts)
        if not classes:
            raise DataError(f"label {self.label!r} has no value in the train split.")
        if not self.numeric:
            return classes
        for value in classes:
            if not value.removeprefix(b"-").isdigit():
                raise DataError(
                    f"label {self.label!r} holds {value.decode()}, but a class must be a whole "
                    "number or text; use task: regression to predict a number."
                )
        return sorted(classes, key=int)


Order = Callable[[Counts], list[bytes]]


def compute_and_apply_classes(label: tf.Tensor, name: str, numeric: bool) -> tf.Tensor:
    """Maps a label to the index of its class among the sorted classes of the train split.

    Args:
        label: string, any shape; the empty string stands for a missing label.
        name: the label's column, for error messages.
        numeric: whether the strings are whole numbers, which sort as numbers; others sort bytewise.

    Returns:
        int64, the shape of `label`; -1 for a label that is missing or not in the train split.

    Raises:
        DataError: while analysing, if there is no label or a numeric one is not a whole number.
    """
    paths = compute_vocabularies({CLASSES: label}, {CLASSES: ClassOrder(name, numeric)})
    return tft.apply_vocabulary(label, paths[CLASSES], default_value=-1)


def compute_vocabularies(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, Order]
) -> dict[str, tf.Tensor]:
    """Counts the values of all columns at once and writes a vocabulary asset for each.

    Args:
        columns: string, any shape. The empty string and values with a line break are left out.
        orders: by the same names: from the counts of a column's values to its vocabulary.

    Returns:
        By the same names, paths of the assets for `tft.apply_vocabulary`;
        `TFTransformOutput.vocabulary_by_name` finds them by name.
    """
    # Safe whatever the column's name; the hash keeps names apart that differ in the rest alone.
    files = [
        f"{re.sub('[^A-Za-z0-9]', '_', name)}_{zlib.crc32(name.encode()):08x}" for name in columns
    ]
    paths = tft.experimental.ptransform_analyzer(
        inputs=list(columns.values()),
        ptransform=_WriteVocabularies(files, [orders[name] for name in columns]),
        output_dtypes=[tf.string] * len(columns),
        output_shapes=[[]] * len(columns),
        output_asset_default_values=[b"not analysed yet"] * len(columns),
    )
    for name, file in zip(columns, files, strict=True):
        tft.annotate_asset(name, file)
    return dict(zip(columns, paths, strict=True))


def read_classes(tft_output: tft.TFTransformOutput) -> tuple[str, ...]:
    """The classes that `compute_and_apply_classes` found, by index; none if it was not used."""
    if tft_output.vocabulary_file_by_name(CLASSES) is None:
        return ()
    classes = tft_output.vocabulary_by_name(CLASSES)
    return tuple(c.decode("utf-8", errors="backslashreplace") for c in classes)


class _WriteVocabularies(tft_beam.experimental.PTransformAnalyzer):
    """From batches of all columns to the path of each column's vocabulary."""

    def __init__(self, files: Sequence[str], orders: Sequence[Order]) -> None:
        super().__init__()
        self._files = files
        self._orders = orders

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, ...]:
        tags = [str(index) for index in range(len(self._files))]
        outputs = (
            batches
            | "Count in batch" >> beam.FlatMap(_count_batch)
            | "Count" >> beam.CombinePerKey(sum)
            | "Collect" >> beam.combiners.ToList()
            | "Write"
            >> beam.FlatMap(
                _write_vocabularies, self.base_temp_dir, self._files, self._orders
            ).with_outputs(*tags)
        )
        return tuple(outputs[tag] for tag in tags)


def _count_batch(columns: tuple[np.ndarray, ...]) -> Iterator[tuple[tuple[int, bytes], int]]:
    for index, column in enumerate(columns):
        for value, count in collections.Counter(column.ravel().tolist()).items():
            if value and b"\n" not in value and b"\r" not in value:
                yield (index, value), count


def _write_vocabularies(
    counts: Iterable[tuple[tuple[int, bytes], int]],
    directory: str,
    files: Sequence[str],
    orders: Sequence[Order],
) -> Iterator[beam.pvalue.TaggedOutput]:
    by_column: list[list[tuple[bytes, int]]] = [[] for _ in files]
    for (index, value), count in counts:
        by_column[index].append((value, count))
    tf.io.gfile.makedirs(directory)
    for index, (file, order, column) in enumerate(zip(files, orders, by_column, strict=True)):
        path = os.path.join(directory, file)
        with tf.io.gfile.GFile(path, "wb") as output:
            output.write(b"".join(value + b"\n" for value in order(column)))
        yield beam.pvalue.TaggedOutput(str(index), np.array(path.encode()))
