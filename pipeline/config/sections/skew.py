"""The config's section `skew`: whether requests still look like the training data."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from pipeline.config.sections.schedule import DriftThreshold
from trainer_module.settings import Settings


class OnSkew(StrEnum):
    """What requests do that are unlike the training data; the history has it in any case."""

    WARN = "warn"
    RETRAIN = "retrain"
    """Tell, and make a run due."""
    NOTIFY = "notify"
    """Tell whom `notify` names."""


class SkewSettings(Settings):
    """Whether requests still look like what the model in service was trained on."""

    requests: str | None = None
    """The folder that `serve --log-requests` writes to, or a glob of its files."""
    columns: dict[str, DriftThreshold] = {}
    """Thresholds by column: {fare: {jensen_shannon: 0.1}}."""
    on_skew: OnSkew = OnSkew.WARN
    """What happens when a threshold is passed, and by more than by chance."""
    min_rows: int = Field(default=1000, ge=100)
    """Rows that are waited for before they are compared."""

    @property
    def is_watched(self) -> bool:
        """Whether there is anything to compare."""
        return self.requests is not None and bool(self.columns)
