"""Imports TensorFlow for a process that only asks models."""

from __future__ import annotations

import gc
import os
import sys

_KERAS = "tf_keras"


def import_tensorflow() -> None:
    """Imports it without Keras, which no signature needs: a fifth less to import.

    Meanwhile no garbage is collected, as imports leave none. Whoever needs Keras later, imports it
    as ever.
    """
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "tensorflow" in sys.modules:
        return
    was_enabled, is_barred = gc.isenabled(), _KERAS not in sys.modules
    gc.disable()
    if is_barred:
        # TensorFlow does without what cannot be imported.
        sys.modules[_KERAS] = None  # type: ignore[assignment]
    try:
        import tensorflow  # noqa: F401
    finally:
        if is_barred:
            del sys.modules[_KERAS]
        gc.freeze()
        if was_enabled:
            gc.enable()
