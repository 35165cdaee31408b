"""Looks at folders of pictures, and decodes them if they are few."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence

from components.example_gen.checks.rows import ChunkReport
from components.example_gen.checks.whole import check_report
from components.example_gen.files.images import broken_image_error, open_picture, select_images
from components.example_gen.files.opening import open_file, unreadable_error
from components.example_gen.first_look import ALL
from components.example_gen.formats import IMAGE_FEATURE, ExampleGenSettings, OnBadFile
from trainer_module.errors import DataError

# So much is decoded in a second or two; of more, headers are looked at.
_MOST_DECODED = 4 << 20
# So many are opened in a second or two, from all classes.
_MOST_OPENED = 10_000


def look_at_images(settings: ExampleGenSettings, files: Sequence[str]) -> frozenset[str]:
    """Looks at folders of images, and decodes them if they are few.

    Raises:
      DataError: they cannot be used.
    """
    images = select_images(files)
    if settings.on_bad_file is OnBadFile.FAIL:
        _check_pictures(images[:: 1 + len(images) // _MOST_OPENED], settings.max_pixels)
    report = ChunkReport({IMAGE_FEATURE, settings.label}, Counter({ALL: len(images)}))
    names = (posixpath.basename(posixpath.dirname(image)).encode() for image in images)
    report.classes[ALL] = Counter(names)
    check_report(report, [ALL], [], settings)
    return frozenset(report.columns)


def _check_pictures(files: Sequence[str], most_pixels: int) -> None:
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
            with open_picture(data, most_pixels) as image:
                if decoded <= _MOST_DECODED:
                    image.load()
        except DataError as error:
            raise broken_image_error(file, str(error), OnBadFile.FAIL) from None
