"""Images in one folder per class: the files' bytes as they are, and the folder's name."""

from __future__ import annotations

import logging
import posixpath
import random
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import tensorflow as tf

from components.example_gen.columns import Cell, ColumnKind, single_values
from components.example_gen.formats import IMAGE_FEATURE
from components.example_gen.image_files import EXTENSIONS, select_images
from components.example_gen.sources.base import Batch, Files, Source
from trainer_module.errors import DataError

# One shard each; small enough to keep all workers busy, large enough for few files.
_GROUP_FILES = 512
# Images held in memory at a time.
_BATCH_FILES = 128
_THREADS = 8


class ImagesSource(Source):
    """Reads PNG, JPEG and BMP files; each must decode as it will in serving."""

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Groups of images, each of all classes; files of other types are left out."""
        images = select_images(files)
        if len(images) < len(files):
            logging.getLogger(__name__).warning(
                "Ignored %d files that are no %s.", len(files) - len(images), ", ".join(EXTENSIONS)
            )
        # Sorted by class they would train badly; the same order always, so runs can be compared.
        random.Random(0).shuffle(images)  # noqa: S311 - no secret
        groups = -(-len(images) // _GROUP_FILES)
        return [tuple(images[group::groups]) for group in range(groups)]

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the images of a group."""
        del kinds
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, len(files), _BATCH_FILES):
                batch = files[start : start + _BATCH_FILES]
                images = list(pool.map(_read_image, batch))
                classes = [posixpath.basename(posixpath.dirname(file)).encode() for file in batch]
                yield Batch(
                    image_rows(images, pa.array(classes, pa.binary()), self._settings.label),
                    Cell(posixpath.dirname(batch[0]), start + 1),
                )


def image_rows(images: Sequence[bytes], labels: pa.Array, label: str) -> pa.RecordBatch:
    """Encoded images and their labels, binary or int64, as a batch's rows."""
    columns = [single_values(pa.array(images, pa.binary())), single_values(labels)]
    return pa.record_batch(columns, [IMAGE_FEATURE, label])


def _read_image(file: str) -> bytes:
    try:
        image = tf.io.read_file(file)
        tf.io.decode_image(image, expand_animations=False)
    except tf.errors.OpError as error:
        raise DataError(
            f"Image {file} cannot be decoded ({_reason(error)}): replace it with a"
            " complete PNG, JPEG or BMP, or remove it."
        ) from error
    return image.numpy()


def _reason(error: tf.errors.OpError) -> str:
    """TensorFlow's message without the names of its operation and device."""
    return " ".join(re.sub(r"\{\{.*?\}\}|\[Op:.*", "", error.message).split())
