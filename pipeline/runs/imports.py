"""Imports that stay: Python's garbage collector leaves alone what a process never lets go of.

TFX and TensorFlow make millions of objects. The collector would look through them a dozen times
while they are imported, and again and again while a run makes its own: a fifth of what a run over a
small table computes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 20_000, 20, 20
"""Objects until the youngest are looked through, and how often until the next older ones are."""


@contextmanager
def kept_imports() -> Iterator[None]:
    """Collects no garbage in a `with` block that imports, and never looks at what is there then.

    Processes that are forked afterwards share these objects' memory, as nothing touches it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        keep_imports()
        if was_enabled:
            gc.enable()


def keep_imports() -> None:
    """Tells the collector never to look at what is there now, and seldom at what comes."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
