"""LiteRT's files, run by `ai-edge-litert`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from trainer_module.export.variants.manifest import Variant

MOST_SIZES = 8
"""Sizes of a batch that an interpreter each is kept for."""


class LiteRTSession:
    """Interpreters, which one thread at a time asks: one for each size of a batch.

    One whose tensors are resized gives NaN now and then: XNNPACK, which computes beneath, goes on
    with buffers of the size before.
    """

    def __init__(self, path: Path, threads: int) -> None:
        """Loads the file."""
        self._lock = threading.Lock()
        self._path, self._threads = str(path), threads
        self._unused = self._make()
        self._runners: OrderedDict[int, Any] = OrderedDict()

    def _make(self) -> Any:
        interpreter = Interpreter(model_path=self._path, num_threads=self._threads)
        return interpreter.get_signature_runner()

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by the names of the signature."""
        (rows, *_) = (len(values) for values in inputs.values())
        with self._lock:
            if rows not in self._runners:
                self._runners[rows], self._unused = self._unused or self._make(), None
            self._runners.move_to_end(rows)
            if len(self._runners) > MOST_SIZES:
                self._runners.popitem(last=False)
            outputs: dict[str, np.ndarray] = self._runners[rows](**inputs)
            return outputs


def load(path: Path, variant: Variant, threads: int, providers: tuple[str, ...]) -> LiteRTSession:
    """Loads a file.

    Raises:
      ValueError: the file is no model, or has operations that this release does not know.
    """
    del variant, providers
    return LiteRTSession(path, threads)
