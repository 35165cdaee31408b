"""Image files, and whether they are pictures; free of TensorFlow, to be looked at before it."""

from __future__ import annotations

import io
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from PIL import Image, UnidentifiedImageError

from components.example_gen.checks import Report, check_report
from components.example_gen.files import open_file, unreadable_error
from components.example_gen.first_look import ALL
from components.example_gen.formats import IMAGE_FEATURE, ExampleGenSettings, OnBadFile
from components.example_gen.magic import MAGIC_BYTES, kind_of_file
from components.example_gen.paths import PICTURE_EXTENSIONS
from trainer_module.errors import DataError

# Pillow knows others that start programs such as Ghostscript, and may be built without some.
_NAMES = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "AVIF", "JPEG2000", "PPM")
# What desktops leave behind, besides names with a dot.
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")
# So much is decoded in a second or two; of more, headers are looked at.
_MOST_DECODED = 4 << 20


def look_at_images(settings: ExampleGenSettings, files: Sequence[str]) -> frozenset[str]:
    """Looks at folders of images, and decodes them if they are few.

    Raises:
      DataError: they cannot be used.
    """
    images = select_images(files)
    if settings.on_bad_file is OnBadFile.FAIL:
        _check_pictures(images)
    report = Report({IMAGE_FEATURE, settings.label}, Counter({ALL: len(images)}))
    names = (posixpath.basename(posixpath.dirname(image)).encode() for image in images)
    report.classes[ALL] = Counter(names)
    check_report(report, [ALL], False, settings)
    return frozenset(report.columns)


def select_images(files: Sequence[str]) -> list[str]:
    """The files that are images by their names.

    Raises:
      DataError: there are files, but no image is among them.
    """
    images = [file for file in files if is_picture(file)]
    if files and not images:
        raise DataError(
            f"There is no image among the {len(files)} files next to {files[0]}: images need"
            f" one of the extensions {', '.join(PICTURE_EXTENSIONS)}, in one folder per class;"
            " of folders within folders, data.path can be a glob, such as photos/*/*/*."
        )
    return images


def is_picture(file: str) -> bool:
    """Whether a file is an image by its name."""
    return file.lower().endswith(PICTURE_EXTENSIONS) and not is_left_behind(file)


def is_left_behind(file: str) -> bool:
    """Whether a desktop has left a file, or the folder it is in."""
    return is_litter(file) or is_litter(posixpath.dirname(file))


def is_litter(path: str) -> bool:
    """Whether a file or folder is one that desktops make for themselves."""
    name = posixpath.basename(path).lower()
    return name.startswith(".") or name in _LITTER


@contextmanager
def open_picture(data: bytes) -> Iterator[Image.Image]:
    """A picture by Pillow.

    Raises:
      DataError: it is none, or a damaged one, which may be found out while it is used; the message
        is a reason, without the file.
    """
    Image.init()
    formats = [name for name in _NAMES if name in Image.OPEN]
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            yield image
    except UnidentifiedImageError:
        found = f"it begins with {data[:8]!r}" if data else "it is empty"
        known = kind_of_file(data[:MAGIC_BYTES])
        raise DataError(known or f"{found}, as no picture does") from None
    except Exception as error:
        raise DataError(" ".join(str(error).split()) or type(error).__name__) from None


def broken_image_error(file: str, reason: str) -> DataError:
    """The error for a file that is no complete picture."""
    return DataError(
        f"Image {file} cannot be decoded ({reason}): replace it with a complete picture,"
        " remove it, or leave all such files out by data.on_bad_file: skip."
    )


def _check_pictures(files: Sequence[str]) -> None:
    """Raises DataError where a local file is no picture; of large data, by its beginning."""
    decoded = 0
    for file in files:
        try:
            with open_file(file) as stream:
                data = stream.read()
        except OSError as error:
            raise unreadable_error(file, error) from error
        decoded += len(data)
        try:
            with open_picture(data) as image:
                if decoded <= _MOST_DECODED:
                    image.load()
        except DataError as error:
            raise broken_image_error(file, str(error)) from None
