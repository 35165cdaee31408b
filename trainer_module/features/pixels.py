"""Reads the pixel counts of encoded pictures from their headers, and limits concurrent decoding.

A file of 200 KB may declare 144 million pixels, which take gigabytes of memory after decoding. The
header is therefore read before a picture is decoded. It is read as by TensorFlow's `decode_image`,
which decodes PNG, JPEG, GIF and BMP. Pillow would read some GIFs and JPEGs differently, would not
count the scans of a JPEG, and would take 7 to 27 us per picture; this module takes 1 to 5 us.
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
"""The default limit of the pixels of a picture in the data; cameras have a lower resolution."""
SERVED_PIXELS = 25_000_000
"""The default limit of the pixels of a picture in a request, and of the pixels that a process
decodes concurrently."""
_SMALL_PICTURE = 1_000_000
"""The number of pixels up to which pictures do not count for the limit of concurrent decoding."""
_MAX_SEGMENTS, _MAX_CHUNKS, _MAX_BLOCKS = 1_000, 100_000, 500_000
"""The maximum numbers of segments of a JPEG, of chunks of a PNG and of blocks of a GIF.

Larger numbers indicate an attack on the decoder."""
_MAX_SCANS = 100
"""The maximum number of scans of a JPEG.

Encoders write about ten scans, and decoding a scan takes as long as decoding a whole picture."""
_MAX_TEXT = 32 << 20
"""The maximum size in bytes of all decompressed texts of a PNG, which the decoder keeps in memory.
"""
_LARGEST_TEXT, _DEFLATE_RATIO = 8_000_000, 1032
"""The maximum number of bytes to which libpng decompresses a text, and zlib's maximum ratio."""

_MAX_EXTRA = 1 << 20
"""The maximum number of bytes of a PNG's decompressed data in addition to its pixels."""
_PACKED_BYTES, _UNPACKED_BYTES = 1 << 16, 1 << 20
"""The sizes in bytes of the input and the output of a decompression step."""

_PNG, _JPEG, _GIF, _BMP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM"
"""The first bytes of the formats."""
_SCAN_MARKER, _END_MARKER = 0xDA, 0xD9
"""The markers of a JPEG that begin a scan and end the picture."""
_FRAME_MARKERS = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""The markers of a JPEG that begin a frame."""
_ONE_PASS_FRAMES = {0xC0, 0xC1, 0xC9}
"""The markers of frames that are decoded in one pass, if the first scan has all components."""
_VALID_MARKERS = {*range(0xC0, 0xD0), *range(0xD9, 0xDE), *range(0xE0, 0xF0), 0xFE}
"""The valid markers of a JPEG; a segment follows each marker except `_END_MARKER`."""
_MARKER = re.compile(rb"\xff+[^\x00\xff]")
_MARKER_AFTER_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_IMAGE, _EXTENSION = 0x2C, 0x21
"""The first bytes of the blocks of a GIF."""
_CHUNK, _SIZE, _JPEG_SIZE = struct.Struct(">I4s"), struct.Struct(">II"), struct.Struct(">HH")
_GIF_SIZE, _BMP_SIZE = struct.Struct("<HHB"), struct.Struct("<ii")


class PictureHeader(NamedTuple):
    """The format of a picture, and the size that its header declares."""

    kind: str
    """The name of the format: PNG, JPEG, GIF or BMP."""
    width: int
    height: int
    pixels: int
    """The number of pixels that are decoded; for a GIF, the pixels of all frames and the canvas."""

    def __str__(self) -> str:
        total = (
            f", {self.pixels:,} pixels in all frames"
            if self.pixels != self.width * self.height
            else ""
        )
        return f"a {self.kind} of {self.width:,} x {self.height:,} pixels{total}"


def read_header(data: bytes, max_pixels: int | None = None) -> PictureHeader:
    """Returns the header of a picture, without decoding the picture.

    Args:
      data: the encoded picture.
      max_pixels: the maximum number of pixels, or None for no limit.

    Raises:
      DataError: TensorFlow cannot decode the format, the picture has too many pixels, or decoding
        would take much more time or memory than its pixels require. The message begins with "it"
        for the picture, and the caller adds the file.
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
            content = f"it begins with {data[:8]!r}" if data else "it is empty"
            raise DataError(f"{content}, and is not a PNG, JPEG, GIF or BMP")
    except (struct.error, IndexError):
        raise DataError("it ends within its header") from None
    if header.width <= 0 or header.height <= 0:
        raise DataError(f"its header declares {header.width} x {header.height} pixels")
    if max_pixels is not None:
        check_pixels(header, max_pixels)
    if header.kind == "PNG":  # This check may decompress data, so the size is checked before.
        _check_chunks(data, header)
    return header


def check_pixels(header: PictureHeader, max_pixels: int) -> None:
    """Raises DataError if a picture has more than `max_pixels` pixels."""
    if header.pixels > max_pixels:
        raise DataError(f"it is {header}, more than the {max_pixels:,} that max_pixels allows")


def _read_png(data: bytes) -> PictureHeader:
    if data[12:16] != b"IHDR":
        raise DataError("its first chunk is not IHDR, which contains the size")
    width, height = _SIZE.unpack_from(data, 16)
    return PictureHeader("PNG", width, height, width * height)


def _check_chunks(data: bytes, header: PictureHeader) -> None:
    """Raises DataError if the chunks of a PNG take its decoder more memory than its pixels do."""
    offset, text_bytes, pieces = len(_PNG), 0, list[memoryview]()
    for _ in range(_MAX_CHUNKS):
        if offset + 8 > len(data):
            break
        length, name = _CHUNK.unpack_from(data, offset)
        if name == b"zTXt" or (name == b"iTXt" and _is_compressed(data, offset + 8)):
            text_bytes += min(length * _DEFLATE_RATIO, _LARGEST_TEXT)
        elif name == b"IDAT":
            pieces.append(memoryview(data)[offset + 8 : offset + 8 + length])
        offset += length + 12
    else:
        raise DataError(f"it has more than {_MAX_CHUNKS:,} chunks")
    if text_bytes > _MAX_TEXT:
        raise DataError("its compressed texts may have megabytes; remove the texts")
    # A pixel has at most 8 bytes, and each row of each pass has a filter byte.
    max_bytes = (8 * header.width + 8) * (header.height + 8) + _MAX_EXTRA
    may_exceed = sum(map(len, pieces)) * _DEFLATE_RATIO > max_bytes
    if may_exceed and _decompresses_to_more(pieces, max_bytes):
        raise DataError("its compressed data is larger than its pixels; save the picture again")


def _decompresses_to_more(pieces: Sequence[memoryview], max_bytes: int) -> bool:
    """Returns whether the pixel data of a PNG decompresses to more than `max_bytes` bytes."""
    unpacker, size = zlib.decompressobj(), 0
    for piece, start in ((p, n) for p in pieces for n in range(0, len(p), _PACKED_BYTES)):
        packed: memoryview | bytes = piece[start : start + _PACKED_BYTES]
        while packed and not unpacker.eof:
            try:
                size += len(unpacker.decompress(packed, _UNPACKED_BYTES))
            except zlib.error:
                return False  # The decoder fails at the same byte.
            if size > max_bytes:
                return True
            packed = unpacker.unconsumed_tail
    return False


def _is_compressed(data: bytes, start: int) -> bool:
    """Returns whether the text of an iTXt chunk is compressed, by the flag after its keyword."""
    end = data.find(b"\0", start, start + 80)
    return end >= 0 and data[end + 1 : end + 2] == b"\1"


def _read_jpeg(data: bytes) -> PictureHeader:
    """Returns the header of a JPEG, whose segments are read in the order in which libjpeg does.

    Later frames are ignored, as libjpeg rejects a second frame.
    """
    offset, frame, size, components, scans = 2, 0, (0, 0), 0, 0
    for _ in range(_MAX_SEGMENTS):
        match = _MARKER.search(data, offset)  # Bytes before the marker are skipped.
        marker = data[match.end() - 1] if match else 0
        if match is None or marker not in _VALID_MARKERS:
            raise DataError(f"byte {offset:,} is not a marker of a JPEG")
        if marker == _END_MARKER:
            break
        start = match.end()
        offset = start + int.from_bytes(data[start : start + 2], "big")
        if marker in _FRAME_MARKERS and not frame:
            frame, size, components = (
                marker,
                _JPEG_SIZE.unpack_from(data, start + 3),
                data[start + 7],
            )
        if marker == _SCAN_MARKER:
            scans += 1
            is_only_scan = frame in _ONE_PASS_FRAMES and data[start + 2] == components
            match = None if is_only_scan else _MARKER_AFTER_SCAN.search(data, offset)
            if match is None or not frame:
                break
            offset = match.start()
    else:
        raise DataError(f"it has more than {_MAX_SEGMENTS:,} segments")
    if scans > _MAX_SCANS:
        raise DataError(
            f"it has {scans} scans, more than the limit of {_MAX_SCANS}; save the picture again"
        )
    height, width = size
    return PictureHeader("JPEG", width, height, width * height)


def _read_gif(data: bytes) -> PictureHeader:
    """Returns the header of a GIF with the pixels of all frames, as giflib decodes all frames."""
    width, height, flags = _GIF_SIZE.unpack_from(data, 6)
    offset, pixels, blocks = 13 + _palette_bytes(flags), width * height, 0
    try:
        while data[offset] in (_IMAGE, _EXTENSION) and blocks <= _MAX_BLOCKS:
            if data[offset] == _EXTENSION:
                offset += 2
            else:
                frame_width, frame_height, flags = _GIF_SIZE.unpack_from(data, offset + 5)
                pixels += frame_width * frame_height
                offset += 11 + _palette_bytes(flags)
            while data[offset] and blocks <= _MAX_BLOCKS:
                offset, blocks = offset + data[offset] + 1, blocks + 1
            offset, blocks = offset + 1, blocks + 1
    except (IndexError, struct.error):
        pass  # The file is truncated; giflib decodes no frame after this offset.
    if blocks > _MAX_BLOCKS:
        raise DataError(f"it has more than {_MAX_BLOCKS:,} blocks")
    return PictureHeader("GIF", width, height, pixels)


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _read_bmp(data: bytes) -> PictureHeader:
    width, height = _BMP_SIZE.unpack_from(data, 18)
    if height < 0:
        # TensorFlow would use the negative height as a buffer size, and crash.
        raise DataError(
            "it is a BMP whose rows are stored from the top; store the rows from the bottom, or "
            "save the picture as PNG"
        )
    return PictureHeader("BMP", width, height, width * height)


class PixelBudget:
    """A limit of the pixels that this process decodes concurrently, which limits their memory."""

    def __init__(self, max_pixels: int = SERVED_PIXELS) -> None:
        self._max_pixels, self._taken = max_pixels, 0
        self._queue, self._freed = threading.Lock(), threading.Condition()

    @contextmanager
    def take(self, pixels: int) -> Iterator[None]:
        """Returns a context that begins when the budget has room for the pixels of a picture.

        A picture with more pixels than the budget is decoded alone. Pictures of at most
        `_SMALL_PICTURE` pixels do not count.
        """
        if pixels <= _SMALL_PICTURE:
            yield
            return
        # The lock lets threads continue in order, so that a large picture is not overtaken.
        with self._queue, self._freed:
            self._freed.wait_for(
                lambda: not self._taken or self._taken + pixels <= self._max_pixels
            )
            self._taken += pixels
        try:
            yield
        finally:
            with self._freed:
                self._taken -= pixels
                self._freed.notify_all()
