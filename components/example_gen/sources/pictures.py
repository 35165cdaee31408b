"""Picture files, in a folder per class or named by a table, converted to what the model's graph
decodes.
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
_UPRIGHT = 1
# The place of the bits per pixel in a BMP's header; TensorFlow reads 32 as colours and an alpha
# channel that is mostly unset, and 8 as grey, ignoring the palette.
_BMP_BITS = slice(28, 30)
_BMP_COLOURS = (24).to_bytes(2, "little")


@dataclass(frozen=True)
class Picture:
    """A picture that the model's graph decodes as viewers display it."""

    encoded: bytes
    converted_from: str | None = None
    """The original format; None if the bytes are those of the file."""


def make_decodable(data: bytes, most_pixels: int = DATA_PIXELS) -> Picture:
    """Returns a file's bytes if the graph decodes them as viewers display them, otherwise a PNG.

    Args:
      data: the file's bytes.
      most_pixels: the most pixels that the picture may have.

    Raises:
      DataError: the file is not a picture, is damaged, or has too many pixels; the message is a
        reason, without the file.
    """
    with (
        open_picture(data, most_pixels) as image,
        _BUDGET.take(image.width * image.height),
    ):
        if _looks_as_decoded(image, data) and _decodes(data, image.size):
            return Picture(data)
        return Picture(_to_png(image), image.format)


def _looks_as_decoded(image: Image.Image, data: bytes) -> bool:
    """Returns whether TensorFlow, if it can decode a file, decodes what viewers display."""
    # To find the EXIF data of a PNG, Pillow decodes all pixels, which precede the data.
    has_exif = image.format != "PNG" or b"eXIf" in data
    if has_exif and _orientation(image) != _UPRIGHT:
        return False
    if image.format == "PNG":
        # TensorFlow supports a palette's transparency, but no single transparent colour.
        return image.mode == "P" or "transparency" not in image.info
    if image.format == "BMP":
        return data[_BMP_BITS] == _BMP_COLOURS
    return image.format in ("JPEG", "MPO") and image.mode in ("L", "RGB")


def _orientation(image: Image.Image) -> int:
    """Returns the EXIF orientation of a picture; upright if its EXIF data is damaged."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, _UPRIGHT))
    except Exception:
        return _UPRIGHT


def _decodes(data: bytes, size: tuple[int, int]) -> bool:
    """Returns whether the graph decodes a file, to the size that Pillow has read."""
    try:
        header = read_header(data)
        if (header.width, header.height) == size:
            decode_image(tf.constant(data))
            return True
    except (DataError, tf.errors.OpError):
        pass
    return False


def _to_png(image: Image.Image) -> bytes:
    """Returns the first frame of a picture as PNG, upright, and on white where it is
    transparent.
    """
    image.load()
    picture = ImageOps.exif_transpose(image) if _orientation(image) != _UPRIGHT else image
    if picture.mode in ("I", "F"):
        raise ValueError("it has 32 bits per channel; 8 or 16 are right")
    if picture.has_transparency_data:
        colours = picture.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        picture = Image.alpha_composite(white, colours).convert("RGB")
    elif not picture.mode.startswith("I;16"):
        picture = picture.convert("L" if picture.mode in ("1", "L") else "RGB")
    encoded = io.BytesIO()
    # TensorFlow applies no colour profile, whatever the format.
    picture.save(encoded, "PNG", icc_profile=None)
    return encoded.getvalue()


# One shard each; small enough to keep all workers busy, large enough for few files.
_GROUP_FILES = 512
# Pictures held in memory at a time.
_BATCH_FILES = 128
_THREADS = 8


class ImagesSource(Source):
    """A reader of picture files, which it converts to what the model's graph decodes."""

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns groups of images, each of all classes; files of other types are left out."""
        images = select_images(files)
        # A model trains badly on rows sorted by class; a fixed seed makes runs comparable.
        random.Random(0).shuffle(images)  # noqa: S311 - no secret
        groups = -(-len(images) // _GROUP_FILES)
        return [tuple(images[group::groups]) for group in range(groups)]

    def note_ignored_files(self, pattern: str, files: Sequence[str]) -> list[str]:
        """Returns notes on files that are not pictures, nested folders, and classes without a
        picture.
        """
        from tfx.dsl.io import fileio

        ignored = [file for file in files if not is_picture(file) and not is_system_file(file)]
        folders = [file for file in ignored if fileio.isdir(file)]
        filled = {posixpath.dirname(file) for file in files if is_picture(file)}
        classes = [
            path for path in fileio.glob(posixpath.dirname(pattern)) if not is_system_name(path)
        ]
        empty = [path for path in classes if path not in filled and fileio.isdir(path)]
        strays = sorted(set(ignored) - set(folders))
        return [
            *note_left_out(strays, "file", "without a picture's extension"),
            *note_left_out(folders, "folder", "within class folders, which are not read"),
            *note_left_out(empty, "class folder", "without a picture"),
        ]

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the images of a group."""
        del kinds
        for start in range(0, len(files), _BATCH_FILES):
            batch, notes = files[start : start + _BATCH_FILES], FileNotes()
            read = _read_all(batch, self._settings, notes, self._refuse)
            classes = [posixpath.basename(posixpath.dirname(file)).encode() for file in batch]
            good = [place for place, image in enumerate(read) if image is not None]
            labels = pa.array([classes[place] for place in good], pa.binary())
            rows = image_rows([read[place] for place in good], labels, self._settings.label)
            yield Batch(rows, Cell(posixpath.dirname(batch[0]), start + 1), notes=notes)

    def _refuse(self, file: str, place: int, error: Exception) -> DataError:
        del place
        if isinstance(error, DataError):
            return broken_image_error(file, str(error), self._settings.on_bad_file)
        return unreadable_error(file, error)


def image_rows(images: Sequence[bytes | None], labels: pa.Array, label: str) -> pa.RecordBatch:
    """Returns encoded images and their labels, binary or int64, as a batch's rows."""
    columns = [single_values(pa.array(images, pa.binary())), single_values(labels)]
    return pa.record_batch(columns, [IMAGE_FEATURE, label])


def cut(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the same rows in batches small enough to hold their pictures."""
    for batch in batches:
        for start in range(0, batch.rows.num_rows, _BATCH_FILES):
            rows = batch.rows.slice(start, _BATCH_FILES)
            yield replace(batch, rows=rows, first=batch.first.below(start))


def read_pictures(
    rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings, notes: FileNotes
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Returns the rows with pictures for paths, and whether each row has all of its pictures,
    [rows] bool.

    Args:
      rows: list columns, with one path per row in the columns of pictures.
      first: the place of the first row.
      settings: the columns of paths, their folders, and whether broken files are skipped.
      notes: the counts of converted and broken files, which are updated.

    Raises:
      DataError: names the first row whose picture cannot be used.
    """
    whole = np.ones(rows.num_rows, bool)
    for name in settings.pictures.keys() & set(rows.schema.names):

        def refuse(file: str, place: int, error: Exception, name: str = name) -> DataError:
            cell = first.below(place)
            if isinstance(error, DataError):
                return broken_picture_error(name, file, cell, str(error), settings.on_bad_file)
            if isinstance(error, tf.errors.NotFoundError):
                return missing_picture_error(name, file, cell)
            return unreadable_error(file, error)

        files = picture_files(name, rows.column(name), first, settings.pictures[name])
        read = _read_all(files, settings, notes, refuse)
        whole &= [image is not None for image in read]
        column = single_values(pa.array([image or b"" for image in read], pa.binary()))
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows, whole


def _read_all(
    files: Sequence[str],
    settings: ExampleGenSettings,
    notes: FileNotes,
    refuse: Callable[[str, int, Exception], DataError],
) -> list[bytes | None]:
    """Returns the pictures of files as stored in examples; None for a broken one that is left out.

    Args:
      files: the paths.
      settings: whether broken files are skipped, and the most pixels that a picture may have.
      notes: the counts of converted and broken files, which are updated.
      refuse: returns the error for a file by its place, given a DataError if it is not a picture,
        and TensorFlow's error if it cannot be read.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        pictures = list(pool.map(partial(_read, most_pixels=settings.max_pixels), files))
    for place, (file, picture) in enumerate(zip(files, pictures, strict=True)):
        if isinstance(picture, Picture):
            if picture.converted_from:
                notes.converted[picture.converted_from] += 1
        elif isinstance(picture, DataError) and settings.on_bad_file is OnBadFile.SKIP:
            notes.add_broken(f"{file} ({picture})")
        else:
            raise refuse(file, place, picture) from None
    return [picture.encoded if isinstance(picture, Picture) else None for picture in pictures]


def _read(file: str, most_pixels: int) -> Picture | Exception:
    try:
        return make_decodable(tf.io.read_file(file).numpy(), most_pixels)
    except (tf.errors.OpError, DataError) as error:
        return error
