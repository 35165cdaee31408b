"""Image files before they are decoded: whether there are any, and are what their names say."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Sequence

from components.example_gen.checks import Report, check_report
from components.example_gen.files import open_file, unreadable_error
from components.example_gen.first_look import ALL, FirstLook
from components.example_gen.formats import IMAGE_FEATURE, ExampleGenSettings
from components.example_gen.magic import MAGIC_BYTES, kind_of_file
from components.example_gen.paths import is_hidden
from trainer_module.errors import DataError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp")
# Of PNG, JPEG and BMP.
_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM")


def look_at_images(settings: ExampleGenSettings, files: Sequence[str]) -> FirstLook:
    """Looks at folders of images, and at how each file begins.

    Raises:
      DataError: they cannot be used.
    """
    images = select_images(files)
    for image in images:
        check_beginning(image)
    folders = Counter(posixpath.dirname(image) for image in images)
    _check_folders(folders)
    report = Report({IMAGE_FEATURE, settings.label}, Counter({ALL: len(images)}))
    report.classes[ALL] = Counter()
    for folder, count in folders.items():
        report.classes[ALL][posixpath.basename(folder).encode()] += count
    check_report(report, [ALL], False, settings)
    return FirstLook(frozenset(report.columns))


def select_images(files: Sequence[str]) -> list[str]:
    """The files that are images by their names.

    Raises:
      DataError: there are files, but no image is among them.
    """
    images = [file for file in files if file.lower().endswith(EXTENSIONS)]
    if files and not images:
        raise DataError(
            f"There is no image among the {len(files)} files next to {files[0]}: images need"
            f" one of the extensions {', '.join(EXTENSIONS)}, in one folder per class."
        )
    return images


def check_beginning(file: str) -> None:
    """Raises DataError where a local file does not begin as an image does."""
    try:
        with open_file(file) as stream:
            head = stream.read(MAGIC_BYTES)
    except OSError as error:
        raise unreadable_error(file, error) from error
    if head.startswith(_BEGINNINGS):
        return
    found = kind_of_file(head) or ("no image" if head else "empty")
    raise DataError(
        f"Image {file} is {found}: replace it with a complete PNG, JPEG or BMP, or remove it."
    )


def _check_folders(classes: Counter[str]) -> None:
    """Raises DataError for a folder without images beside those of the classes."""
    (root, *others) = {posixpath.dirname(folder) for folder in classes}
    if others:
        return  # Globs of the user's own: what is beside the images may be anything.
    folders = [entry.path for entry in os.scandir(root) if entry.is_dir()]
    empty = sorted(f for f in folders if f not in classes and not is_hidden(f))
    if empty:
        raise DataError(
            f"The folder {empty[0]} holds no image (such folders beside the classes: {len(empty)}):"
            f" add images ({', '.join(EXTENSIONS)}), or remove the folder."
        )
