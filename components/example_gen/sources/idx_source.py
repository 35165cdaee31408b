"""The source of IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist): greyscale images
and their labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import tensorflow as tf

from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.files import open_stream, unreadable_error
from components.example_gen.idx_files import length_error, pair_files, parse_header
from components.example_gen.sources.base import Batch, Files, Source
from components.example_gen.sources.pictures import image_rows

_BATCH_IMAGES = 1024
_READ_BYTES = 1 << 20


class IdxSource(Source):
    """A reader of pairs of an image file and a label file. The images are encoded as PNG."""

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns pairs of an image file and a label file.

        The magic number tells images from labels, and the names match in a pair.
        """
        return list(pair_files(files))

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the images of a pair."""
        del kinds
        images_file, labels_file = files
        first = 1
        blocks = zip(_read_values(images_file), _read_values(labels_file), strict=True)
        for images, labels in blocks:
            # `encode_png` encodes all images of a block, [images, height, width, 1 channel].
            encoded = tf.io.encode_png(images[..., np.newaxis]).numpy()
            rows = image_rows(encoded, pa.array(labels.astype(np.int64)), self._settings.label)
            yield Batch(rows, Cell(images_file, first))
            first += len(labels)


def _read_values(file: str) -> Iterator[np.ndarray]:
    """Yields blocks of at most 1024 images or labels, uint8 [items, *shape of an item]."""
    try:
        with open_stream(file) as stream:
            _, (items, *shape) = parse_header(file, stream)
            header, size = 4 * (2 + len(shape)), math.prod(shape)
            for start in range(0, items, _BATCH_IMAGES):
                count = min(_BATCH_IMAGES, items - start)
                data = stream.read(count * size)
                if len(data) < count * size:
                    raise length_error(
                        file, header + items * size, header + start * size + len(data)
                    )
                yield np.frombuffer(data, np.uint8).reshape(count, *shape)
            surplus = sum(map(len, iter(lambda: stream.read(_READ_BYTES), b"")))
            if surplus:
                expected = header + items * size
                raise length_error(file, expected, expected + surplus)
    except OSError as error:
        raise unreadable_error(file, error) from error
