"""The paths of predictions, of either protocol."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_PATHS = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r":(?P<verb>predict|classify|regress)"
    r"|/v2/models/(?P<name2>[^/]+)(/versions/(?P<version2>[^/]+))?/infer"
)
_KNOWN_PATHS = 128


@dataclass(frozen=True, slots=True)
class PredictionPath:
    """Which model is asked for what."""

    name: str
    version: str | None
    label: str | None
    verb: str | None
    """Of TF Serving; None by Open Inference."""


@functools.lru_cache(_KNOWN_PATHS)
def read_path(path: str) -> PredictionPath | None:
    """What a path asks for; None if that is no prediction."""
    found = _PATHS.fullmatch(path)
    if found is None:
        return None
    if found["verb"] is None:
        return PredictionPath(found["name2"], found["version2"], None, None)
    return PredictionPath(found["name"], found["version"], found["label"], found["verb"])


@functools.lru_cache(_KNOWN_PATHS)
def read_plain_url(url: bytes) -> PredictionPath | None:
    """The same for what follows POST, where that is a path of ASCII and nothing more."""
    if not url.isascii() or b"%" in url or b"?" in url or b"#" in url:
        return None
    return read_path(url.decode())
