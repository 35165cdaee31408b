"""The size of pictures for which the config sets none: the median size."""

from __future__ import annotations

import io
import statistics
from collections import Counter
from collections.abc import Iterable

from PIL import Image

from components.column_types.choice import Choice
from trainer_module.errors import counted

LARGEST = 224
"""The most pixels of the longer side: the input size of most networks; more takes long."""

_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "F")
"""Pillow's modes of pictures without colours."""


def choose_size(pictures: Iterable[bytes]) -> Choice | None:
    """Returns the median height and width, and one channel if all pictures are grey.

    The order of the pictures makes no difference.

    Args:
      pictures: encoded pictures; bytes that are not a picture are skipped.

    Returns:
      The choice; None if there is no picture.
    """
    heights, widths, colours = Counter[int](), Counter[int](), Counter[bool]()
    for encoded in pictures:
        try:
            with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG", "BMP", "GIF")) as image:
                widths[image.width] += 1
                heights[image.height] += 1
                colours[image.mode not in _GREY] += 1
        except Exception:  # noqa: S112 - Pillow raises all sorts; Transform names what is broken.
            continue
    if not colours:
        return None
    height, width = (statistics.median_low(sizes.elements()) for sizes in (heights, widths))
    share = min(1.0, LARGEST / max(height, width))
    settings = {
        "type": "image",
        "height": max(1, round(height * share)),
        "width": max(1, round(width * share)),
        "channels": 3 if colours[True] else 1,
    }
    is_usual = f"{height}x{width} is the median size of {counted(colours.total(), 'picture')}"
    smaller = f", reduced to at most {LARGEST} pixels" if share < 1 else ""
    return Choice(
        settings, f"{is_usual}{smaller}; {'in colour' if colours[True] else 'all greyscale'}"
    )
