"""What a run tells its processes besides the settings; it is not part of TFX's cache key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RUNTIME_KEY = "runtime"
"""The key in the `custom_config` that `run_fn` gets."""


@dataclass(frozen=True)
class Runtime:
    """Where and how one process trains."""

    strategy: dict[str, Any] | None = None
    """The settings of the resolved strategy, as JSON; None where `train.strategy` says it."""
    reason: str = ""
    """Why the strategy was chosen; empty if the config named it."""
    backup_directory: str | None = None
    """Where training goes on from if it was interrupted; None keeps no backup."""
    writes_backup: bool = True
    """Whether this process does; False if another one does so for it, in the same folder."""
    backup_steps: int | None = None
    """Steps between backups; None is one at the end of each epoch."""
    restarts: list[str] = field(default_factory=list)
    """A sentence for each time that training had to be started again."""
    workers: int = 1
    """Processes that compute gradients."""

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Runtime:
        """The opposite of `to_json`; TypeError for unknown keys."""
        return cls(**value)
