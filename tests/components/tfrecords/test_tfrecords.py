"""Files of examples, read and written in batches."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from tfx.types import artifact_utils, standard_artifacts

from components.examples_reader import read_columns, read_spread
from components.tfrecords import (
    open_writer,
    prefetch,
    read_batches,
    rows_for_columns,
    rows_for_models,
    write_all,
)
from trainer_module.errors import DataError


def write(path, records: list[bytes]) -> str:
    with open_writer(str(path)) as writer:
        write_all(writer, records)
    return str(path)


def test_batches_keep_the_order_and_a_size(tmp_path):
    records = [b"%d" % number for number in range(2051)]
    path = write(tmp_path / "a.gz", records)
    batches = [list(batch) for batch in read_batches(path)]
    assert [len(batch) for batch in batches] == [1024, 1024, 3]
    assert [record for batch in batches for record in batch] == records
    assert [len(batch) for batch in read_batches(path, lambda _: 1000)] == [1000, 1000, 51]
    # TensorFlow's own reader agrees.
    assert list(tf.data.TFRecordDataset(path, "GZIP").as_numpy_iterator()) == records


@pytest.mark.parametrize(
    ("example", "models", "columns"),
    [
        (b"x" * 100, 1024, 4096),
        (b"x" * (16 << 10), 256, 1024),  # A table of some hundred columns.
        (b"x" * (30 << 20), 1, 1),
        (b"column\x12\x89PNG\r\n", 1024, 1024),  # Takes more once it is decoded.
        (b"", 1024, 4096),
    ],
)
def test_rows_of_a_batch_by_the_size_of_examples(example, models, columns):
    assert rows_for_models([example] * 3) == models
    assert rows_for_columns([example] * 3) == columns


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "a.gz"
    write(path, [b"%d" % number for number in range(5000)])
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + (b"" if damage == "cut" else b"x" * 50 + data[middle + 50 :]))
    with pytest.raises(DataError, match=str(path)):
        list(read_batches(str(path)))


def count(taken: list[int]) -> Iterator[int]:
    for number in range(10_000):
        taken.append(number)
        yield number


def test_work_is_done_ahead_and_ends_with_its_consumer():
    taken: list[int] = []
    ahead = prefetch(count(taken))
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    threads = [thread for thread in threading.enumerate() if thread.name == "work-ahead"]
    assert len(threads) == 1
    ahead.close()
    assert not threads[0].is_alive()
    assert len(taken) < 10
    assert list(prefetch(iter("abc"))) == ["a", "b", "c"]


def test_error_of_prefetched_work_reaches_its_consumer():
    def fail() -> Iterator[int]:
        yield 1
        raise DataError("no more")

    ahead = prefetch(fail())
    assert next(ahead) == 1
    with pytest.raises(DataError, match="no more"):
        next(ahead)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Room for 25 more open files in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    now = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (now + 25, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_more_files_than_may_be_open(tmp_path, few_descriptors):
    folder = tmp_path / "Split-train"
    folder.mkdir()
    row = tf.train.Example().SerializeToString()
    files = [write(folder / f"{i:03d}.gz", [row] * 3) for i in range(60)]
    assert sum(len(part) for part in read_spread(files, 180)) == 180
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path)
    examples.split_names = artifact_utils.encode_split_names(["train"])
    assert sum(batch.num_rows for batch in read_columns([examples], "train", [])) == 180
