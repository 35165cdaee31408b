"""Checks of picture files, in folders or named by a table, without TensorFlow."""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
from PIL import Image, UnidentifiedImageError

from components.arrow_types import holds_bytes
from components.example_gen.checks.values import texts_of
from components.example_gen.columns.encoded import Cell, rows_of, values_of
from components.example_gen.files import MAGIC_BYTES, kind_of_file, reason_of
from components.example_gen.formats import ExampleGenSettings, OnBadFile
from components.example_gen.paths import PICTURE_EXTENSIONS, is_remote
from trainer_module.errors import DataError, counted
from trainer_module.features.pixels import PictureHeader, check_pixels, read_header

# Other formats of Pillow start programs such as Ghostscript, or may be missing in a build.
_NAMES = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "AVIF", "JPEG2000", "PPM")
# The files and folders that desktop environments create, besides names with a dot.
_SYSTEM_NAMES = ("thumbs.db", "desktop.ini", "__macosx")


def select_images(files: Sequence[str]) -> list[str]:
    """Returns the files that are images by their names.

    Raises:
      DataError: there are files, but none is an image.
    """
    images = [file for file in files if is_picture(file)]
    if files and not images:
        raise DataError(
            f"There is no image among the {counted(len(files), 'file')} next to {files[0]}: images"
            f" need one of the extensions {', '.join(PICTURE_EXTENSIONS)}, in one folder per"
            " class; for folders within folders, set data.path to a glob, such as photos/*/*/*."
        )
    return images


def is_picture(file: str) -> bool:
    """Returns whether a file is an image by its name."""
    return file.lower().endswith(PICTURE_EXTENSIONS) and not is_system_file(file)


def is_system_file(file: str) -> bool:
    """Returns whether a file, or its folder, was created by a desktop environment."""
    return is_system_name(file) or is_system_name(posixpath.dirname(file))


def is_system_name(path: str) -> bool:
    """Returns whether a file or folder is one that desktop environments create."""
    name = posixpath.basename(path).lower()
    return name.startswith(".") or name in _SYSTEM_NAMES


@contextmanager
def open_picture(data: bytes, most_pixels: int) -> Iterator[Image.Image]:
    """Yields a picture opened by Pillow, of which only the header has been read.

    Args:
      data: the encoded picture.
      most_pixels: the most pixels that it may have.

    Raises:
      DataError: the data is not a picture or is damaged, which may show only when the picture is
        used; the message is a reason, without the file.
    """
    Image.init()
    formats = [name for name in _NAMES if name in Image.OPEN]
    # `check_pixels` raises an error for large pictures; Pillow would only warn.
    Image.MAX_IMAGE_PIXELS = None  # no inside: documented, and Pillow has no other setting
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            pixels = image.width * image.height
            check_pixels(PictureHeader(str(image.format), *image.size, pixels), most_pixels)
            yield image
    except UnidentifiedImageError:
        unknown = f"it begins with {data[:8]!r}, unlike any picture" if data else "it is empty"
        raise DataError(kind_of_file(data[:MAGIC_BYTES]) or unknown) from None
    except DataError:
        raise
    except Exception as error:
        raise DataError(reason_of(error) or type(error).__name__) from None


def broken_image_error(file: str, reason: str, on_bad_file: OnBadFile | None) -> DataError:
    """Returns the error for a file that is not a complete picture."""
    return DataError(
        f"Image {file} cannot be decoded ({reason}): "
        f"{picture_remedies('it', 'files', on_bad_file)}."
    )


def picture_remedies(removed: str, all_such: str, on_bad_file: OnBadFile | None) -> str:
    """Returns the remedies for a broken picture.

    Args:
      removed: the file or row that may be removed.
      all_such: the files or rows that a config could leave out.
      on_bad_file: the config's setting; None if there is no config.
    """
    if on_bad_file is None:
        return f"replace it with a complete picture, or remove {removed}"
    return (
        f"replace it with a complete picture, remove {removed}, or leave all {all_such} with"
        " broken pictures out by data.on_bad_file: skip"
    )


def picture_files(name: str, column: pa.Array, first: Cell, folder: str) -> list[str]:
    """Returns the file that each row names.

    Args:
      name: the column's name, for messages.
      column: a list per row, of one path.
      first: the place of the first row.
      folder: the folder that the paths are relative to; empty for that of the file with the rows.

    Raises:
      DataError: names the first row without a path, or with one outside the folder.
    """
    folder = folder or posixpath.dirname(first.file)
    real_folder = folder if is_remote(folder) else os.path.realpath(folder)
    texts, row_of = texts_of(column)
    if len(row_of) < len(column):
        row = next(row for row, of in enumerate([*row_of, -1]) if row != of)
        raise DataError(
            f"Column {name!r} is empty in {first.below(row)}: every row needs"
            " the path of a picture; give it one, or remove the row."
        )
    return [
        _locate(name, text, first.below(place), folder, real_folder)
        for place, text in enumerate(texts.to_pylist())
    ]


def _locate(name: str, path: str, cell: Cell, folder: str, real_folder: str) -> str:
    """Returns the file of a path; links must not lead outside the folder either."""
    file = posixpath.normpath(posixpath.join(folder, path))
    if is_remote(folder):
        # normpath would merge the two slashes of the scheme.
        scheme, _, rest = posixpath.join(folder, path).partition("://")
        file = f"{scheme}://{posixpath.normpath(rest)}"
    real = file if is_remote(folder) else os.path.realpath(file)
    if not real.startswith(real_folder.rstrip("/") + "/"):
        raise DataError(
            f"Column {name!r} is {path!r} in {cell}, which is outside of {folder}: name a file in"
            f" this folder, or set the folder of all pictures by features: {{{name}: {{folder:"
            " ...}}."
        )
    return file


def check_files_exist(name: str, files: Iterable[str], first: Cell) -> None:
    """Raises DataError for the first row whose local picture does not exist."""
    for place, file in enumerate(files):
        if not is_remote(file) and not os.path.isfile(file):
            raise missing_picture_error(name, file, first.below(place))


def missing_picture_error(name: str, file: str, cell: Cell) -> DataError:
    """Returns the error for a row whose picture does not exist."""
    return DataError(
        f"Column {name!r} names {file} in {cell}, which does not exist: add the file, correct the"
        f" path, or set the folder that paths are relative to by features: {{{name}: {{folder:"
        " ...}}."
    )


def broken_picture_error(
    name: str, file: str, cell: Cell, reason: str, on_bad_file: OnBadFile | None
) -> DataError:
    """Returns the error for a row whose file is not a picture."""
    return DataError(
        f"Column {name!r} names {file} in {cell}, which cannot be decoded"
        f" ({reason}): {picture_remedies('the row', 'rows', on_bad_file)}."
    )


def check_encoded_pictures(rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings) -> None:
    """Raises DataError for the first row with a picture that the model cannot decode.

    Args:
      rows: list columns, with encoded pictures in the columns that the settings name.
      first: the place of the first row.
      settings: the columns, and the most pixels that a picture may have.
    """
    for name in settings.encoded_pictures:
        column = rows.column(name) if name in rows.schema.names else pa.nulls(0)
        values = values_of(column)
        if not holds_bytes(values.type):
            continue  # Transform reports the error.
        for value, row in zip(values.to_pylist(), rows_of(column), strict=True):
            try:
                read_header(value, settings.max_pixels)
            except DataError as error:
                raise DataError(
                    f"Column {name!r} holds no picture that can be decoded in {first.below(row)}"
                    f" ({error}): replace it, or remove the row."
                ) from None


def folder_revision(folders: Iterable[str], without: Collection[str] = ()) -> str:
    """Returns a fingerprint of the names, sizes and times of the files below local folders.

    Hidden files and folders are left out, as they belong to Git and other tools.

    Args:
      folders: folders with pictures.
      without: subfolders without pictures that change with each run.
    """
    without = {os.path.realpath(folder) for folder in without}
    digest = hashlib.sha256()
    for folder in folders:
        for path, state in sorted(_walk(folder, without)):
            digest.update(
                f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0".encode(errors="replace")
            )
    return digest.hexdigest()[:16]


def _walk(folder: str, without: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    # Missing and unreadable files are left out; reading a named picture reports them.
    for root, subfolders, files in os.walk(folder):
        visible = (name for name in subfolders if not name.startswith("."))
        subfolders[:] = [
            n for n in visible if os.path.realpath(os.path.join(root, n)) not in without
        ]
        for path in (os.path.join(root, name) for name in files if not name.startswith(".")):
            with suppress(OSError):
                if stat.S_ISREG((state := os.stat(path)).st_mode):
                    yield path, state
