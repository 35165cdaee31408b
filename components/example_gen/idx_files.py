"""The headers and pairs of IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist).

The module does not import TensorFlow.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Sequence

import pyarrow as pa

from components.example_gen.files import is_gzip, open_stream, unreadable_error
from trainer_module.errors import DataError, counted

# The magic numbers: two zero bytes, 8 for uint8, and the number of dimensions.
IMAGES_MAGIC, LABELS_MAGIC = 0x00000803, 0x00000801
_DIMENSIONS = {IMAGES_MAGIC: 3, LABELS_MAGIC: 1}


def is_idx(head: bytes) -> bool:
    """Returns whether the first bytes of a file are the magic number of images or of labels."""
    return int.from_bytes(head[:4], "big") in _DIMENSIONS


def pair_files(files: Sequence[str]) -> list[tuple[str, str]]:
    """Returns pairs of an image file and a label file.

    The magic number tells images from labels, and the names match in a pair.

    Raises:
      DataError: a file is not an IDX file or cannot be read, a file of a pair is missing, or a pair
        has different numbers of images and labels.
    """
    magic_numbers = {file: _read_shape(file)[0] for file in files}
    images = {_pair_key(f): f for f, magic in magic_numbers.items() if magic == IMAGES_MAGIC}
    labels = {_pair_key(f): f for f, magic in magic_numbers.items() if magic == LABELS_MAGIC}
    unpaired = sorted(images.keys() ^ labels.keys())
    if unpaired:
        file = images.get(unpaired[0]) or labels[unpaired[0]]
        other = "label" if unpaired[0] in images else "image"
        raise DataError(
            f"There is no {other} file for {file}. IDX files come in pairs such as"
            " train-images-idx3-ubyte and train-labels-idx1-ubyte in the same folder."
        )
    pairs = [(images[key], labels[key]) for key in sorted(images)]
    for images_file, labels_file in pairs:
        _check_counts(images_file, labels_file)
    return pairs


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
            return parse_header(file, stream)
    except OSError as error:
        raise unreadable_error(file, error) from error


def parse_header(file: str, stream: pa.NativeFile) -> tuple[int, tuple[int, ...]]:
    """Reads a file's header, and returns the magic number and the shape.

    Raises:
      DataError: the header is not one of images or labels, or is cut off.
    """
    head = stream.read(4)
    magic = int.from_bytes(head, "big")
    if len(head) < 4 or magic not in _DIMENSIONS:
        found = f"begins with 0x{magic:08x}"
        if len(head) < 4:
            found = f"has only {counted(len(head), 'byte')}"
        raise DataError(
            f"{file} is not an IDX file: it {found}, expected the magic number"
            f" 0x{IMAGES_MAGIC:08x} (images) or 0x{LABELS_MAGIC:08x} (labels) of unsigned bytes."
        )
    dimensions = _DIMENSIONS[magic]
    sizes = stream.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise length_error(file, 4 + 4 * dimensions, 4 + len(sizes))
    return magic, struct.unpack(f">{dimensions}I", sizes)


def length_error(file: str, expected: int, found: int) -> DataError:
    """Returns the error for a file with another number of bytes than its header requires."""
    return DataError(
        f"{file} has {counted(found, 'byte')}{' when unzipped' if is_gzip(file) else ''},"
        f" but its header requires {counted(expected, 'byte')}: copy or write the file again."
    )
