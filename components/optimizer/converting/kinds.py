"""The variants that there are, and what converting one gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_module.variants.manifest import Format


@dataclass(frozen=True)
class Made:
    """A converted file, of which a manifest is made."""

    format: Format
    precision: str
    path: Path
    provider: Mapping[str, Any] = field(default_factory=dict)
    trtexec: str = ""
    notes: tuple[str, ...] = ()


KINDS: Mapping[str, tuple[str, str]] = {
    "float": ("litert", "float"),
}
"""By the name in the config, the module of this folder that converts, and the precision."""
