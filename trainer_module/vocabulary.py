"""Vocabularies of all categorical columns in one pass, and the classes of the label.

TFT's own vocabularies take a dozen Beam stages per column, which dominate Transform on small data,
and are ordered by frequency alone. A label needs an order that stays from one retraining to the
next, and in which the 1 of a 0/1 label is the positive class.
"""

from __future__ import annotations

import collections
import functools
import json
import logging
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
from tensorflow_transform import analyzer_nodes, nodes

from trainer_module.errors import DataError

logger = logging.getLogger(__name__)

CLASSES = "label_classes"
"""The name under which TFTransformOutput knows the classes."""

MOST_COUNTED = 200_000
"""Of a column with more values the most frequent ones are counted on, lest they fill the memory."""

Counts = Sequence[tuple[bytes, int]]
"""Values of one column, each with the number of its occurrences."""


def most_frequent(count: tuple[bytes, int]) -> tuple[int, bytes]:
    """Sorts counts by frequency, equal ones in the order of bytes."""
    return -count[1], count[0]


@dataclass(frozen=True)
class ByFrequency:
    """The most frequent values first; values as frequent as each other in the order of bytes."""

    size: int
    """At most this many values."""
    first: tuple[str, ...] = ()
    """Come before all others, whether they occur or not."""
    column: str = ""
    """Its name, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """The vocabulary by index; warns of a column with so many values that few have one."""
        if len(counts) >= MOST_COUNTED:
            logger.warning(
                "column %r has %d different values or more, of which the %d most frequent have "
                "an index of their own: if it is an identifier, leave it out by features: {%s: "
                "{type: ignore}}; otherwise hash_buckets keeps the others apart",
                self.column, MOST_COUNTED, self.size, self.column,
            )  # fmt: skip
        first = [value.encode() for value in self.first]
        others = [value for value, _ in sorted(counts, key=most_frequent) if value not in first]
        return first + others[: self.size]


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


@dataclass(frozen=True)
class GivenOrder:
    """All classes of an order that is given, whether they occur or not."""

    label: str
    """The label's column, for error messages."""
    classes: tuple[str, ...]

    def __call__(self, counts: Counts) -> list[bytes]:
        """The classes by index; DataError if another one occurs."""
        known = [name.encode() for name in self.classes]
        for value, _ in counts:
            if value not in known:
                found = value.decode(errors="backslashreplace")
                raise DataError(
                    f"label {self.label!r} holds {found!r}, which task.order lacks; it has "
                    f"{', '.join(self.classes)}."
                )
        return known


Order = Callable[[Counts], list[bytes]]
Weigh = Callable[[Counts], Sequence[float]]
"""From the counts of a column's values to numbers that the graph is to know."""


def compute_and_apply_classes(label: tf.Tensor, order: Order) -> tf.Tensor:
    """Maps a label to the index of its class among the classes of the train split.

    Args:
      label: string, any shape; the empty string stands for a missing label.
      order: such as `ClassOrder`.

    Returns:
      int64, the shape of `label`; -1 for a label that is missing or not in the train split.

    Raises:
      DataError: while analysing, what the order raises.
    """
    paths = compute_vocabularies({CLASSES: label}, {CLASSES: order})
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
    return compute_weighted_vocabularies(columns, orders, {})[0]


def compute_weighted_vocabularies(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, Order], weigh: Mapping[str, Weigh]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """The same, and what else follows from the counts of some columns: [n] float32, by name."""
    # Safe whatever the column's name; the hash keeps names apart that differ in the rest alone.
    files = [
        f"{re.sub('[^A-Za-z0-9]', '_', name)}_{zlib.crc32(name.encode()):08x}" for name in columns
    ]
    outputs = [
        _Output(file, orders[n], weigh.get(n)) for n, file in zip(columns, files, strict=True)
    ]
    paths, weights = _analyze(list(columns.values()), outputs)
    for name, file in zip(columns, files, strict=True):
        tft.annotate_asset(name, file)
    weighed = [name for name in columns if name in weigh]
    return dict(zip(columns, paths, strict=True)), dict(zip(weighed, weights, strict=True))


def read_classes(tft_output: tft.TFTransformOutput) -> tuple[str, ...]:
    """The classes that `compute_and_apply_classes` found, by index; none if it was not used."""
    if tft_output.vocabulary_file_by_name(CLASSES) is None:
        return ()
    classes = tft_output.vocabulary_by_name(CLASSES)
    return tuple(c.decode("utf-8", errors="backslashreplace") for c in classes)


@dataclass(frozen=True)
class _Output:
    """What becomes of the counts of one column."""

    file: str
    order: Order
    weigh: Weigh | None


def _analyze(
    columns: Sequence[tf.Tensor], outputs: Sequence[_Output]
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Paths of the vocabularies, and weights, as tensors.

    Counts of datasets seen before come from the cache.

    `tft.experimental.CacheablePTransformAnalyzer` has as many outputs when it counts as at its end,
    and TFT caches one output alone: with it, every column would need an analyzer of its own. So
    this builds what it would, counts in one output and paths in many, from the same parts.
    """
    asset = analyzer_nodes.TemporaryAssetInfo(b"not analysed yet", "text")
    path = analyzer_nodes.TensorInfo(tf.string, [], asset)
    numbers = analyzer_nodes.TensorInfo(tf.float32, [None], None)
    weighed = sum(output.weigh is not None for output in outputs)
    # TFT names an operation after its scope, once in a graph.
    with tf.compat.v1.name_scope("count_values"):
        counts = nodes.apply_operation(
            analyzer_nodes.PTransform,
            analyzer_nodes.get_input_tensors_value_nodes(tuple(columns)),
            ptransform=_CountValues(len(columns)),
            output_tensor_info_list=[analyzer_nodes.TensorInfo(tf.string, None, None)],
            is_partitionable=True,
            cache_coder=_CountsCoder(),
        )
    with tf.compat.v1.name_scope("write_vocabularies"):
        found = nodes.apply_multi_output_operation(
            analyzer_nodes.PTransform,
            counts,
            ptransform=_WriteVocabularies(outputs),
            output_tensor_info_list=[path] * len(columns) + [numbers] * weighed,
            is_partitionable=False,
        )
        tensors = [analyzer_nodes.wrap_as_tensor(output) for output in found]
        return tensors[: len(columns)], tensors[len(columns) :]


class _CountValues(beam.PTransform):
    """From batches of all columns to one list: for each column, counts by value."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def __repr__(self) -> str:
        # Part of the cache's key: another number where other values are counted, or otherwise.
        return "<CountValues 1>"

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return (
            batches
            | "Count in batch" >> beam.Map(_count_batch)
            | "Sum" >> beam.CombineGlobally(_SumCounts(self._columns)).without_defaults()
        )


class _CountsCoder(tft.experimental.PTransformAnalyzerCacheCoder):
    """Counts as JSON, in which every byte of a value is one character."""

    def __repr__(self) -> str:
        # Part of the cache's key: another number where the format is another.
        return "<CountsCoder 1>"

    def encode_cache(self, cache: list[dict[bytes, int]]) -> bytes:
        """The same bytes for the same counts, whatever order they were found in."""
        return json.dumps(
            [
                {value.decode("latin-1"): counts[value] for value in sorted(counts)}
                for counts in cache
            ]
        ).encode()

    def decode_cache(self, encoded_cache: bytes) -> list[dict[bytes, int]]:
        """The opposite of `encode_cache`."""
        return [
            {value.encode("latin-1"): count for value, count in counts.items()}
            for counts in json.loads(encoded_cache)
        ]


class _WriteVocabularies(tft_beam.experimental.PTransformAnalyzer):
    """From counts, a list for each dataset, to the path of each column's vocabulary."""

    def __init__(self, outputs: Sequence[_Output]) -> None:
        super().__init__()
        self._outputs = outputs

    def expand(self, counts: beam.PCollection) -> tuple[beam.PCollection, ...]:
        weighed = sum(output.weigh is not None for output in self._outputs)
        tags = [str(index) for index in range(len(self._outputs) + weighed)]
        outputs = (
            counts
            | "Sum" >> beam.CombineGlobally(_SumCounts(len(self._outputs)))
            | "Write"
            >> beam.FlatMap(_write_vocabularies, self.base_temp_dir, self._outputs).with_outputs(
                *tags
            )
        )
        return tuple(outputs[tag] for tag in tags)


class _SumCounts(beam.CombineFn):
    """Adds up counts by value, column by column."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def create_accumulator(self) -> list[dict[bytes, int]]:
        return [{} for _ in range(self._columns)]

    def add_input(
        self, accumulator: list[dict[bytes, int]], element: list[dict[bytes, int]]
    ) -> list[dict[bytes, int]]:
        for sums, counts in zip(accumulator, element, strict=True):
            for value, count in counts.items():
                sums[value] = sums.get(value, 0) + count
            if len(sums) > 2 * MOST_COUNTED:
                kept = sorted(sums.items(), key=most_frequent)[:MOST_COUNTED]
                sums.clear()
                sums.update(kept)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[list[dict[bytes, int]]]
    ) -> list[dict[bytes, int]]:
        # Into a new one: Beam may still need those that it gives.
        return functools.reduce(self.add_input, accumulators, self.create_accumulator())

    def extract_output(self, accumulator: list[dict[bytes, int]]) -> list[dict[bytes, int]]:
        return accumulator


def _count_batch(columns: tuple[np.ndarray, ...]) -> list[dict[bytes, int]]:
    return [
        {
            value: count
            for value, count in collections.Counter(column.ravel().tolist()).items()
            if value and b"\n" not in value and b"\r" not in value
        }
        for column in columns
    ]


def _write_vocabularies(
    columns: list[dict[bytes, int]], directory: str, outputs: Sequence[_Output]
) -> Iterator[beam.pvalue.TaggedOutput]:
    tf.io.gfile.makedirs(directory)
    weighed = len(outputs)
    for index, (output, sums) in enumerate(zip(outputs, columns, strict=True)):
        counts, path = list(sums.items()), os.path.join(directory, output.file)
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(b"".join(value + b"\n" for value in output.order(counts)))
        yield beam.pvalue.TaggedOutput(str(index), np.array(path.encode()))
        if output.weigh is not None:
            weights = np.array(output.weigh(counts), np.float32)
            yield beam.pvalue.TaggedOutput(str(weighed), weights)
            weighed += 1
