"""The source of IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist): greyscale images
and their labels.
"""

from __future__ import annotations

import math
import posixpath
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import tensorflow as tf

from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.files import is_gzip, open_stream, unreadable_error
from components.example_gen.sources.base import Batch, Files, Source
from components.example_gen.sources.pictures import image_rows
from trainer_module.errors import DataError, counted

# The magic numbers: two zero bytes, 8 for uint8, and the number of dimensions.
_IMAGES_MAGIC, _LABELS_MAGIC = 0x00000803, 0x00000801
_DIMENSIONS = {_IMAGES_MAGIC: 3, _LABELS_MAGIC: 1}
_BATCH_IMAGES = 1024
_READ_BYTES = 1 << 20


class IdxSource(Source):
    """A reader of pairs of an image file and a label file. The images are encoded as PNG."""

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns pairs of an image file and a label file.

        The magic number tells images from labels, and the names match in a pair.
        """
        magic_numbers = {file: _read_shape(file)[0] for file in files}
        images = {_pair_key(f): f for f, magic in magic_numbers.items() if magic == _IMAGES_MAGIC}
        labels = {_pair_key(f): f for f, magic in magic_numbers.items() if magic == _LABELS_MAGIC}
        unpaired = sorted(images.keys() ^ labels.keys())
        if unpaired:
            file = images.get(unpaired[0]) or labels[unpaired[0]]
            other = "label" if unpaired[0] in images else "image"
            raise DataError(
                f"There is no {other} file for {file}. IDX files come in pairs such as"
                " train-images-idx3-ubyte and train-labels-idx1-ubyte in the same folder."
            )
        pairs: list[Files] = [(images[key], labels[key]) for key in sorted(images)]
        for images_file, labels_file in pairs:
            _check_counts(images_file, labels_file)
        return pairs

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


def _pair_key(file: str) -> str:
    """Returns a key that is the same for both files of a pair."""
    folder, name = posixpath.split(file)
    name = name[: -len(".gz")] if is_gzip(name) else name
    return posixpath.join(folder, name.replace("images", "labels").replace("idx3", "idx1"))


def _check_counts(images_file: str, labels_file: str) -> None:
    images, labels = _read_shape(images_file)[1][0], _read_shape(labels_file)[1][0]
    if images != labels:
        raise DataError(
            f"{images_file} contains {counted(images, 'image')}, but {labels_file} contains"
            f" {counted(labels, 'label')}: expected as many images as labels."
        )
    if not images:
        raise DataError(f"{images_file} contains no images: write it again, or remove it.")


def _read_shape(file: str) -> tuple[int, tuple[int, ...]]:
    """Returns the magic number and the shape in a file's header."""
    try:
        with open_stream(file) as stream:
            return _parse_header(file, stream)
    except OSError as error:
        raise unreadable_error(file, error) from error


def _parse_header(file: str, stream: pa.NativeFile) -> tuple[int, tuple[int, ...]]:
    head = stream.read(4)
    magic = int.from_bytes(head, "big")
    if len(head) < 4 or magic not in _DIMENSIONS:
        found = f"begins with 0x{magic:08x}"
        if len(head) < 4:
            found = f"has only {counted(len(head), 'byte')}"
        raise DataError(
            f"{file} is not an IDX file: it {found}, expected the magic number"
            f" 0x{_IMAGES_MAGIC:08x} (images) or 0x{_LABELS_MAGIC:08x} (labels) of unsigned bytes."
        )
    dimensions = _DIMENSIONS[magic]
    sizes = stream.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise _length_error(file, 4 + 4 * dimensions, 4 + len(sizes))
    return magic, struct.unpack(f">{dimensions}I", sizes)


def _read_values(file: str) -> Iterator[np.ndarray]:
    """Yields blocks of at most 1024 images or labels, uint8 [items, *shape of an item]."""
    try:
        with open_stream(file) as stream:
            _, (items, *shape) = _parse_header(file, stream)
            header, size = 4 * (2 + len(shape)), math.prod(shape)
            for start in range(0, items, _BATCH_IMAGES):
                count = min(_BATCH_IMAGES, items - start)
                data = stream.read(count * size)
                if len(data) < count * size:
                    raise _length_error(
                        file, header + items * size, header + start * size + len(data)
                    )
                yield np.frombuffer(data, np.uint8).reshape(count, *shape)
            surplus = sum(map(len, iter(lambda: stream.read(_READ_BYTES), b"")))
            if surplus:
                expected = header + items * size
                raise _length_error(file, expected, expected + surplus)
    except OSError as error:
        raise unreadable_error(file, error) from error


def _length_error(file: str, expected: int, found: int) -> DataError:
    return DataError(
        f"{file} has {counted(found, 'byte')}{' when unzipped' if is_gzip(file) else ''},"
        f" but its header requires {counted(expected, 'byte')}: copy or write the file again."
    )
