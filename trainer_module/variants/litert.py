"""LiteRT's files, run by `ai-edge-litert`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from trainer_module.variants.manifest import Variant


class LiteRTSession:
    """An interpreter, which one thread at a time asks."""

    def __init__(self, path: Path, threads: int) -> None:
        """Loads the file."""
        self._lock = threading.Lock()
        self._run = Interpreter(model_path=str(path), num_threads=threads).get_signature_runner()

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by the names of the signature; tensors are resized where the batch changes."""
        with self._lock:
            outputs: dict[str, np.ndarray] = self._run(**inputs)
            return outputs


def load(path: Path, variant: Variant, threads: int, providers: tuple[str, ...]) -> LiteRTSession:
    """Loads a file.

    Raises:
      ValueError: the file is no model, or has operations that this release does not know.
    """
    del variant, providers
    return LiteRTSession(path, threads)
