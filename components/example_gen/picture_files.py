"""Checks of picture files that are in class folders, or whose paths are in a table.

The module does not import TensorFlow.
"""

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
from trainer_module.errors import DataError, as_key, counted
from trainer_module.features.pixels import PictureHeader, check_pixels, read_header

# For other formats, Pillow starts programs such as Ghostscript, or some builds do not support them.
_PILLOW_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "AVIF", "JPEG2000", "PPM")
# The files and folders that desktop environments create, in addition to hidden files.
_SYSTEM_NAMES = ("thumbs.db", "desktop.ini", "__macosx")


def select_images(files: Sequence[str]) -> list[str]:
    """Returns the files whose names have an extension of images.

    Raises:
      DataError: there are files, but none is an image.
    """
    images = [file for file in files if is_picture(file)]
    if files and not images:
        raise DataError(
            f"There is no image among {counted(len(files), 'file')}, of which the first is"
            f" {files[0]}: images need one of the extensions {', '.join(PICTURE_EXTENSIONS)}, and a"
            " folder for each class. For folders within folders, set data.path to a glob, such as"
            " photos/*/*/*."
        )
    return images


def is_picture(file: str) -> bool:
    """Returns whether a file's name has an extension of images."""
    return file.lower().endswith(PICTURE_EXTENSIONS) and not is_system_file(file)


def is_system_file(file: str) -> bool:
    """Returns whether a file, or its folder, was created by a desktop environment."""
    return is_system_name(file) or is_system_name(posixpath.dirname(file))


def is_system_name(path: str) -> bool:
    """Returns whether a file or folder has a name that desktop environments use."""
    name = posixpath.basename(path).lower()
    return name.startswith(".") or name in _SYSTEM_NAMES


@contextmanager
def open_picture(data: bytes, max_pixels: int) -> Iterator[Image.Image]:
    """Yields a picture as opened by Pillow, which has only read the header.

    Raises:
      DataError: the data is not a picture, or is damaged. Some damage is found only when the caller
        decodes the picture. The message is the reason, without the name of the file.
    """
    Image.init()
    formats = [name for name in _PILLOW_FORMATS if name in Image.OPEN]
    # `check_pixels` raises an error for large pictures. Pillow would only log a warning.
    Image.MAX_IMAGE_PIXELS = None  # no inside: Pillow documents this setting
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            pixels = image.width * image.height
            check_pixels(PictureHeader(str(image.format), *image.size, pixels), max_pixels)
            yield image
    except UnidentifiedImageError:
        unknown = "the file is empty"
        if data:
            unknown = f"no format of pictures begins with {data[:8]!r}"
        raise DataError(kind_of_file(data[:MAGIC_BYTES]) or unknown) from None
    except DataError:
        raise
    except Exception as error:
        raise DataError(reason_of(error) or type(error).__name__) from None


class BrokenPictureError(DataError):
    """A file of a picture that cannot be decoded."""


def broken_image_error(file: str, reason: str, on_bad_file: OnBadFile | None) -> BrokenPictureError:
    """Returns the error for a file that is not a complete picture."""
    return BrokenPictureError(
        f"Image {file} cannot be decoded ({reason}): "
        f"{picture_remedies('the file', 'files', on_bad_file)}."
    )


def picture_remedies(singular: str, plural: str, on_bad_file: OnBadFile | None) -> str:
    """Returns the corrections for a broken picture, for an error message.

    Args:
      singular: the noun for the example with the picture, such as `the row`.
      plural: the noun for several examples, such as `rows`.
      on_bad_file: the config's setting, or None if there is no config.
    """
    if on_bad_file is None:
        return f"replace the picture with a complete one, or remove {singular}"
    return (
        f"replace the picture with a complete one, remove {singular}, or leave out all {plural}"
        " with broken pictures by data.on_bad_file: skip"
    )


def picture_files(name: str, column: pa.Array, first: Cell, folder: str) -> list[str]:
    """Returns the picture file of each row.

    Args:
      column: a column of lists with one path per row.
      folder: the folder that the paths are relative to, or an empty string for the folder of the
        rows' file.

    Raises:
      DataError: a row has no path, or a path outside the folder. The message names the first row.
    """
    folder = folder or posixpath.dirname(first.file)
    real_folder = folder if is_remote(folder) else os.path.realpath(folder)
    texts, text_rows = texts_of(column)
    if len(text_rows) < len(column):
        row = next(row for row, text_row in enumerate([*text_rows, -1]) if row != text_row)
        raise DataError(
            f"Column {name!r} is empty in {first.below(row)}: every row needs"
            " the path of a picture. Write the path, or remove the row."
        )
    return [
        _locate(name, text, first.below(row), folder, real_folder)
        for row, text in enumerate(texts.to_pylist())
    ]


def _locate(name: str, path: str, cell: Cell, folder: str, real_folder: str) -> str:
    """Returns the file of a path. Links that lead out of the folder are errors too."""
    file = posixpath.normpath(posixpath.join(folder, path))
    if is_remote(folder):
        # normpath would merge the two slashes of the scheme.
        scheme, _, rest = posixpath.join(folder, path).partition("://")
        file = f"{scheme}://{posixpath.normpath(rest)}"
    real = file if is_remote(folder) else os.path.realpath(file)
    if not real.startswith(real_folder.rstrip("/") + "/"):
        raise DataError(
            f"Column {name!r} is {path!r} in {cell}, which is outside of {folder}: write a path"
            f" within this folder, or set the folder of all pictures by features: {{{as_key(name)}:"
            " {folder: ...}}."
        )
    return file


def check_files_exist(name: str, files: Iterable[str], first: Cell) -> None:
    """Raises DataError for the first row whose local picture does not exist."""
    for row, file in enumerate(files):
        if not is_remote(file) and not os.path.isfile(file):
            raise missing_picture_error(name, file, first.below(row))


def missing_picture_error(name: str, file: str, cell: Cell) -> DataError:
    """Returns the error for a row whose picture does not exist."""
    return DataError(
        f"Column {name!r} contains the path {file} in {cell}, but there is no such file: add the"
        f" file, correct the path, or set the folder that paths are relative to by features:"
        f" {{{name}: {{folder: ...}}}}."
    )


def broken_picture_error(
    name: str, file: str, cell: Cell, reason: str, on_bad_file: OnBadFile | None
) -> DataError:
    """Returns the error for a row whose file cannot be decoded as a picture."""
    return DataError(
        f"Column {name!r} contains the path {file} in {cell}, and the file cannot be decoded"
        f" ({reason}): {picture_remedies('the row', 'rows', on_bad_file)}."
    )


def check_encoded_pictures(rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings) -> None:
    """Raises DataError for the first row with a picture that the model cannot decode."""
    for name in settings.encoded_pictures:
        column = rows.column(name) if name in rows.schema.names else pa.nulls(0)
        values = values_of(column)
        if not holds_bytes(values.type):
            continue  # Transform reports a column of another type.
        for value, row in zip(values.to_pylist(), rows_of(column), strict=True):
            try:
                read_header(value, settings.max_pixels)
            except DataError as error:
                raise DataError(
                    f"Column {name!r} does not hold a picture that can be decoded in"
                    f" {first.below(row)} ({error}): replace the value, or remove the row."
                ) from None


def folder_revision(folders: Iterable[str], excluded: Collection[str] = ()) -> str:
    """Returns a fingerprint of the paths, sizes and modification times of files in local folders.

    Hidden files and folders are left out, as they belong to Git and other tools.

    Args:
      excluded: subfolders that are left out, as each run changes them.
    """
    excluded = {os.path.realpath(folder) for folder in excluded}
    digest = hashlib.sha256()
    for folder in folders:
        for path, state in sorted(_walk(folder, excluded)):
            digest.update(
                f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0".encode(errors="replace")
            )
    return digest.hexdigest()[:16]


def _walk(folder: str, excluded: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    # Missing and unreadable files are left out. The step that reads the pictures reports them.
    for root, subfolders, files in os.walk(folder):
        visible = (name for name in subfolders if not name.startswith("."))
        subfolders[:] = [
            n for n in visible if os.path.realpath(os.path.join(root, n)) not in excluded
        ]
        for path in (os.path.join(root, name) for name in files if not name.startswith(".")):
            with suppress(OSError):
                if stat.S_ISREG((state := os.stat(path)).st_mode):
                    yield path, state
