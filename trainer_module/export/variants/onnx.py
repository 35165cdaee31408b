"""ONNX files, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from trainer_module.export.variants.manifest import Variant

CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
CACHE_PATH = "trt_engine_cache_path"
"""The setting of TensorRT's provider where engines are kept, and calibration tables looked for."""


class OnnxSession:
    """A session of ONNX Runtime, which any number of threads may ask."""

    def __init__(self, path: Path, variant: Variant, threads: int, providers: list[Any]) -> None:
        """Loads the file; raises RuntimeError where a provider does not start."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that wait for work turn in circles else, on cores that others could have.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # Of warnings there are many that nobody can mend.
        self._session = onnxruntime.InferenceSession(str(path), options, providers)
        self._names = [output.tensor for output in variant.outputs]
        # ONNX Runtime goes on without a provider that does not start, on the CPU.
        names = {one if isinstance(one, str) else one[0] for one in providers}
        if missing := sorted(names - {*self._session.get_providers()}):
            raise RuntimeError(f"provider {missing[0]} does not start here")

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by their names."""
        return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))


def load(path: Path, variant: Variant, threads: int, providers: tuple[str, ...]) -> OnnxSession:
    """Loads a file.

    Raises:
      RuntimeError: the file is no model, or has operations that this release does not know.
      ValueError: a provider is not there.
    """
    there = onnxruntime.get_available_providers()
    if missing := [name for name in providers if name not in there]:
        raise ValueError(f"no provider {missing[0]}, only {', '.join(there)}")
    asked = [(name, _settings(variant, name, path.parent)) for name in providers]
    return OnnxSession(path, variant, threads, [*asked, CPU])


def _settings(variant: Variant, provider: str, folder: Path) -> dict[str, Any]:
    settings = dict(variant.provider.get(provider, {}))
    if CACHE_PATH in settings:
        settings[CACHE_PATH] = str(folder / settings[CACHE_PATH])
    return settings
