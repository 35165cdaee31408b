"""Reads picture files that are in class folders, or whose paths are in a table.

A picture that TensorFlow cannot decode is converted to PNG.
"""

from __future__ import annotations

import io
import posixpath
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import tensorflow as tf
from PIL import ExifTags, Image, ImageOps

from components.example_gen.columns.encoded import Cell, ColumnKind, single_values
from components.example_gen.files import unreadable_error
from components.example_gen.formats import IMAGE_FEATURE, ExampleGenSettings, OnBadFile
from components.example_gen.notes import FileNotes, note_left_out
from components.example_gen.picture_files import (
    broken_image_error,
    broken_picture_error,
    is_picture,
    is_system_file,
    is_system_name,
    missing_picture_error,
    open_picture,
    picture_files,
    select_images,
)
from components.example_gen.sources.base import Batch, Files, Source
from trainer_module.errors import DataError
from trainer_module.features.image import decode_image
from trainer_module.features.pixels import DATA_PIXELS, PixelBudget, read_header

_BUDGET = PixelBudget()
# The value of the EXIF orientation of a picture that is not rotated.
_UPRIGHT = 1
# The bytes of a BMP's header with the number of bits per pixel. Only 24 bits are decoded correctly:
# TensorFlow reads 32 bits with an alpha channel that is mostly unset, and ignores the palette of
# 8 bits.
_BMP_BITS = slice(28, 30)
_BMP_24_BITS = (24).to_bytes(2, "little")


@dataclass(frozen=True)
class Picture:
    """A picture that TensorFlow decodes as picture viewers display it."""

    encoded: bytes
    converted_from: str | None = None
    """The original format of a converted picture, or None if `encoded` is the content of the file.
    """


def make_decodable(data: bytes, max_pixels: int = DATA_PIXELS) -> Picture:
    """Returns a picture. It is converted to PNG unless TensorFlow decodes it like picture viewers.

    Raises:
      DataError: the file is not a picture, is damaged, or has too many pixels. The message is the
        reason, without the name of the file.
    """
    with (
        open_picture(data, max_pixels) as image,
        _BUDGET.take(image.width * image.height),
    ):
        if _looks_as_decoded(image, data) and _decodes(data, image.size):
            return Picture(data)
        return Picture(_to_png(image), image.format)


def _looks_as_decoded(image: Image.Image, data: bytes) -> bool:
    """Returns whether TensorFlow decodes a picture as viewers display it, if it can decode it."""
    # Pillow would decode all pixels of a PNG to find EXIF data, so the bytes are searched first.
    has_exif = image.format != "PNG" or b"eXIf" in data
    if has_exif and _orientation(image) != _UPRIGHT:
        return False
    if image.format == "PNG":
        # TensorFlow supports the transparency of a palette, but not a single transparent colour.
        return image.mode == "P" or "transparency" not in image.info
    if image.format == "BMP":
        return data[_BMP_BITS] == _BMP_24_BITS
    return image.format in ("JPEG", "MPO") and image.mode in ("L", "RGB")


def _orientation(image: Image.Image) -> int:
    """Returns the EXIF orientation of a picture, or upright if the EXIF data is damaged."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, _UPRIGHT))
    except Exception:
        return _UPRIGHT


def _decodes(data: bytes, size: tuple[int, int]) -> bool:
    """Returns whether TensorFlow decodes a file, with the same size as Pillow."""
    try:
        header = read_header(data)
        if (header.width, header.height) == size:
            decode_image(tf.constant(data))
            return True
    except (DataError, tf.errors.OpError):
        pass
    return False


def _to_png(image: Image.Image) -> bytes:
    """Returns the first frame of a picture as PNG, upright and on a white background."""
    image.load()
    picture = ImageOps.exif_transpose(image) if _orientation(image) != _UPRIGHT else image
    if picture.mode in ("I", "F"):
        raise ValueError("it has 32 bits per channel; supported are 8 or 16")
    if picture.has_transparency_data:
        colours = picture.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        picture = Image.alpha_composite(white, colours).convert("RGB")
    elif not picture.mode.startswith("I;16"):
        picture = picture.convert("L" if picture.mode in ("1", "L") else "RGB")
    encoded = io.BytesIO()
    # TensorFlow ignores colour profiles in all formats, so the PNG has none.
    picture.save(encoded, "PNG", icc_profile=None)
    return encoded.getvalue()


# The number of pictures in a group, which becomes a shard: few enough for all workers to have work,
# and enough for few shards.
_GROUP_FILES = 512
# The number of pictures in memory at a time.
_BATCH_FILES = 128
_THREADS = 8


class ImagesSource(Source):
    """A reader of picture files in class folders."""

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns groups of images in random order. Files of other types are left out."""
        images = select_images(files)
        # Models learn badly from rows that are sorted by class. With a fixed seed, runs are
        # comparable.
        random.Random(0).shuffle(images)  # noqa: S311 - not used for secrets
        groups = -(-len(images) // _GROUP_FILES)
        return [tuple(images[group::groups]) for group in range(groups)]

    def note_ignored_files(self, pattern: str, files: Sequence[str]) -> list[str]:
        """Returns notes on files that are not pictures, on folders within class folders, and on
        classes without a picture.
        """
        from tfx.dsl.io import fileio

        ignored = [file for file in files if not is_picture(file) and not is_system_file(file)]
        folders = [file for file in ignored if fileio.isdir(file)]
        with_pictures = {posixpath.dirname(file) for file in files if is_picture(file)}
        classes = [
            path for path in fileio.glob(posixpath.dirname(pattern)) if not is_system_name(path)
        ]
        empty = [path for path in classes if path not in with_pictures and fileio.isdir(path)]
        other_files = sorted(set(ignored) - set(folders))
        return [
            *note_left_out(other_files, "file", "left out, without a picture's extension"),
            *note_left_out(folders, "folder", "left out, within class folders"),
            *note_left_out(empty, "class folder", "without a picture"),
        ]

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the images of a group."""
        del kinds
        for start in range(0, len(files), _BATCH_FILES):
            batch, notes = files[start : start + _BATCH_FILES], FileNotes()
            images = _read_all(batch, self._settings, notes, self._error)
            classes = [posixpath.basename(posixpath.dirname(file)).encode() for file in batch]
            usable = [index for index, image in enumerate(images) if image is not None]
            labels = pa.array([classes[index] for index in usable], pa.binary())
            rows = image_rows([images[index] for index in usable], labels, self._settings.label)
            yield Batch(rows, Cell(posixpath.dirname(batch[0]), start + 1), notes=notes)

    def _error(self, file: str, index: int, error: Exception) -> DataError:
        del index
        if isinstance(error, DataError):
            return broken_image_error(file, str(error), self._settings.on_bad_file)
        return unreadable_error(file, error)


def image_rows(images: Sequence[bytes | None], labels: pa.Array, label: str) -> pa.RecordBatch:
    """Returns the rows of a batch with encoded images and their labels, binary or int64."""
    columns = [single_values(pa.array(images, pa.binary())), single_values(labels)]
    return pa.record_batch(columns, [IMAGE_FEATURE, label])


def limit_batches(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the same rows in batches that are small enough for their pictures to fit in memory."""
    for batch in batches:
        for start in range(0, batch.rows.num_rows, _BATCH_FILES):
            rows = batch.rows.slice(start, _BATCH_FILES)
            yield replace(batch, rows=rows, first=batch.first.below(start))


def read_pictures(
    rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings, notes: FileNotes
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Replaces the paths of pictures in a batch by the pictures.

    Args:
      notes: the counts of converted and broken files, which are updated.

    Returns:
      The rows with pictures, and whether each row has all of its pictures, [rows] bool.

    Raises:
      DataError: a picture cannot be used. The message names the first row.
    """
    usable = np.ones(rows.num_rows, bool)
    for name in settings.pictures.keys() & set(rows.schema.names):

        def make_error(file: str, index: int, error: Exception, name: str = name) -> DataError:
            cell = first.below(index)
            if isinstance(error, DataError):
                return broken_picture_error(name, file, cell, str(error), settings.on_bad_file)
            if isinstance(error, tf.errors.NotFoundError):
                return missing_picture_error(name, file, cell)
            return unreadable_error(file, error)

        files = picture_files(name, rows.column(name), first, settings.pictures[name])
        images = _read_all(files, settings, notes, make_error)
        usable &= [image is not None for image in images]
        column = single_values(pa.array([image or b"" for image in images], pa.binary()))
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows, usable


def _read_all(
    files: Sequence[str],
    settings: ExampleGenSettings,
    notes: FileNotes,
    make_error: Callable[[str, int, Exception], DataError],
) -> list[bytes | None]:
    """Returns the encoded pictures for examples, or None for a broken picture that is left out.

    Args:
      make_error: a function that returns the error for a file. It takes the path, the index in
        `files`, and a DataError for a broken picture or TensorFlow's error for an unreadable file.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        pictures = list(pool.map(partial(_read, max_pixels=settings.max_pixels), files))
    for index, (file, picture) in enumerate(zip(files, pictures, strict=True)):
        if isinstance(picture, Picture):
            if picture.converted_from:
                notes.converted[picture.converted_from] += 1
        elif isinstance(picture, DataError) and settings.on_bad_file is OnBadFile.SKIP:
            notes.add_broken(f"{file} ({picture})")
        else:
            raise make_error(file, index, picture) from None
    return [picture.encoded if isinstance(picture, Picture) else None for picture in pictures]


def _read(file: str, max_pixels: int) -> Picture | Exception:
    try:
        return make_decodable(tf.io.read_file(file).numpy(), max_pixels)
    except (tf.errors.OpError, DataError) as error:
        return error
