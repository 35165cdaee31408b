"""What the Optimizer found, for people, for programs and for Pusher; nothing here needs TFX."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

REPORT_FILE = "report.json"
"""In the artifact of the variants, beside a folder for each that was made."""

# JSON has no NaN and no infinities.
Number = Annotated[
    float,
    BeforeValidator(lambda v: math.nan if v is None else v),
    PlainSerializer(lambda v: v if math.isfinite(v) else None, when_used="json"),
]


class VariantReport(BaseModel):
    """One variant: what it is, and whether it is good enough."""

    model_config = ConfigDict(frozen=True)

    name: str
    accepted: bool
    reasons: list[str] = []
    """Why it is refused."""
    remarks: list[str] = []
    """What else there is to know."""
    unmeasured: str = ""
    """Why it was not measured where it will run; empty if it was."""
    bytes: int | None = None
    gzipped_bytes: int | None = None
    size_ratio: float | None = None
    """Of the bytes that the model's weights take as float32."""
    drop: Number | None = None
    """How much worse it is by the metric that decides."""
    drop_is_share: bool = False
    """Whether that is a share of the model's value, as of an error in the label's unit."""
    metrics: dict[str, Number] = {}
    slices: dict[str, dict[str, Number]] = {}
    measured: dict[str, Any] = {}
    """As `trainer_module.export.variants.measuring` has it."""
    latency_ratio: float | None = None
    """Of the model's own signature, one example at a time."""


class OptimizerReport(BaseModel):
    """All variants of a model."""

    model_config = ConfigDict(frozen=True)

    metric: str
    """That decides."""
    variants: list[VariantReport] = []
    unmet: list[str] = []
    """Required variants that are refused, with the reason: nothing is pushed."""
    skipped: str = ""
    """Why there are no variants."""
    made_from: str = ""
    """The same for variants that the same code has made of the same model and data."""
    weight_bytes: int | None = None
    """What the model's weights take as float32."""
    measured: dict[str, Any] = {}
    """The model itself."""

    @property
    def accepted(self) -> list[str]:
        """The names of the variants that are good enough."""
        return [variant.name for variant in self.variants if variant.accepted]
