"""Packs what a step is told into one argument of its container, and unpacks it."""

from __future__ import annotations

import base64
import gzip

from trainer_module.errors import ConfigError

MAX_BYTES = 60_000
"""Of a packed argument: Linux takes 131,071 bytes, and a whole pipeline is one object of
Kubernetes, which takes 1.5 MB."""


def pack(content: bytes) -> str:
    """Gzip, then base64 in the alphabet of URLs; the same content gives the same text."""
    return base64.urlsafe_b64encode(gzip.compress(content, mtime=0)).decode()


def pack_argument(content: bytes, name: str) -> str:
    """Packs what a container is told.

    Args:
      content: what a step is told.
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
    """What `pack` packed."""
    return gzip.decompress(base64.urlsafe_b64decode(packed))
