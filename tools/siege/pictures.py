"""Hostile pictures: small files with many pixels, false headers, damaged files."""

from __future__ import annotations

import functools
import io
import random
import struct
import zlib

from PIL import Image

HUGE = 12_000
"""The side of a huge picture in pixels."""
_PNG = b"\x89PNG\r\n\x1a\n"
_GREY, _COLOURS, _COLOURS_AND_ALPHA = 0, 2, 6
_SAMPLES = {_GREY: 1, _COLOURS: 3, _COLOURS_AND_ALPHA: 4}
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")


@functools.cache
def huge(kind: str, side: int = HUGE) -> bytes:
    """Returns a huge picture of one colour in a format that Pillow writes."""
    if kind == "PNG":
        return png(side, side)
    return _write(Image.new("L" if kind != "WEBP" else "RGB", (side, side)), kind)


@functools.cache
def png(width: int, height: int, bits: int = 8, colours: int = _GREY) -> bytes:
    """Returns a black PNG."""
    line = bytes(1 + (width * bits * _SAMPLES[colours] + 7) // 8)
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, 0)
    return _PNG + _chunk(b"IHDR", head) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def deep_png(side: int = HUGE // 2) -> bytes:
    """Returns a PNG with 16 bits in four channels: eight bytes per pixel."""
    return png(side, side, 16, _COLOURS_AND_ALPHA)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _write(picture: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def small(kind: str, chance: random.Random) -> bytes:
    """Returns a small picture of random pixels."""
    pixels = Image.frombytes("RGB", (16, 16), chance.randbytes(16 * 16 * 3))
    return _write(pixels.convert("L") if kind == "GIF" else pixels, kind)


def lying(chance: random.Random) -> bytes:
    """Returns a small picture whose header claims a huge size."""
    kind = chance.choice(_FORMATS)
    picture, side = bytearray(small(kind, chance)), chance.choice([HUGE, 30_000, 65_500])
    if kind == "PNG":
        head = struct.pack(">II", side, side) + picture[24:29]
        picture[16:33] = head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    elif kind == "JPEG":
        position = picture.index(b"\xff\xc0") + 5
        picture[position : position + 4] = struct.pack(">HH", side, side)
    elif kind == "GIF":
        position = picture.index(b",", 13)
        picture[6:10] = picture[position + 5 : position + 9] = struct.pack("<HH", side, side)
    elif kind == "BMP":
        picture[18:26] = struct.pack("<ii", side, side)
    else:
        position = picture.index(b"VP8 ") + 14
        picture[position : position + 4] = struct.pack("<HH", 16_383, 16_383)
    return bytes(picture)


def damaged(chance: random.Random) -> bytes:
    """Returns a truncated, changed or invalid picture."""
    complete = small(chance.choice(_FORMATS), chance)
    return chance.choice(
        [
            complete[: chance.randrange(8, len(complete) // 2)],
            complete[:8] + chance.randbytes(len(complete)),
            chance.randbytes(200),
            b"",
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            complete[:8] + bytes(len(complete)),
        ]
    )
