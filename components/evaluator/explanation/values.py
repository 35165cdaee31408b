"""Values of columns as text, and pictures as thumbnails."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from trainer_module.export.interface import RawColumn
from trainer_module.features.pixels import SERVED_PIXELS, read_header

_MAX_CHARACTERS, _MAX_LIST, _MAX_SIDE = 200, 20, 160


def show_value(value: Any, column: RawColumn) -> float | str | None:
    """Returns a value of a column for people: a number, a text of at most 200 characters, or None
    for a missing value.
    """
    if isinstance(value, bytes):
        text = value[: 4 * _MAX_CHARACTERS].decode(errors="replace")
        shortened = text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
        return shortened or None
    if np.isnan(value):
        return None
    return int(value) if column.is_whole else float(f"{value:.6g}")


def show_text(values: Any, column: RawColumn) -> str:
    """Returns the value of a row in a column, or its list of values, as text of at most 200
    characters. A missing value is an empty text.
    """
    if not isinstance(values, np.ndarray):
        return _to_text(show_value(values, column))
    shown = [show_value(value, column) for value in values[: 10 * _MAX_LIST]]
    present = [_to_text(value) for value in shown if value is not None]
    more = ["…"] if len(present) > _MAX_LIST else []
    text = ", ".join(present[:_MAX_LIST] + more)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def _to_text(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def make_thumbnail(picture: bytes) -> Image.Image | None:
    """Returns a picture with at most 160 pixels a side, or None if it cannot be read."""
    try:
        read_header(picture, SERVED_PIXELS)
        with Image.open(io.BytesIO(picture), formats=("PNG", "JPEG", "BMP", "GIF")) as image:
            image.draft("RGB", (_MAX_SIDE, _MAX_SIDE))
            image.thumbnail((_MAX_SIDE, _MAX_SIDE))
            return image.convert("L" if image.mode in ("1", "L") else "RGB")
    except Exception:  # Pillow raises any error; the picture is only left out.
        return None


def encode_png(image: Image.Image) -> str:
    """Returns an image as a PNG file in base64."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
