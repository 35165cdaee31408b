"""Reads the pixel counts of encoded pictures from their headers, and bounds concurrent decoding.

A file of 200 KB may declare 144 million pixels, which take gigabytes once they are decoded. So the
headers are parsed first, as TensorFlow's `decode_image` does, which decodes PNG, JPEG, GIF and BMP.
Pillow reads some GIFs and JPEGs differently, ignores the number of scans, and takes 7 to 27 us
where this takes 1 to 5.
"""

from __future__ import annotations

import re
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from trainer_module.errors import DataError

DATA_PIXELS = 100_000_000
"""The default limit of the pixels of a picture in the data, above the resolution of cameras."""
SERVED_PIXELS = 25_000_000
"""The default limit of the pixels of a picture in a request, and of a process's concurrent
decoding."""
_SMALL_PICTURE = 1_000_000
"""The pixels up to which a picture bypasses the budget, as the number of threads is small."""
_MOST_SEGMENTS, _MOST_CHUNKS, _MOST_BLOCKS = 1_000, 100_000, 500_000
"""The most segments of a JPEG, chunks of a PNG and blocks of a GIF; more indicate an attack on the
decoder."""
_MOST_SCANS = 100
"""The most scans of a JPEG: encoders write about ten, and each takes the time of a whole picture.
"""
_MOST_TEXT = 32 << 20
"""The most bytes of a PNG's decompressed texts, which its decoder keeps in memory."""
_LARGEST_TEXT, _DEFLATE_RATIO = 8_000_000, 1032
"""The most bytes that libpng decompresses of one text, and the highest compression ratio of zlib.
"""

_MOST_EXTRA = 1 << 20
"""The most bytes of a PNG's decompressed data beyond its pixels."""
_PACKED_BYTES, _UNPACKED_BYTES = 1 << 16, 1 << 20
"""The input and the output size of a decompression step, in bytes."""

_PNG, _JPEG, _GIF, _BMP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM"
_BEGINS_SCAN, _ENDS_JPEG = 0xDA, 0xD9
_BEGINS_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_ONE_PASS = {0xC0, 0xC1, 0xC9}
"""The frames of a JPEG that one pass decodes, if their first scan holds all components."""
_KNOWN_MARKERS = {*range(0xC0, 0xD0), *range(0xD9, 0xDE), *range(0xE0, 0xF0), 0xFE}
"""The markers of a JPEG, all of them with a segment except the end marker."""
_MARKER = re.compile(rb"\xff+[^\x00\xff]")
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_IMAGE, _EXTENSION = 0x2C, 0x21
_CHUNK, _SIZE, _JPEG_SIZE = struct.Struct(">I4s"), struct.Struct(">II"), struct.Struct(">HH")
_GIF_SIZE, _BMP_SIZE = struct.Struct("<HHB"), struct.Struct("<ii")


class PictureHeader(NamedTuple):
    """The format and the size that the header of a picture declares."""

    kind: str
    width: int
    height: int
    pixels: int
    """The pixels of all decoded frames; of a GIF also those of its canvas."""

    def __str__(self) -> str:
        total = f", {self.pixels:,} in all" if self.pixels != self.width * self.height else ""
        return f"a {self.kind} of {self.width:,} x {self.height:,} pixels{total}"


def read_header(data: bytes, most: int | None = None) -> PictureHeader:
    """Reads the header of a picture without decoding the picture.

    Args:
      data: the encoded picture.
      most: the most pixels that it may have; None for no limit.

    Raises:
      DataError: TensorFlow cannot decode the format, the picture has more pixels, or decoding costs
        more than the pixels justify; the message is a reason, without the file.
    """
    try:
        if data.startswith(_PNG):
            header = _read_png(data)
        elif data.startswith(_JPEG):
            header = _read_jpeg(data)
        elif data.startswith(_GIF):
            header = _read_gif(data)
        elif data.startswith(_BMP):
            header = _read_bmp(data)
        else:
            found = f"it begins with {data[:8]!r}" if data else "it is empty"
            raise DataError(f"{found}, and is no PNG, JPEG, GIF or BMP")
    except (struct.error, IndexError):
        raise DataError("it ends within its header") from None
    if header.width <= 0 or header.height <= 0:
        raise DataError(f"its header declares {header.width} x {header.height} pixels")
    if most is not None:
        check_pixels(header, most)
    if header.kind == "PNG":  # The check may decompress data, so the size is checked first.
        _check_chunks(data, header)
    return header


def check_pixels(header: PictureHeader, most: int) -> None:
    """Raises DataError for a header that declares more than `most` pixels."""
    if header.pixels > most:
        raise DataError(f"it is {header}, more than the {most:,} that max_pixels allows")


def _read_png(data: bytes) -> PictureHeader:
    if data[12:16] != b"IHDR":
        raise DataError("its first chunk is not IHDR, which contains the size")
    width, height = _SIZE.unpack_from(data, 16)
    return PictureHeader("PNG", width, height, width * height)


def _check_chunks(data: bytes, header: PictureHeader) -> None:
    """Raises DataError for a PNG whose chunks cost its decoder more than the pixels do."""
    place, text, pieces = len(_PNG), 0, list[memoryview]()
    for _ in range(_MOST_CHUNKS):
        if place + 8 > len(data):
            break
        length, name = _CHUNK.unpack_from(data, place)
        if name == b"zTXt" or (name == b"iTXt" and _is_compressed(data, place + 8)):
            text += min(length * _DEFLATE_RATIO, _LARGEST_TEXT)
        elif name == b"IDAT":
            pieces.append(memoryview(data)[place + 8 : place + 8 + length])
        place += length + 12
    else:
        raise DataError(f"it has more than {_MOST_CHUNKS:,} chunks")
    if text > _MOST_TEXT:
        raise DataError("it has compressed texts of megabytes; remove them")
    # At most 8 bytes per pixel, and the filter bytes of the rows of each pass.
    most = (8 * header.width + 8) * (header.height + 8) + _MOST_EXTRA
    if sum(map(len, pieces)) * _DEFLATE_RATIO > most and _decompresses_beyond(pieces, most):
        raise DataError("its compressed data is larger than its pixels; save it again")


def _decompresses_beyond(pieces: Sequence[memoryview], most: int) -> bool:
    """Returns whether the pixel data of a PNG decompresses to more than `most` bytes."""
    unpacker, size = zlib.decompressobj(), 0
    for piece, start in ((p, n) for p in pieces for n in range(0, len(p), _PACKED_BYTES)):
        packed: memoryview | bytes = piece[start : start + _PACKED_BYTES]
        while packed and not unpacker.eof:
            try:
                size += len(unpacker.decompress(packed, _UNPACKED_BYTES))
            except zlib.error:
                return False  # The decoder stops at the same byte.
            if size > most:
                return True
            packed = unpacker.unconsumed_tail
    return False


def _is_compressed(data: bytes, start: int) -> bool:
    """Returns whether an iTXt chunk is compressed, by the flag after its keyword."""
    end = data.find(b"\0", start, start + 80)
    return end >= 0 and data[end + 1 : end + 2] == b"\1"


def _read_jpeg(data: bytes) -> PictureHeader:
    """Returns the header, following the segments as libjpeg does, which rejects a second frame."""
    place, frame, size, components, scans = 2, 0, (0, 0), 0, 0
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, place)  # Bytes before the marker are skipped.
        marker = data[found.end() - 1] if found else 0
        if found is None or marker not in _KNOWN_MARKERS:
            raise DataError(f"byte {place:,} is no marker of a JPEG")
        if marker == _ENDS_JPEG:
            break
        start = found.end()
        place = start + int.from_bytes(data[start : start + 2], "big")
        if marker in _BEGINS_FRAME and not frame:
            frame, size, components = (
                marker,
                _JPEG_SIZE.unpack_from(data, start + 3),
                data[start + 7],
            )
        if marker == _BEGINS_SCAN:
            scans += 1
            is_only_scan = frame in _ONE_PASS and data[start + 2] == components
            found = None if is_only_scan else _NEXT_MARKER.search(data, place)
            if found is None or not frame:
                break
            place = found.start()
    else:
        raise DataError(f"it has more than {_MOST_SEGMENTS:,} segments")
    if scans > _MOST_SCANS:
        raise DataError(f"it has {scans} scans, and {_MOST_SCANS} are taken; save it anew")
    height, width = size
    return PictureHeader("JPEG", width, height, width * height)


def _read_gif(data: bytes) -> PictureHeader:
    """Returns the header with the pixels of all frames, as giflib decodes all of them."""
    width, height, flags = _GIF_SIZE.unpack_from(data, 6)
    place, pixels, blocks = 13 + _palette_bytes(flags), width * height, 0
    try:
        while data[place] in (_IMAGE, _EXTENSION) and blocks <= _MOST_BLOCKS:
            if data[place] == _EXTENSION:
                place += 2
            else:
                frame_width, frame_height, flags = _GIF_SIZE.unpack_from(data, place + 5)
                pixels += frame_width * frame_height
                place += 11 + _palette_bytes(flags)
            while data[place] and blocks <= _MOST_BLOCKS:
                place, blocks = place + data[place] + 1, blocks + 1
            place, blocks = place + 1, blocks + 1
    except (IndexError, struct.error):
        pass  # A truncated rest is not decoded.
    if blocks > _MOST_BLOCKS:
        raise DataError(f"it has more than {_MOST_BLOCKS:,} blocks")
    return PictureHeader("GIF", width, height, pixels)


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _read_bmp(data: bytes) -> PictureHeader:
    width, height = _BMP_SIZE.unpack_from(data, 18)
    if height < 0:
        # TensorFlow uses the negative height as a buffer size, and crashes.
        raise DataError(
            "it is a BMP with its rows from the top; write them from the bottom, or PNG"
        )
    return PictureHeader("BMP", width, height, width * height)


class PixelBudget:
    """A bound on the pixels that this process decodes concurrently, and thereby on their memory."""

    def __init__(self, most: int = SERVED_PIXELS) -> None:
        self._most, self._taken = most, 0
        self._turn, self._freed = threading.Lock(), threading.Condition()

    @contextmanager
    def take(self, pixels: int) -> Iterator[None]:
        """Waits in a `with` block until the pixels fit the budget; a larger picture is decoded
        alone.

        Small pictures bypass the budget.
        """
        if pixels <= _SMALL_PICTURE:
            yield
            return
        with self._turn, self._freed:  # Waiting threads are served in order, whatever their pixels.
            self._freed.wait_for(lambda: not self._taken or self._taken + pixels <= self._most)
            self._taken += pixels
        try:
            yield
        finally:
            with self._freed:
                self._taken -= pixels
                self._freed.notify_all()
