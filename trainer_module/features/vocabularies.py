"""Computes the vocabularies of all columns in one pass, as assets of the transform graph.

TFT's own vocabularies take a dozen Beam stages per column, which dominate Transform on small data.
The classes of a label need an order that is stable across retraining, in which the 1 of a 0/1 label
is the positive class; TFT's vocabularies are ordered by frequency alone.
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
    """A transform from batches of all columns to one list of counts by value, a dictionary per
    column.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def __repr__(self) -> str:
        # Part of the cache key: increase the number when other values are counted.
        return "<CountValues 1>"

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Returns the sums over all batches as one element; an empty collection without any
        batch.
        """
        return (
            batches
            | "Count in batch" >> beam.Map(_count_batch)
            | "Sum" >> beam.CombineGlobally(SumCounts(self._columns)).without_defaults()
        )


class CountsCoder(tft.experimental.PTransformAnalyzerCacheCoder):
    """A coder of counts as JSON, in which every byte of a value is one character."""

    def __repr__(self) -> str:
        # Part of the cache key: increase the number when the format changes.
        return "<CountsCoder 1>"

    def encode_cache(self, cache: list[dict[bytes, int]]) -> bytes:
        """Returns equal bytes for equal counts, whatever the order of the values."""
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
    """A combiner that sums counts by value, column by column."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def create_accumulator(self) -> list[dict[bytes, int]]:
        """Returns an empty dictionary per column."""
        return [{} for _ in range(self._columns)]

    def add_input(
        self, accumulator: list[dict[bytes, int]], element: list[dict[bytes, int]]
    ) -> list[dict[bytes, int]]:
        """Returns the sums, pruned to the most frequent values if there are very many."""
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
        """Returns the sums of all accumulators."""
        # Into a new accumulator, as Beam may reuse the inputs.
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
    """Counts the values of all columns at once and writes a vocabulary asset for each.

    Args:
      columns: string, any shape. The empty string and values with a line break are left out.
      orders: by the same names: functions from the counts of a column's values to its vocabulary.

    Returns:
      By the same names, paths of the assets for `tft.apply_vocabulary`;
      `TFTransformOutput.vocabulary_by_name` finds them by name.
    """
    return compute_weighted_vocabularies(columns, orders, {})[0]


def compute_weighted_vocabularies(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, Order], weigh: Mapping[str, Weigh]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns the paths of `compute_vocabularies`, and the weights of some columns: [n] float32, by
    name.
    """
    files = {name: _file_name(name) for name in columns}
    outputs = [_Output(files[name], orders[name], weigh.get(name)) for name in columns]
    found = _analyze(list(columns.values()), outputs)
    for name, file in files.items():
        tft.annotate_asset(name, file)
    weighed = [name for name in columns if name in weigh]
    return dict(zip(columns, found.paths, strict=True)), dict(
        zip(weighed, found.numbers, strict=True)
    )


def compute_joined_vocabularies(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, Order]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns an additional asset that joins the vocabularies of all columns.

    Thousands of tables, one per column, take minutes whenever the graph is written or loaded.

    Args:
      columns: as for `compute_vocabularies`.
      orders: by the same names.

    Returns:
      The path of the joined asset, whose lines are the column's `joined_key` and a value; and the
      number of values of each column, [columns] int64.
    """
    files = {name: _file_name(name) for name in columns}
    outputs = [_Output(files[name], orders[name], None) for name in columns]
    found = _analyze(list(columns.values()), outputs, _file_name("\n".join(columns), "joined"))
    for name, file in files.items():
        tft.annotate_asset(name, file)
    (sizes,) = found.numbers
    return found.paths[-1], tf.cast(sizes, tf.int64)


def joined_key(place: int) -> str:
    """Returns the prefix of a column's lines in a joined asset."""
    return f"{place}:"


class JoinedTable:
    """A factory that creates the lookup table of a joined asset once, on its first call."""

    def __init__(self) -> None:
        """Creates the factory without a table, as the asset is known only in the lookup."""
        self._table: tf.lookup.StaticHashTable | None = None

    def __call__(self, path: Any) -> tf.lookup.StaticHashTable:
        """Returns the table from lines to their numbers; -1 for other texts."""
        if self._table is None:
            index = tf.lookup.TextFileIndex
            lines = tf.lookup.TextFileInitializer(
                path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
            )
            self._table = tf.lookup.StaticHashTable(lines, -1)
        return self._table


def _file_name(name: str, shown: str | None = None) -> str:
    """Returns a safe file name; the hash distinguishes names that differ only in replaced
    characters.
    """
    safe = re.sub("[^A-Za-z0-9]", "_", name if shown is None else shown)
    return f"{safe}_{zlib.crc32(name.encode()):08x}"


@dataclass(frozen=True)
class _Output:
    """The outputs of the counts of one column."""

    file: str
    order: Order
    weigh: Weigh | None


@dataclass(frozen=True)
class _Analysis:
    """The outputs of an analysis, as tensors."""

    paths: list[tf.Tensor]
    """The paths of the columns' vocabularies, and then of the joined one, if there is one."""
    numbers: list[tf.Tensor]
    """The weights of columns, and then the sizes of the vocabularies, if there is a joined one."""


def _analyze(
    columns: Sequence[tf.Tensor], outputs: Sequence[_Output], joined: str | None = None
) -> _Analysis:
    """Analyses columns, with the counts of earlier datasets from the cache.

    `tft.experimental.CacheablePTransformAnalyzer` has as many outputs for the counts as at its end,
    and TFT caches only one output: with it, every column would need an analyzer of its own. So this
    function builds the analyzer from the same parts, with counts as one output and many paths.

    Args:
      columns: string, any shape.
      outputs: the outputs of each column.
      joined: the file that joins all vocabularies, if there is one.
    """
    asset = analyzer_nodes.TemporaryAssetInfo(b"not analysed yet", "text")
    path = analyzer_nodes.TensorInfo(tf.string, [], asset)
    numbers = analyzer_nodes.TensorInfo(tf.float32, [None], None)
    paths = len(columns) + (joined is not None)
    weighed = sum(output.weigh is not None for output in outputs) + (joined is not None)
    # TFT derives the operation's name from the scope, which is unique in a graph.
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
        found = nodes.apply_multi_output_operation(
            analyzer_nodes.PTransform,
            counts,
            ptransform=_WriteVocabularies(outputs, joined, paths + weighed),
            output_tensor_info_list=[path] * paths + [numbers] * weighed,
            is_partitionable=False,
        )
        tensors = [analyzer_nodes.wrap_as_tensor(output) for output in found]
        return _Analysis(tensors[:paths], tensors[paths:])


class _WriteVocabularies(tft_beam.experimental.PTransformAnalyzer):
    """An analyzer from counts, a list for each dataset, to the path of each column's vocabulary."""

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
    tf.io.gfile.makedirs(directory)
    paths, numbers, together = [], [], []
    for place, (output, sums) in enumerate(zip(outputs, columns, strict=True)):
        counts = list(sums.items())
        values = output.order(counts)
        paths.append(_write_lines(values, directory, output.file))
        if output.weigh is not None:
            numbers.append(output.weigh(counts))
        together.append([joined_key(place).encode() + value for value in values])
    if joined is not None:
        paths.append(_write_lines(chain.from_iterable(together), directory, joined))
        numbers.append([len(values) for values in together])
    found = [np.array(path.encode()) for path in paths]
    found += [np.array(one, np.float32) for one in numbers]
    for index, value in enumerate(found):
        yield beam.pvalue.TaggedOutput(str(index), value)


def _write_lines(lines: Iterable[bytes], directory: str, name: str) -> str:
    path = os.path.join(directory, name)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    return path


CLASSES = "label_classes"
"""The name of the classes' vocabulary in TFTransformOutput."""


def compute_and_apply_classes(label: tf.Tensor, order: Order) -> tf.Tensor:
    """Returns the index of each label's class among the classes of the train split.

    Args:
      label: string, any shape; the empty string stands for a missing label.
      order: such as `ClassOrder`.

    Returns:
      int64, the shape of `label`; -1 for a label that is missing or not in the train split.

    Raises:
      DataError: during the analysis, as the order raises it.
    """
    paths = compute_vocabularies({CLASSES: label}, {CLASSES: order})
    return tft.apply_vocabulary(label, paths[CLASSES], default_value=-1)


def read_classes(tft_output: tft.TFTransformOutput) -> tuple[str, ...]:
    """Returns the classes of `compute_and_apply_classes` by index; empty if it was not used."""
    if tft_output.vocabulary_file_by_name(CLASSES) is None:
        return ()
    classes = tft_output.vocabulary_by_name(CLASSES)
    return tuple(c.decode("utf-8", errors="backslashreplace") for c in classes)
