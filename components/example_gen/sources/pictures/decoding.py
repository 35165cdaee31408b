"""Picture files to what the model's graph decodes: their bytes, or a PNG that looks the same."""

from __future__ import annotations

import io
from dataclasses import dataclass

import tensorflow as tf
from PIL import ExifTags, Image, ImageOps

from components.example_gen.files.images import open_picture
from trainer_module.errors import DataError
from trainer_module.features.image import decode_image
from trainer_module.features.pixels import DATA_PIXELS, PixelBudget, read_header

_BUDGET = PixelBudget()
_UPRIGHT = 1
# Where a BMP's header says how many bits a pixel has; TensorFlow takes 32 for colours and an alpha
# that is mostly unset, and 8 for greys, whatever their palette.
_BMP_BITS = slice(28, 30)
_BMP_COLOURS = (24).to_bytes(2, "little")


@dataclass(frozen=True)
class Picture:
    """A picture that the model's graph decodes as it looks."""

    encoded: bytes
    converted_from: str | None = None
    """The format it had; None where its bytes are those of the file."""


def make_decodable(data: bytes, most_pixels: int = DATA_PIXELS) -> Picture:
    """Keeps a file's bytes if the graph decodes them as they look, and makes it a PNG otherwise.

    Args:
      data: the file's bytes.
      most_pixels: that the picture may have.

    Raises:
      DataError: it is no picture, a damaged one, or of too many pixels; the message is a reason,
        without the file.
    """
    with (
        open_picture(data, most_pixels) as image,
        _BUDGET.take(image.width * image.height),
    ):
        if _looks_as_decoded(image, data) and _decodes(data, image.size):
            return Picture(data)
        return Picture(_to_png(image), image.format)


def _looks_as_decoded(image: Image.Image, data: bytes) -> bool:
    """Whether TensorFlow, if it can decode a file, sees what people see."""
    # Pillow looks for the EXIF of a PNG behind its pixels, and decodes those on the way.
    has_exif = image.format != "PNG" or b"eXIf" in data
    if has_exif and _orientation(image) != _UPRIGHT:
        return False
    if image.format == "PNG":
        # Of a palette it knows the transparency, but of no single colour that stands for it.
        return image.mode == "P" or "transparency" not in image.info
    if image.format == "BMP":
        return data[_BMP_BITS] == _BMP_COLOURS
    return image.format in ("JPEG", "MPO") and image.mode in ("L", "RGB")


def _orientation(image: Image.Image) -> int:
    """How a camera was held, as EXIF has it; upright where its EXIF is damaged."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, _UPRIGHT))
    except Exception:
        return _UPRIGHT


def _decodes(data: bytes, size: tuple[int, int]) -> bool:
    """Whether the graph decodes a file of the size that Pillow has read."""
    try:
        header = read_header(data)
        if (header.width, header.height) == size:
            decode_image(tf.constant(data))
            return True
    except (DataError, tf.errors.OpError):
        pass
    return False


def _to_png(image: Image.Image) -> bytes:
    """The first frame of a picture, upright, and on white where it is transparent."""
    image.load()
    picture = ImageOps.exif_transpose(image) if _orientation(image) != _UPRIGHT else image
    if picture.mode in ("I", "F"):
        raise ValueError("it has 32 bits per channel; 8 or 16 are right")
    if picture.has_transparency_data:
        colours = picture.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        picture = Image.alpha_composite(white, colours).convert("RGB")
    elif not picture.mode.startswith("I;16"):
        picture = picture.convert("L" if picture.mode in ("1", "L") else "RGB")
    encoded = io.BytesIO()
    # TensorFlow applies no colour profile, whatever the format.
    picture.save(encoded, "PNG", icc_profile=None)
    return encoded.getvalue()
