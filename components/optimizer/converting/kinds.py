"""The variants that there are, and what converting one gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_module.export.variants.manifest import Format


@dataclass(frozen=True)
class ConvertedFile:
    """A converted file, of which a manifest is made."""

    format: Format
    precision: str
    path: Path
    beside: tuple[str, ...] = ()
    """Names of further files that it needs."""
    provider: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trtexec: str = ""
    notes: tuple[str, ...] = ()


KINDS: Mapping[str, tuple[str, str]] = {
    **{p: ("litert", p) for p in ("float", "float16", "dynamic", "int8", "int16x8")},
    "onnx": ("onnx", "float"),
    "onnx_float16": ("onnx", "float16"),
    "onnx_int8": ("onnx", "int8"),
    "tensorrt_float16": ("tensorrt", "float16"),
    "tensorrt_int8": ("tensorrt", "int8"),
}
"""By the name in the config, the module of this folder that converts, and the precision."""
