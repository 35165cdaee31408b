"""Packs a config or a node into one argument of a container, and unpacks it."""

from __future__ import annotations

import base64
import gzip

from trainer_module.errors import ConfigError

MAX_BYTES = 60_000
"""The most that a packed argument may take. Linux allows 131,071 bytes, and all arguments together
are in one object of Kubernetes, which may take 1.5 MB."""


def pack(content: bytes) -> str:
    """Gzip, then base64 in the alphabet of URLs; the same content gives the same text."""
    return base64.urlsafe_b64encode(gzip.compress(content, mtime=0)).decode()


def pack_argument(content: bytes, name: str) -> str:
    """Packs an argument of a container.

    Args:
      content: the argument.
      name: the step, for the message.

    Raises:
      ConfigError: it is too large.
    """
    packed = pack(content)
    if len(packed) > MAX_BYTES:
        raise ConfigError(
            f"{name}: what this step has to be told takes {len(packed):,} bytes, packed; a "
            f"container can be told {MAX_BYTES:,}: make the config smaller, for example with "
            "fewer columns in `features` or fewer `evaluate.slices`"
        )
    return packed


def unpack(packed: str) -> bytes:
    """The content that `pack` packed."""
    return gzip.decompress(base64.urlsafe_b64decode(packed))
