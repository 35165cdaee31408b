"""Versions in a serving folder, each a folder whose name is a number; nothing here needs TFX."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path

INCOMING_PREFIX = ".incoming-"
"""Model servers look at folders that are numbers; what is being copied has no such name."""


def free_version(base: Path) -> Path:
    """The folder of a new version: named by the time in seconds, later if that is taken."""
    now = int(time.time())
    return next(base / str(v) for v in itertools.count(now) if not (base / str(v)).exists())


def push_version(model: Path, version: Path) -> None:
    """Copies a SavedModel into a serving folder as a version, whole or not at all.

    Args:
      model: the SavedModel's folder.
      version: the folder it gets, below the serving folder, which is made if need be.
    """
    base = version.parent
    base.mkdir(parents=True, exist_ok=True)
    for abandoned in base.glob(f"{INCOMING_PREFIX}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    incoming = base / f"{INCOMING_PREFIX}{os.getpid()}"
    try:
        shutil.copytree(model, incoming)
        for path in [*incoming.rglob("*"), incoming]:
            _flush(path)
        incoming.rename(version)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    _flush(base)


def _flush(path: Path) -> None:
    """Makes a file's content, or a folder's entries, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
