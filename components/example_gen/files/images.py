"""Image files, and whether they are pictures; free of TensorFlow, to be looked at before it."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from PIL import Image, UnidentifiedImageError

from components.example_gen.files.magic import MAGIC_BYTES, kind_of_file
from components.example_gen.files.opening import reason_of
from components.example_gen.formats import OnBadFile
from components.example_gen.paths import PICTURE_EXTENSIONS
from trainer_module.errors import DataError, counted
from trainer_module.features.pixels import PictureHeader, check_pixels

# Pillow knows others that start programs such as Ghostscript, and may be built without some.
_NAMES = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "AVIF", "JPEG2000", "PPM")
# What desktops leave behind, besides names with a dot.
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")


def select_images(files: Sequence[str]) -> list[str]:
    """The files that are images by their names.

    Raises:
      DataError: there are files, but no image is among them.
    """
    images = [file for file in files if is_picture(file)]
    if files and not images:
        raise DataError(
            f"There is no image among the {counted(len(files), 'file')} next to {files[0]}: images"
            f" need one of the extensions {', '.join(PICTURE_EXTENSIONS)}, in one folder per class;"
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
def open_picture(data: bytes, most_pixels: int) -> Iterator[Image.Image]:
    """A picture by Pillow, of which no more than the header is read yet.

    Args:
      data: the encoded picture.
      most_pixels: that it may have.

    Raises:
      DataError: it is none, or a damaged one, which may be found out while it is used; the message
        is a reason, without the file.
    """
    Image.init()
    formats = [name for name in _NAMES if name in Image.OPEN]
    # Of more Pillow would warn; the next lines refuse them.
    Image.MAX_IMAGE_PIXELS = None  # no inside: documented, and Pillow has no other way
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            pixels = image.width * image.height
            check_pixels(PictureHeader(str(image.format), *image.size, pixels), most_pixels)
            yield image
    except UnidentifiedImageError:
        found = f"it begins with {data[:8]!r}" if data else "it is empty"
        known = kind_of_file(data[:MAGIC_BYTES])
        raise DataError(known or f"{found}, as no picture does") from None
    except DataError:
        raise
    except Exception as error:
        raise DataError(reason_of(error) or type(error).__name__) from None


def broken_image_error(file: str, reason: str, on_bad_file: OnBadFile | None) -> DataError:
    """The error for a file that is no complete picture."""
    return DataError(
        f"Image {file} cannot be decoded ({reason}): "
        f"{mending_of_pictures('it', 'files', on_bad_file)}."
    )


def mending_of_pictures(removed: str, all_such: str, on_bad_file: OnBadFile | None) -> str:
    """What helps where a picture is broken.

    Args:
      removed: what may be removed.
      all_such: what a config could leave out.
      on_bad_file: what the config says; None where no config is asked.
    """
    if on_bad_file is None:
        return f"replace it with a complete picture, or remove {removed}"
    return (
        f"replace it with a complete picture, remove {removed}, or leave all such {all_such} out"
        " by data.on_bad_file: skip"
    )
