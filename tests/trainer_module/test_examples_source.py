"""Examples read by batches are those that TFX's own source gives."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import tfxio_utils
from tfx.proto import example_gen_pb2
from tfx_bsl.tfxio.tf_example_record import TFExampleRecord

from components.beam_workers.options import IN_PROCESS_ARGS
from components.compat.tfx_bsl import BatchedExamples, by_batches, read_by_batches
from components.user_errors import find_user_error
from tests.support.trainer_data import make_image, to_example, write_examples

ROWS: list[dict[str, Any]] = [
    {
        "number": None if row % 3 == 0 else row / 7,
        "count": row,
        "tags": [f"tag{tag}" for tag in range(row % 4)] or None,
        "odd": [None, "", "\u00e9,\n\"'", "x" * 5000][row % 4],
        "picture": make_image(row % 256),
        "empty": [],
    }
    for row in range(60)
]
COLUMNS = {
    "number": schema_pb2.FLOAT,
    "count": schema_pb2.INT,
    "tags": schema_pb2.BYTES,
    "odd": schema_pb2.BYTES,
    "picture": schema_pb2.BYTES,
    "missing": schema_pb2.FLOAT,
}
SCHEMA = schema_pb2.Schema(
    feature=[schema_pb2.Feature(name=name, type=kind) for name, kind in COLUMNS.items()]
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three sizes, one of them without any example."""
    folder = tmp_path_factory.mktemp("shards")
    examples = [to_example(row) for row in ROWS]
    for number, part in enumerate([examples[:10], [], examples[10:]]):
        write_examples(folder / f"data_tfrecord-0000{number}-of-00003.gz", part)
    return folder


Batches = list[tuple[pa.Schema, list[dict[str, Any]]]]


def run(tfxio: TFExampleRecord, folder: Path, batch_size: int | None = None) -> Batches:
    """The batches of a source."""
    found = folder / "found"
    with beam.Pipeline(options=PipelineOptions(list(IN_PROCESS_ARGS))) as pipeline:
        (
            pipeline
            | tfxio.BeamSource(batch_size)
            | beam.Map(lambda batch: (batch.schema, batch.to_pylist()))
            | beam.combiners.ToList()
            | beam.Map(lambda batches: found.write_bytes(pickle.dumps(batches)))
        )
    batches: Batches = pickle.loads(found.read_bytes())  # noqa: S301 - written above
    return batches


def columns(batches: Batches) -> set[tuple[str, str]]:
    return {(field.name, str(field.type)) for schema, _ in batches for field in schema}


def rows(batches: Batches) -> list[dict[str, Any]]:
    """In the order of their numbers; a column that a row lacks may be null or left out."""
    found = [row for _, part in batches for row in part]
    found = [{name: value for name, value in row.items() if value is not None} for row in found]
    return sorted(found, key=lambda row: row["count"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"schema": SCHEMA}, {"raw_record_column_name": "raw"}],
)
def test_examples_equal_those_of_tfx(shards, tmp_path, options):
    stock = TFExampleRecord(str(shards / "*"), telemetry_descriptors=["test"], **options)
    expected, found = run(stock, tmp_path), run(by_batches(stock), tmp_path)
    assert columns(found) == columns(expected)
    assert rows(found) == rows(expected)
    assert len(rows(found)) == 60
    # Of the file without examples there is none.
    assert sorted(len(part) for _, part in found) == [10, 50]


def test_tfx_makes_the_source_of_batches(monkeypatch, shards):
    stock = inspect.unwrap(tfxio_utils.make_tfxio)
    monkeypatch.setattr(tfxio_utils, "make_tfxio", stock)
    given = {
        "file_pattern": str(shards / "*"),
        "telemetry_descriptors": ["test"],
        "payload_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
    }
    assert type(tfxio_utils.make_tfxio(**given)) is TFExampleRecord
    read_by_batches()
    read_by_batches()
    assert type(tfxio_utils.make_tfxio(**given)) is BatchedExamples
    given["payload_format"] = example_gen_pb2.FORMAT_PROTO
    raw = tfxio_utils.make_tfxio(**given, read_as_raw_records=True, raw_record_column_name="raw")
    assert by_batches(raw) is raw


@pytest.mark.parametrize(
    "unknown", [{"_schema_for_decoding": schema_pb2.Schema()}, {"_skipped_rows": 10}]
)
def test_unknown_reader_is_left_as_it_is(shards, unknown):
    stock = TFExampleRecord(str(shards / "*"), schema=SCHEMA)
    vars(stock).update(unknown)
    assert by_batches(stock) is stock


@pytest.mark.slow
def test_missing_files_are_named(tmp_path):
    ours = by_batches(TFExampleRecord(str(tmp_path / "Split-eval" / "*"), schema=SCHEMA))
    with pytest.raises(Exception, match="Split-eval") as caught:
        run(ours, tmp_path)
    error = find_user_error(caught.value)
    assert "Split-eval/*" in str(error)
