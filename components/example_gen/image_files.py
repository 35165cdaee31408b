"""Image files before they are decoded: whether there are any, and are what their names say."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Sequence

from components.example_gen.files import open_file
from components.example_gen.first_look import FirstLook
from components.example_gen.formats import IMAGE_FEATURE, ExampleGenSettings
from components.example_gen.paths import is_hidden
from trainer_module.errors import DataError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp")
_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"BM": "BMP"}
_OTHERS = {
    b"GIF8": "GIF",
    b"RIFF": "WebP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"<": "HTML or XML",
    b"version https://git-lfs": "pointer of Git LFS",
}
_MAGIC_BYTES = 24


def look_at_images(settings: ExampleGenSettings, files: Sequence[str]) -> FirstLook:
    """Looks at folders of images, and at how each file begins.

    Raises:
      DataError: they cannot be used.
    """
    images = select_images(files)
    for image in images:
        check_beginning(image)
    classes = Counter(posixpath.dirname(image) for image in images)
    _check_folders(classes)
    return FirstLook(frozenset([IMAGE_FEATURE, settings.label]))


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
    with open_file(file) as stream:
        head = stream.read(_MAGIC_BYTES)
    if any(head.startswith(magic) for magic in _BEGINNINGS):
        return
    found = next((name for magic, name in _OTHERS.items() if head.startswith(magic)), "")
    found = f"a {found} file" if found else "no image" if head else "empty"
    raise DataError(
        f"Image {file} is {found}: replace it with a complete PNG, JPEG or BMP, or remove it."
    )


def _check_folders(classes: Counter[str]) -> None:
    """Whether each class folder holds images, and there are two of them or more."""
    (root, *others) = sorted({posixpath.dirname(folder) for folder in classes})
    if others:
        return  # Globs of the user's own: what is beside the images may be anything.
    folders = [entry.path for entry in os.scandir(root) if entry.is_dir()]
    empty = sorted(f for f in folders if f not in classes and not is_hidden(f))
    if empty:
        raise DataError(
            f"The folder {empty[0]} holds no image (such folders beside the classes: {len(empty)}):"
            f" add images ({', '.join(EXTENSIONS)}), or remove the folder."
        )
