"""IDX, the format of MNIST (http://yann.lecun.com/exdb/mnist): grey images and their labels."""

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

# Magic number by number of dimensions: two zeros, 8 for uint8, the dimensions.
_IMAGES_MAGIC, _LABELS_MAGIC = 0x00000803, 0x00000801
_DIMENSIONS = {_IMAGES_MAGIC: 3, _LABELS_MAGIC: 1}
_BATCH_IMAGES = 1024
_DRAIN_BYTES = 1 << 20


class IdxSource(Source):
    """A reader of pairs of an image file and a label file; images become PNGs, as in image
    folders.
    """

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns pairs of (image file, label file), found by magic number and matched by name."""
        kinds = {file: _read_shape(file)[0] for file in files}
        images = {_pair_key(f): f for f, magic in kinds.items() if magic == _IMAGES_MAGIC}
        labels = {_pair_key(f): f for f, magic in kinds.items() if magic == _LABELS_MAGIC}
        lonely = sorted(images.keys() ^ labels.keys())
        if lonely:
            file = images.get(lonely[0]) or labels[lonely[0]]
            other = "label" if lonely[0] in images else "image"
            raise DataError(
                f"{file} has no {other} file beside it: IDX files come in pairs such as"
                " train-images-idx3-ubyte and train-labels-idx1-ubyte."
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
            # The operation takes the whole block: [images, height, width, 1 channel].
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
            f"{images_file} holds {counted(images, 'image')} but {labels_file}"
            f" {counted(labels, 'label')}: the two files need the same number."
        )
    if not images:
        raise DataError(f"{images_file} holds no images: write it again, or leave it out.")


def _read_shape(file: str) -> tuple[int, tuple[int, ...]]:
    """Returns the magic number and the dimensions from a file's header."""
    try:
        with open_stream(file) as stream:
            return _parse_header(file, stream)
    except OSError as error:
        raise unreadable_error(file, error) from error


def _parse_header(file: str, stream: pa.NativeFile) -> tuple[int, tuple[int, ...]]:
    head = stream.read(4)
    magic = int.from_bytes(head, "big")
    if len(head) < 4 or magic not in _DIMENSIONS:
        beginning = f"0x{magic:08x}" if len(head) == 4 else f"{counted(len(head), 'byte')} in all"
        raise DataError(
            f"{file} is not an IDX file: it begins with {beginning}, expected the magic number"
            f" 0x{_IMAGES_MAGIC:08x} (images) or 0x{_LABELS_MAGIC:08x} (labels) of unsigned bytes."
        )
    dimensions = _DIMENSIONS[magic]
    sizes = stream.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise _length_error(file, 4 + 4 * dimensions, 4 + len(sizes))
    return magic, struct.unpack(f">{dimensions}I", sizes)


def _read_values(file: str) -> Iterator[np.ndarray]:
    """Yields blocks of up to 1024 items, uint8 of shape [items, *the file's other dimensions]."""
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
            surplus = sum(map(len, iter(lambda: stream.read(_DRAIN_BYTES), b"")))
            if surplus:
                expected = header + items * size
                raise _length_error(file, expected, expected + surplus)
    except OSError as error:
        raise unreadable_error(file, error) from error


def _length_error(file: str, expected: int, found: int) -> DataError:
    return DataError(
        f"{file} has {counted(found, 'byte')}{' when unzipped' if is_gzip(file) else ''},"
        f" expected {expected:,} by its header: copy or write it again."
    )
