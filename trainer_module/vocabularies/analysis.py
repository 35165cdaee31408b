"""Vocabularies of all columns in one pass, as files beside the graph that looks values up in them.

TFT's own vocabularies take a dozen Beam stages per column, which dominate Transform on small data.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform import analyzer_nodes, nodes

from trainer_module.vocabularies.counting import CountsCoder, CountValues, SumCounts
from trainer_module.vocabularies.orders import Order, Weigh


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
            ptransform=CountValues(len(columns)),
            output_tensor_info_list=[analyzer_nodes.TensorInfo(tf.string, None, None)],
            is_partitionable=True,
            cache_coder=CountsCoder(),
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
            | "Sum" >> beam.CombineGlobally(SumCounts(len(self._outputs)))
            | "Write"
            >> beam.FlatMap(_write_vocabularies, self.base_temp_dir, self._outputs).with_outputs(
                *tags
            )
        )
        return tuple(outputs[tag] for tag in tags)


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
