"""`skew`: whether requests still look like the training data."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from pydantic import Field

from components.example_gen.paths import is_remote
from pipeline.config.issues import Issue
from pipeline.config.sections.schedule import DriftThreshold
from trainer_module.settings import (
    Settings,
)


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


def skew_has_requests_and_thresholds(skew: SkewSettings) -> Iterator[Issue]:
    """Skew is what passes a threshold, of requests that are written down."""
    if skew.columns and skew.requests is None:
        yield Issue(
            "skew.requests",
            "this key is missing; give the folder that `serve --log-requests` writes to",
        )
    elif skew.requests is not None and is_remote(skew.requests):
        yield Issue("skew.requests", f"found {skew.requests!r}; right is a local folder, or glob")
    elif not skew.columns and skew.model_fields_set:
        yield Issue(
            "skew.columns", "no column has a threshold; one is {fare: {jensen_shannon: 0.1}}"
        )


SKEW_RULES = (skew_has_requests_and_thresholds,)
