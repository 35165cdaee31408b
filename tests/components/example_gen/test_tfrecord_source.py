"""TFRecords are copied unchanged, and damaged files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from components.example_gen import planning

# Field 15, which tf.Example does not define, would be lost in decoding and encoding again.
UNKNOWN_FIELD = b"\x78\x01"
EXAMPLES = [
    tf.train.Example(
        features=tf.train.Features(
            feature={
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, 0.5])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 2])),
            }
        )
    ).SerializeToString()
    + UNKNOWN_FIELD
    for i in range(1200)
]


def write(path, records=EXAMPLES) -> None:
    """Writes a TFRecord file, gzipped if its name ends with .gz."""
    options = tf.io.TFRecordOptions("GZIP" if path.suffix == ".gz" else "")
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)


def test_records_are_copied_byte_for_byte(tmp_path, execute, read_split):
    write(tmp_path / "a.tfrecord", EXAMPLES[:700])
    write(tmp_path / "b.tfrecord.gz", EXAMPLES[700:])
    examples = execute(tmp_path, "tfrecord")
    records = read_split(examples, "train") + read_split(examples, "eval")
    assert sorted(records) == sorted(EXAMPLES)


def test_large_file_is_split_into_shards(tmp_path, execute, read_split, monkeypatch):
    write(tmp_path / "a.tfrecord")
    size = (tmp_path / "a.tfrecord").stat().st_size
    monkeypatch.setattr(planning, "_SHARD_BYTES", size // 2 + 1)
    examples = execute(tmp_path, "tfrecord")
    for split in ("train", "eval"):
        assert sorted(path.name for path in Path(examples.uri, f"Split-{split}").iterdir()) == [
            "data_tfrecord-00000-of-00002.gz",
            "data_tfrecord-00001-of-00002.gz",
        ]
    records = read_split(examples, "train") + read_split(examples, "eval")
    assert sorted(records) == sorted(EXAMPLES)


@pytest.mark.parametrize(
    "cut",
    [
        20_003,
    ],
)
def test_a_truncated_file_is_refused(tmp_path, read_error, cut):
    write(tmp_path / "a.tfrecord")
    data = (tmp_path / "a.tfrecord").read_bytes()
    (tmp_path / "a.tfrecord").write_bytes(data[:cut])
    # Framing: length, its checksum, the record, its checksum.
    whole, end = 0, len(data[:cut])
    for record in EXAMPLES:
        end -= 16 + len(record)
        whole += end >= 0
    message = read_error(tmp_path, "tfrecord")
    assert f"after {whole} complete records" in message


def test_an_empty_file_is_refused(tmp_path, read_error):
    (tmp_path / "a.tfrecord").write_bytes(b"")
    assert "a.tfrecord is empty" in read_error(tmp_path, "tfrecord")


def test_records_that_are_no_examples_are_refused(tmp_path, read_error):
    write(tmp_path / "a.tfrecord", [*EXAMPLES[:520], b"no example"])
    message = read_error(tmp_path, "tfrecord")
    assert "records 513 to 521" in message


def test_records_without_a_label_are_refused(tmp_path, refusal):
    write(tmp_path / "a.tfrecord", [*EXAMPLES[:700], tf.train.Example().SerializeToString()])
    message = refusal(tmp_path, "tfrecord")
    assert f"is missing in 1 row, first in row 701 of {tmp_path}/a.tfrecord" in message
