"""The size that pictures are scaled to if the config sets no size: the median of their sizes."""

from __future__ import annotations

import io
import statistics
from collections import Counter
from collections.abc import Iterable

from PIL import Image

from components.column_types.choice import Choice
from trainer_module.errors import counted

MAX_SIDE = 224
"""The maximum length of the longer side, in pixels: the input size of most networks. Larger
pictures make training slow."""

_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "F")
"""Pillow's modes of greyscale pictures."""


def choose_size(pictures: Iterable[bytes]) -> Choice | None:
    """Returns the settings of an image column: the median height and width, and the channels.

    The column has one channel if all pictures are greyscale. The choice does not depend on the
    order of the pictures.

    Args:
      pictures: encoded pictures; bytes that are not a picture are skipped.

    Returns:
      The choice, or None if there is no picture.
    """
    heights, widths, colours = Counter[int](), Counter[int](), Counter[bool]()
    for encoded in pictures:
        try:
            with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG", "BMP", "GIF")) as image:
                widths[image.width] += 1
                heights[image.height] += 1
                colours[image.mode not in _GREY] += 1
        except Exception:  # noqa: S112 - Pillow raises any error; Transform reports it.
            continue
    if not colours:
        return None
    height, width = (statistics.median_low(sizes.elements()) for sizes in (heights, widths))
    scale = min(1.0, MAX_SIDE / max(height, width))
    settings = {
        "type": "image",
        "height": max(1, round(height * scale)),
        "width": max(1, round(width * scale)),
        "channels": 3 if colours[True] else 1,
    }
    median = f"{height}x{width} is the median size of {counted(colours.total(), 'picture')}"
    reduced = f", reduced to at most {MAX_SIDE} pixels" if scale < 1 else ""
    return Choice(
        settings, f"{median}{reduced}; {'in colour' if colours[True] else 'all greyscale'}"
    )
