"""The process of a certification: chooses golden rows, predicts with Keras, compares interfaces."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from PIL import Image
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.infra_validator.interfaces import certify
from components.processes.worker import Channel, forward_progress, limit_memory
from components.pusher.certificate import OF_EVAL, CertificateLimits, GoldenRow
from components.serving.requests import Arrays, join_rows
from trainer_module.errors import TrainingError, counted
from trainer_module.export.interface import ModelInterface, RawColumn, read_interface
from trainer_module.features.pixels import SERVED_PIXELS, read_header
from trainer_module.runtime import report_step
from trainer_module.sections import load_own
from trainer_module.settings import TrainerSettings

if TYPE_CHECKING:
    from trainer_module.export.reference import KerasReference

EVAL_ROWS = 200
"""The maximum number of golden rows from the eval split."""
EDGE_ROWS = 150
"""The maximum number of golden rows with edge values."""
MAX_BYTES = 4 << 20
"""The maximum bytes of the golden rows from the eval split, and of the golden rows with edge
values.

Each version contains the golden rows."""
_MIN_ROWS = 8
"""The minimum number of rows from the eval split, regardless of their size."""
_UNKNOWN_STRING = "never seen \u2603"
"""A string that is not in the vocabulary of any column."""
_LONG_LENGTH = 300
"""The number of characters of an unusually long string."""

Value = bytes | float | int
Edge = tuple[str, list[Value]]
"""The description of an edge case of a column, and its values; an empty list for a missing
value."""
Statistics = Mapping[str, statistics_pb2.FeatureNameStatistics]


def choose_golden_rows(
    examples: Sequence[str], statistics: bytes, interface: ModelInterface
) -> list[GoldenRow]:
    """Returns rows of the files, and copies of earlier rows in which a column has an edge value.

    Args:
      examples: the gzipped TFRecord files of the eval split.
      statistics: a serialised DatasetFeatureStatisticsList of the train split.
      interface: the interface of the model.
    """
    rows, size = [], 0
    for number, example in enumerate(_read(examples)):
        if not _is_servable(example, interface):
            continue
        size += len(example)
        if size > MAX_BYTES and number >= _MIN_ROWS:
            break
        rows.append(GoldenRow(f"row {number + 1}{OF_EVAL}", example))
    if not rows:
        return []
    parsed = statistics_pb2.DatasetFeatureStatisticsList.FromString(statistics)
    by_name = {f.path.step[-1] if f.path.step else f.name: f for f in parsed.datasets[0].features}
    originals = list(rows)
    for number, (description, changed) in enumerate(_edges(interface, by_name)):
        start = number % len(originals)
        example = _at_edge([*originals[start:], *originals[:start]], changed, interface)
        size += len(example)
        if number >= EDGE_ROWS or size > 2 * MAX_BYTES:
            break
        rows.append(GoldenRow(description, example))
    return rows


def _at_edge(
    rows: Sequence[GoldenRow], changed: Mapping[str, Sequence[Value]], interface: ModelInterface
) -> bytes:
    """Returns a copy of the first row without these edge values, with the edge values."""
    for row in rows:
        if any(_values(row.example, name) != list(values) for name, values in changed.items()):
            return _replace_values(row.example, changed, interface)
    return _replace_values(rows[0].example, changed, interface)


def _values(example: bytes, name: str) -> list[Value]:
    feature = tf.train.Example.FromString(example).features.feature[name]
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def make_edge_rows(interface: ModelInterface) -> list[GoldenRow]:
    """Returns a row of default values, and copies of this row in which a column has an edge
    value.
    """
    defaults = {
        column.name: [_default_value(column)] * (column.width or 1) for column in interface.columns
    }
    base = to_example(defaults, interface)
    edges = [
        GoldenRow(description, _replace_values(base, changed, interface))
        for description, changed in _edges(interface, {})
    ]
    return [GoldenRow("every column has a default value", base), *edges[:EDGE_ROWS]]


def _default_value(column: RawColumn) -> Value:
    if column.picture:
        return next(encoded for _, encoded in _pictures())
    return _UNKNOWN_STRING.encode() if column.dtype == "string" else 0


def to_example(values: Mapping[str, Sequence[Value]], interface: ModelInterface) -> bytes:
    """Returns a serialised tf.Example with the values of a row, by column."""
    return _replace_values(b"", values, interface)


def _is_servable(example: bytes, interface: ModelInterface) -> bool:
    """Returns whether a server accepts a row.

    A server predicts all golden rows before it serves a version.
    """
    pictures = [column.name for column in interface.columns if column.picture]
    if not pictures:
        return True
    features = tf.train.Example.FromString(example).features.feature
    values = [value for name in pictures for value in features[name].bytes_list.value]
    return all(read_header(value).pixels <= SERVED_PIXELS for value in values)


def _read(files: Sequence[str]) -> Iterator[bytes]:
    records = tf.data.TFRecordDataset(list(files), "GZIP").take(EVAL_ROWS)
    yield from records.as_numpy_iterator()


def _edges(
    interface: ModelInterface, statistics: Statistics
) -> Iterator[tuple[str, dict[str, list[Value]]]]:
    """Yields the descriptions and changed values of edge cases.

    The first case of every column comes before the second case of any column.
    """
    missing = {column.name: list[Value]() for column in interface.columns if _is_optional(column)}
    if missing:
        yield "every optional column is missing", missing
    by_column = [
        [(f"{column.name!r} {description}", {column.name: values}) for description, values in edges]
        for column in interface.columns
        for edges in [_edges_of(column, statistics.get(column.name))]
    ]
    for edges in zip_longest(*by_column):
        yield from filter(None, edges)


def _is_optional(column: RawColumn) -> bool:
    return not column.picture and (
        column.width is None or (column.width == 1 and column.dtype != "int64")
    )


def _edges_of(
    column: RawColumn, statistics: statistics_pb2.FeatureNameStatistics | None
) -> list[Edge]:
    if column.picture:
        return [
            (f"is a picture of {description}", [encoded]) for description, encoded in _pictures()
        ]
    edges: list[Edge] = [("is missing", [])] if _is_optional(column) else []
    edges_of_type = _string_edges if column.dtype == "string" else _number_edges
    for description, value in edges_of_type(column, statistics):
        edges.append((description, [value] * (column.width or 1)))
    if column.width is None and len(edges) > 1:
        edges.append(("has three values", edges[1][1] * 3))
    return edges


def _string_edges(
    column: RawColumn, statistics: statistics_pb2.FeatureNameStatistics | None
) -> Iterator[tuple[str, Value]]:
    del column
    yield "is an unknown value", _UNKNOWN_STRING.encode()
    buckets = statistics.string_stats.rank_histogram.buckets if statistics else []
    if buckets:
        yield "is its rarest value", buckets[-1].label.encode()
        yield "is its most frequent value", buckets[0].label.encode()
    yield "is a long string", (_UNKNOWN_STRING * _LONG_LENGTH)[:_LONG_LENGTH].encode()


def _number_edges(
    column: RawColumn, statistics: statistics_pb2.FeatureNameStatistics | None
) -> Iterator[tuple[str, Value]]:
    to_number: Callable[[float], Value] = int if column.is_whole else float
    if statistics is not None and statistics.HasField("num_stats"):
        smallest, largest = statistics.num_stats.min, statistics.num_stats.max
        yield "is its largest value", to_number(largest)
        yield "is its smallest value", to_number(smallest)
        yield "is far above its largest value", to_number(min(10 * abs(largest) + 1, 1e15))
        yield "is far below its smallest value", to_number(max(-10 * abs(smallest) - 1, -1e15))
    yield "is 0", to_number(0)


def _pictures() -> Iterator[tuple[str, bytes]]:
    """Yields the descriptions and contents of small pictures in the formats that models decode."""
    for mode, size, kind in (
        ("L", (1, 1), "PNG"),
        ("RGB", (2, 3), "PNG"),
        ("RGBA", (5, 4), "PNG"),
        ("L", (16, 9), "JPEG"),
        ("RGB", (9, 16), "JPEG"),
    ):
        encoded = io.BytesIO()
        picture = Image.new(
            mode, size, tuple(range(40, 200, 40))[: len(Image.new(mode, (1, 1)).getbands())]
        )
        picture.save(encoded, kind)
        description = (
            f"{size[0]} x {size[1]} pixels, {kind} in {'grey' if mode == 'L' else 'colour'}"
        )
        yield description, encoded.getvalue()


def _replace_values(
    example: bytes, changed: Mapping[str, Sequence[Value]], interface: ModelInterface
) -> bytes:
    """Returns a copy of a serialised example in which the values of some columns are replaced."""
    parsed = tf.train.Example.FromString(example)
    for name, values in changed.items():
        column = interface.column(name)
        feature = parsed.features.feature[name]
        feature.Clear()
        if not values:
            continue
        if column is not None and column.dtype == "string":
            feature.bytes_list.value.extend(values)
        elif column is not None and column.is_whole:
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    serialised: bytes = parsed.SerializeToString()
    return serialised


_BATCH_ROWS = 128
"""The number of rows in a batch of the reference, in which each operation takes a fixed time."""
_LARGE_BATCH_ROWS = 32
"""The number of rows in a batch if rows contain pictures or long texts, which take much memory."""
_LARGE_VALUES = 256
"""The number of values above which a feature of a row is large."""


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Chooses the golden rows, and writes the certificate.

    `components.infra_validator.component` creates the payload.
    """
    limits = CertificateLimits(**payload["limits"])
    too_large = TrainingError(
        f"the model needs more than {limits.memory:g} GiB to predict the golden rows, and a server"
        " would need as much; increase certificate.memory to allow more memory."
    )
    limit_memory(limits.memory * 2**30, too_large, channel)
    forward_progress(channel)
    model = Path(payload["model"])
    interface = read_interface(model)
    rows = _choose_rows(payload, model, interface)
    if "transform_graph" in payload:
        accepted, reference, no_reference_reason = predict_keras(payload, rows, interface)
    else:
        accepted, reference, no_reference_reason = rows, None, ""
    folder = Path(payload["folder"])
    certify(model, accepted, reference, no_reference_reason, limits.tolerance, folder)


def _choose_rows(
    payload: dict[str, Any], model: Path, interface: ModelInterface
) -> list[GoldenRow]:
    """Returns golden rows from the task's family, from the eval split, or from edge values."""
    if path := payload["golden_rows"]:
        choose = load_own("the golden rows of the task's family", path)
        return [
            GoldenRow(description, to_example(values, interface))
            for description, values in choose(model, payload["custom_config"])
        ]
    if "examples" not in payload:
        return make_edge_rows(interface)
    with tf.io.gfile.GFile(payload["statistics"], "rb") as file:
        statistics = file.read()
    return choose_golden_rows(payload["examples"], statistics, interface)


def predict_keras(
    payload: dict[str, Any], rows: Sequence[GoldenRow], interface: ModelInterface
) -> tuple[list[GoldenRow], dict[str, np.ndarray] | None, str]:
    """Predicts the rows with Transform and Keras.

    Rows that Transform rejects are left out.

    Returns:
      The accepted rows; their predictions by name, or None if the model cannot be loaded; and the
        reason why the model cannot be loaded, or an empty string.

    Raises:
      TrainingError: no row is accepted.
    """
    from trainer_module.export.reference import KerasReference

    settings = TrainerSettings.from_custom_config(payload["custom_config"])
    report_step(f"predicts {counted(len(rows), 'golden row')} with Keras")
    try:
        reference = KerasReference(payload["model"], payload["transform_graph"], settings)
    except TrainingError as error:
        return list(rows), None, str(error)
    size = batch_rows(interface)
    starts = range(0, len(rows), size)
    parts = [part for at in starts for part in answer_accepted(reference, rows[at : at + size])]
    accepted = [row for part, _ in parts for row in part]
    if not accepted:
        reason = (
            "the preprocessing rejects each" if rows else "no server decodes the pictures of any"
        )
        raise TrainingError(
            f"the certificate has no golden row, as {reason} of the first {EVAL_ROWS} examples of"
            " the eval split: correct these examples, or set certificate: false."
        )
    return accepted, join_rows([answer for _, answer in parts]), ""


def batch_rows(interface: ModelInterface) -> int:
    """Returns the number of rows that the reference predicts at once."""
    has_pictures = any(column.picture for column in interface.columns)
    is_large = any(math.prod(feature.shape) > _LARGE_VALUES for feature in interface.features)
    return _LARGE_BATCH_ROWS if has_pictures or is_large else _BATCH_ROWS


def answer_accepted(
    reference: KerasReference, rows: Sequence[GoldenRow]
) -> list[tuple[Sequence[GoldenRow], Arrays]]:
    """Returns the rows that Transform accepts, in parts, with their predictions by name."""
    try:
        return [(rows, reference.answer([row.example for row in rows]))]
    except tf.errors.InvalidArgumentError:
        if len(rows) == 1:
            return []
    # Transform rejects a row: it is found by halving.
    half = len(rows) // 2
    return [*answer_accepted(reference, rows[:half]), *answer_accepted(reference, rows[half:])]
