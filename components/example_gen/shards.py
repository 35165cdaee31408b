"""TFRecord shards of a split, each in place only once complete."""

from __future__ import annotations

import posixpath
import uuid
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

import tensorflow as tf
from tfx.components.example_gen.write_split import DEFAULT_TF_RECORD_FILE_NAME
from tfx.dsl.io import fileio

from components.tfrecords.writing import open_writer, write_all


def shard_name(shard: int, shards: int) -> str:
    """File name of a shard, counted from 0."""
    return f"{DEFAULT_TF_RECORD_FILE_NAME}-{shard:05d}-of-{shards:05d}.gz"


class ShardWriter:
    """Writes gzipped TFRecord files under temporary names; a clean exit renames them into place.

    So a chunk that fails or is done twice leaves no half shard where readers would find it.
    """

    def __init__(self, temporary_folder: str) -> None:
        self._temporary_folder = temporary_folder
        self._writers: dict[str, tuple[str, tf.io.TFRecordWriter]] = {}
        self.rows: Counter[str] = Counter()
        """What was written, by path."""

    def write(self, path: str, examples: Sequence[bytes]) -> None:
        """Appends serialized examples to the shard that will be `path`."""
        if path not in self._writers:
            temporary = posixpath.join(self._temporary_folder, uuid.uuid4().hex)
            self._writers[path] = temporary, open_writer(temporary)
        write_all(self._writers[path][1], examples)
        self.rows[path] += len(examples)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for path, (temporary, writer) in self._writers.items():
            writer.close()
            if error is None:
                fileio.rename(temporary, path, overwrite=True)
