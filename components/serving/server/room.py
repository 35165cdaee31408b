"""The memory that the requests under way may take together, in one process."""

from __future__ import annotations

import sys
from typing import Self

import numpy as np

from components.serving.server.replies import RequestError

SMALL_BYTES = 1 << 20
"""A request that takes no more finds room also where larger ones have taken what they may."""
_SHARE_OF_LARGE = 0.75
_COUNTED_BYTES = 1 << 14
"""A smaller body is not looked at: that takes longer than to parse it."""
_MOST = 16
"""Bytes for each byte of such a body."""
_OF_SIGN = {b",": 48, b"[": 96, b"{": 256}
"""Bytes that the parser and Python take for what follows a comma, for a list, and for an object."""
_OF_BYTE = 4
"""Bytes that Python takes for a byte of a text that has a rare character."""
_QUOTE, _PIECE_BYTES = ord('"'), 1 << 20


class Room:
    """Counts the bytes of requests under way; used by the thread of the event loop."""

    def __init__(self, limit: int = sys.maxsize) -> None:
        """Args:
        limit: bytes of all of them.
        """
        self._limit = limit
        self.taken = 0

    def take(self, size: int, before: int = 0) -> None:
        """Takes room.

        Args:
          size: in bytes.
          before: bytes that the same request has taken already.

        Raises:
          RequestError: too much is under way, with status 503.
        """
        is_small = before + size <= SMALL_BYTES
        limit = self._limit if is_small else int(self._limit * _SHARE_OF_LARGE)
        if self.taken + size > limit:
            raise RequestError(
                f"requests of {self.taken:,} bytes are under way: come again later.", 503
            )
        self.taken += size

    def give_back(self, size: int) -> None:
        """Gives room back."""
        self.taken -= size


class Held:
    """The room that one request takes, piece by piece, until a `with` block ends."""

    def __init__(self, room: Room) -> None:
        self._room, self.size = room, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back(self.size)

    def take(self, size: int) -> None:
        """Takes more; raises RequestError as `Room.take`."""
        self._room.take(size, self.size)
        self.size += size

    def give_back(self, size: int) -> None:
        """Gives some of it back."""
        self._room.give_back(size)
        self.size -= size


def memory_of(body: bytes) -> int:
    """Bytes that a body takes once it is parsed, about, and rather too many.

    What stands in texts is counted as if it were JSON. One that is not small is not looked at.
    """
    if len(body) <= _COUNTED_BYTES:
        return _MOST * len(body)
    if len(body) > SMALL_BYTES:
        return len(body)
    return len(body) + sum(body.count(sign) * size for sign, size in _OF_SIGN.items())


def memory_of_json(body: bytes) -> int:
    """The same without what stands in texts, which takes ten times as long."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"--").replace(b'\\"', b"--")
    signs, is_text, size = np.frombuffer(body, np.uint8), False, _OF_BYTE * len(body)
    for start in range(0, len(signs), _PIECE_BYTES):
        piece = signs[start : start + _PIECE_BYTES]
        are_texts = np.logical_xor.accumulate(piece == _QUOTE) ^ is_text
        is_text = bool(are_texts[-1])
        outside = piece[~are_texts]
        size += sum(int((outside == ord(s)).sum()) * of for s, of in _OF_SIGN.items())
    return size
