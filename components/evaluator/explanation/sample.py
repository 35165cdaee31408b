"""The sample of evaluated rows by which a model is explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.evaluator.dependence import Dependence
from components.example_gen.columns.encoded import Cell
from components.example_gen.columns.tensors import to_request
from components.examples_reader import count_rows, read_spread
from trainer_module.export.interface import ModelInterface

MAX_ROWS = 10_000
_MAX_CELLS, _MAX_BYTES, _MAX_OUTPUTS = 2_000_000, 64 << 20, 20_000_000
"""The maximum number of values, of bytes of compressed examples, and of outputs in the sample."""
_MIN_ROWS = 200
"""The number of rows that are read in spite of these limits."""


@dataclass(frozen=True)
class Sample:
    """Rows of the eval split in random order."""

    columns: dict[str, np.ndarray]
    """The columns that the model takes, by their names in requests."""
    labels: np.ndarray
    """The indices of the classes or the numbers, [rows]."""
    weights: np.ndarray
    """The weights, [rows] float64."""
    units: np.ndarray
    """The number of the unit of each row, counted from 0, [rows]. Rows of a unit depend on one
    another."""
    outputs: np.ndarray
    """The probabilities of all classes or the numbers that the model predicts, [rows, outputs]."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray | slice) -> Sample:
        """Returns some of the rows."""
        return Sample(
            {name: values[rows] for name, values in self.columns.items()},
            self.labels[rows],
            self.weights[rows],
            self.units[rows],
            self.outputs[rows],
        )


@dataclass(frozen=True)
class Records:
    """Serialized examples in random order, and their columns."""

    examples: np.ndarray
    """[rows] object of bytes."""
    columns: dict[str, np.ndarray]
    weights: np.ndarray
    units: np.ndarray
    of: int
    """The number of rows of the files."""


def read_records(
    files: Sequence[str],
    interface: ModelInterface,
    schema: schema_pb2.Schema,
    dependence: Dependence,
    seed: int,
) -> Records:
    """Returns a uniform sample of the rows of gzipped TFRecords of serialized tf.Examples.

    Args:
      files: the files.
      interface: the description of the model's inputs.
      schema: the schema of the raw columns.
      dependence: the column by which rows depend on one another.
      seed: the seed of the order of the rows.
    """
    total = count_rows(files)
    row_bytes = sum(tf.io.gfile.stat(file).length for file in files) / max(total, 1)
    most = min(
        _MAX_CELLS // max(1, len(interface.columns)),
        int(_MAX_BYTES / max(row_bytes, 1)),
        _MAX_OUTPUTS // max(1, len(interface.classes)),
    )
    parts = list(read_spread(files, min(max(most, _MIN_ROWS), MAX_ROWS)))
    examples = np.concatenate(parts) if parts else np.empty(0, object)
    examples = np.random.default_rng(seed).permutation(examples)
    names = {column.name for column in interface.columns}
    names |= {interface.weight or "", dependence.column}
    features = [
        schema_pb2.Feature(name=feature.name, type=feature.type)
        for feature in schema.feature
        if feature.name in names
    ]
    decoder = ExamplesToRecordBatchDecoder(schema_pb2.Schema(feature=features).SerializeToString())
    rows = decoder.DecodeBatch(examples.tolist())
    columns = to_request(rows, Cell("the eval split", 1), interface)
    keys = dependence.units(rows, np.arange(len(examples), dtype=np.uint64))
    units = np.unique(keys, return_inverse=True)[1]
    return Records(examples, columns, _weights(rows, interface.weight), units, total)


def _weights(rows: pa.RecordBatch, name: str | None) -> np.ndarray:
    if not name:
        return np.ones(rows.num_rows)
    return np.asarray(rows.column(name).flatten().to_numpy(zero_copy_only=False), np.float64)


def first_rows(columns: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Returns the first rows of columns."""
    return {name: values[:count] for name, values in columns.items()}
