"""Computes the vocabularies of all columns in one pass, as assets of the transform graph.

TFT's own vocabularies take a dozen Beam stages per column, which take most of the time of Transform
on small data. They are also ordered by frequency only. The classes of a label need an order that
does not change when a model is trained again, and in which 1 is the positive class of a 0/1 label.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform import analyzer_nodes, nodes

from trainer_module.features.vocabulary_orders import MOST_COUNTED, Order, Weigh, most_frequent


class CountValues(beam.PTransform):
    """A Beam transform that counts the values of all columns.

    Its inputs are batches of all columns. Its output is a list with a dictionary per column, from
    values to counts.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def __repr__(self) -> str:
        # This string is part of TFT's cache key: increase the number when other values are counted.
        return "<CountValues 1>"

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Returns a collection with the counts of all batches; it is empty if there is no batch."""
        return (
            batches
            | "Count in batch" >> beam.Map(_count_batch)
            | "Sum" >> beam.CombineGlobally(SumCounts(self._columns)).without_defaults()
        )


class CountsCoder(tft.experimental.PTransformAnalyzerCacheCoder):
    """A coder of counts as JSON, in which every byte of a value is one character."""

    def __repr__(self) -> str:
        # This string is part of TFT's cache key: increase the number when the format changes.
        return "<CountsCoder 1>"

    def encode_cache(self, cache: list[dict[bytes, int]]) -> bytes:
        """Returns the counts as JSON; the result does not depend on the order of the values."""
        return json.dumps(
            [
                {value.decode("latin-1"): counts[value] for value in sorted(counts)}
                for counts in cache
            ]
        ).encode()

    def decode_cache(self, encoded_cache: bytes) -> list[dict[bytes, int]]:
        """Returns the counts that `encode_cache` has encoded."""
        return [
            {value.encode("latin-1"): count for value, count in counts.items()}
            for counts in json.loads(encoded_cache)
        ]


class SumCounts(beam.CombineFn):
    """A combiner that adds the counts of equal values of each column."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def create_accumulator(self) -> list[dict[bytes, int]]:
        """Returns an empty dictionary per column."""
        return [{} for _ in range(self._columns)]

    def add_input(
        self, accumulator: list[dict[bytes, int]], element: list[dict[bytes, int]]
    ) -> list[dict[bytes, int]]:
        """Returns the accumulator after adding counts; of too many values, it drops the rarest."""
        for sums, counts in zip(accumulator, element, strict=True):
            for value, count in counts.items():
                sums[value] = sums.get(value, 0) + count
            if len(sums) > 2 * MOST_COUNTED:
                frequent = sorted(sums.items(), key=most_frequent)[:MOST_COUNTED]
                sums.clear()
                sums.update(frequent)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[list[dict[bytes, int]]]
    ) -> list[dict[bytes, int]]:
        """Returns the sums of all accumulators."""
        # The sums are in a new accumulator, as Beam may reuse the inputs.
        return functools.reduce(self.add_input, accumulators, self.create_accumulator())

    def extract_output(self, accumulator: list[dict[bytes, int]]) -> list[dict[bytes, int]]:
        """Returns the accumulator itself as the output."""
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


def compute_vocabularies(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, Order]
) -> dict[str, tf.Tensor]:
    """Counts the values of all columns in one analysis, and writes a vocabulary asset per column.

    `TFTransformOutput.vocabulary_by_name` finds the vocabularies by the names of the columns.

    Args:
      columns: the columns by name, strings of any shape. Empty strings and values with a line break
        are not counted.
      orders: for each column, the function from the counts of its values to its vocabulary.

    Returns:
      The paths of the assets by column, for `tft.apply_vocabulary`.
    """
    return compute_weighted_vocabularies(columns, orders, {})[0]


def compute_weighted_vocabularies(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, Order], weigh: Mapping[str, Weigh]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Computes vocabularies as `compute_vocabularies`, and the weights of some of them.

    Args:
      columns: the columns by name, as for `compute_vocabularies`.
      orders: the order of each column, as for `compute_vocabularies`.
      weigh: for some columns, the function from the counts of the values to weights.

    Returns:
      The paths of the assets by column, and the weights, [n] float32 each, by column.
    """
    files = {name: _file_name(name) for name in columns}
    outputs = [_Output(files[name], orders[name], weigh.get(name)) for name in columns]
    analysis = _analyze(list(columns.values()), outputs)
    for name, file in files.items():
        tft.annotate_asset(name, file)
    with_weights = [name for name in columns if name in weigh]
    return dict(zip(columns, analysis.paths, strict=True)), dict(
        zip(with_weights, analysis.numbers, strict=True)
    )


def compute_joined_vocabularies(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, Order]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes vocabularies as `compute_vocabularies`, and an asset that joins all vocabularies.

    With a table per column, writing or loading the graph of thousands of columns takes minutes.

    Args:
      columns: the columns by name, as for `compute_vocabularies`.
      orders: the order of each column, as for `compute_vocabularies`.

    Returns:
      The path of the joined asset, and the number of values of each column, [columns] int64. Each
      line of the asset consists of the `joined_key` of a column and a value of the column.
    """
    files = {name: _file_name(name) for name in columns}
    outputs = [_Output(files[name], orders[name], None) for name in columns]
    joined_file = _file_name("\n".join(columns), prefix="joined")
    analysis = _analyze(list(columns.values()), outputs, joined_file)
    for name, file in files.items():
        tft.annotate_asset(name, file)
    (sizes,) = analysis.numbers
    return analysis.paths[-1], tf.cast(sizes, tf.int64)


def joined_key(index: int) -> str:
    """Returns the prefix of a column's lines in a joined asset.

    Args:
      index: the position of the column among the columns.
    """
    return f"{index}:"


class JoinedTable:
    """A function that creates the lookup table of a joined asset on its first call only."""

    def __init__(self) -> None:
        """Creates the function without a table, as the path of the asset is not available yet."""
        self._table: tf.lookup.StaticHashTable | None = None

    def __call__(self, path: Any) -> tf.lookup.StaticHashTable:
        """Returns the table from lines to line numbers; other strings have the number -1."""
        if self._table is None:
            index = tf.lookup.TextFileIndex
            lines = tf.lookup.TextFileInitializer(
                path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
            )
            self._table = tf.lookup.StaticHashTable(lines, -1)
        return self._table


def _file_name(name: str, prefix: str | None = None) -> str:
    """Returns a file name without special characters.

    Args:
      name: the name, whose hash distinguishes names that differ only in special characters.
      prefix: the beginning of the file name; by default the name.
    """
    safe = re.sub("[^A-Za-z0-9]", "_", name if prefix is None else prefix)
    return f"{safe}_{zlib.crc32(name.encode()):08x}"


@dataclass(frozen=True)
class _Output:
    """The vocabulary of one column, and its weights."""

    file: str
    """The name of the vocabulary's file."""
    order: Order
    weigh: Weigh | None
    """The function that returns the weights, or None if the column has no weights."""


@dataclass(frozen=True)
class _Analysis:
    """The outputs of an analysis, as tensors."""

    paths: list[tf.Tensor]
    """The paths of the columns' vocabularies, and of the joined vocabulary if there is one."""
    numbers: list[tf.Tensor]
    """The weights of columns, and the sizes of the vocabularies if there is a joined vocabulary."""


def _analyze(
    columns: Sequence[tf.Tensor], outputs: Sequence[_Output], joined: str | None = None
) -> _Analysis:
    """Counts the values of columns and writes vocabularies; counts of earlier data are cached.

    This function builds an analyzer from the parts of
    `tft.experimental.CacheablePTransformAnalyzer`. TFT's own analyzer has equally many cached and
    final outputs, and TFT caches only one output, so each column would need its own analyzer. Here,
    the counts are one cached output, and the paths are many final outputs.

    Args:
      columns: strings of any shape.
      outputs: the output of each column.
      joined: the name of the file that joins all vocabularies, or None for no such file.
    """
    asset = analyzer_nodes.TemporaryAssetInfo(b"not analysed yet", "text")
    path = analyzer_nodes.TensorInfo(tf.string, [], asset)
    numbers = analyzer_nodes.TensorInfo(tf.float32, [None], None)
    path_count = len(columns) + (joined is not None)
    number_count = sum(output.weigh is not None for output in outputs) + (joined is not None)
    # TFT derives the operation's name from the name scope, which is unique in a graph.
    with tf.compat.v1.name_scope("count_values"):
        counts = nodes.apply_operation(
            analyzer_nodes.PTransform,
            analyzer_nodes.get_input_tensors_value_nodes(tuple(columns)),
            ptransform=CountValues(len(columns)),
            output_tensor_info_list=[analyzer_nodes.TensorInfo(tf.string, None, None)],
            is_partitionable=True,
            cache_coder=CountsCoder(),
        )
    with tf.compat.v1.name_scope("write_vocabularies"):
        operations = nodes.apply_multi_output_operation(
            analyzer_nodes.PTransform,
            counts,
            ptransform=_WriteVocabularies(outputs, joined, path_count + number_count),
            output_tensor_info_list=[path] * path_count + [numbers] * number_count,
            is_partitionable=False,
        )
        tensors = [analyzer_nodes.wrap_as_tensor(operation) for operation in operations]
        return _Analysis(tensors[:path_count], tensors[path_count:])


class _WriteVocabularies(tft_beam.experimental.PTransformAnalyzer):
    """An analyzer that adds the counts of all datasets, writes vocabularies, and returns paths."""

    def __init__(self, outputs: Sequence[_Output], joined: str | None, tensors: int) -> None:
        super().__init__()
        self._outputs = outputs
        self._joined = joined
        self._tensors = tensors

    def expand(self, counts: beam.PCollection) -> tuple[beam.PCollection, ...]:
        tags = [str(index) for index in range(self._tensors)]
        outputs = (
            counts
            | "Sum" >> beam.CombineGlobally(SumCounts(len(self._outputs)))
            | "Write"
            >> beam.FlatMap(
                _write_vocabularies, self.base_temp_dir, self._outputs, self._joined
            ).with_outputs(*tags)
        )
        return tuple(outputs[tag] for tag in tags)


def _write_vocabularies(
    columns: list[dict[bytes, int]],
    directory: str,
    outputs: Sequence[_Output],
    joined: str | None,
) -> Iterator[beam.pvalue.TaggedOutput]:
    """Writes the vocabularies, and yields the paths and then the numbers of `_Analysis`."""
    tf.io.gfile.makedirs(directory)
    paths, numbers, joined_lines = [], [], []
    for index, (output, sums) in enumerate(zip(outputs, columns, strict=True)):
        counts = list(sums.items())
        values = output.order(counts)
        paths.append(_write_lines(values, directory, output.file))
        if output.weigh is not None:
            numbers.append(output.weigh(counts))
        joined_lines.append([joined_key(index).encode() + value for value in values])
    if joined is not None:
        paths.append(_write_lines(chain.from_iterable(joined_lines), directory, joined))
        numbers.append([len(lines) for lines in joined_lines])
    arrays = [np.array(path.encode()) for path in paths]
    arrays += [np.array(values, np.float32) for values in numbers]
    for index, array in enumerate(arrays):
        yield beam.pvalue.TaggedOutput(str(index), array)


def _write_lines(lines: Iterable[bytes], directory: str, name: str) -> str:
    path = os.path.join(directory, name)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    return path


CLASSES = "label_classes"
"""The name of the vocabulary of the label's classes in TFTransformOutput."""


def compute_and_apply_classes(label: tf.Tensor, order: Order) -> tf.Tensor:
    """Returns the index of each label's class among the classes of the train split.

    Args:
      label: strings of any shape; a missing label is an empty string.
      order: the order of the classes, such as `ClassOrder`.

    Returns:
      int64 of the shape of `label`, or -1 for a missing label, and for a class that the train split
      does not contain.

    Raises:
      DataError: the order raises it during the analysis.
    """
    paths = compute_vocabularies({CLASSES: label}, {CLASSES: order})
    return tft.apply_vocabulary(label, paths[CLASSES], default_value=-1)


def read_classes(tft_output: tft.TFTransformOutput) -> tuple[str, ...]:
    """Returns the classes of `compute_and_apply_classes` in order, or () for a numeric label."""
    if tft_output.vocabulary_file_by_name(CLASSES) is None:
        return ()
    classes = tft_output.vocabulary_by_name(CLASSES)
    return tuple(c.decode("utf-8", errors="backslashreplace") for c in classes)
