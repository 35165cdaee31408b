"""The Optimizer's report, for summaries, programs and the Pusher; free of TFX."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

REPORT_FILE = "report.json"
"""The file of the report in the artifact of the variants, beside a folder for each variant."""

# JSON has no NaN and no infinities.
Number = Annotated[
    float,
    BeforeValidator(lambda v: math.nan if v is None else v),
    PlainSerializer(lambda v: v if math.isfinite(v) else None, when_used="json"),
]


class VariantReport(BaseModel):
    """The figures of one variant, and whether it is accepted."""

    model_config = ConfigDict(frozen=True)

    name: str
    accepted: bool
    reasons: list[str] = []
    """The reasons for a refusal."""
    remarks: list[str] = []
    """Further remarks for the summary."""
    unmeasured: str = ""
    """The reason why it was not measured on its target device; empty if it was."""
    bytes: int | None = None
    gzipped_bytes: int | None = None
    size_ratio: float | None = None
    """The ratio of its bytes to those of the model's weights as float32."""
    drop: Number | None = None
    """The drop of the deciding metric."""
    drop_is_share: bool = False
    """Whether the drop is relative to the model's value, as for an error in the label's unit."""
    metrics: dict[str, Number] = {}
    slices: dict[str, dict[str, Number]] = {}
    measured: dict[str, Any] = {}
    """The figures of `trainer_module.export.variants.measuring`."""
    latency_ratio: float | None = None
    """The ratio of its latency to that of the model's own signature, one example at a time."""


class OptimizerReport(BaseModel):
    """The report on all variants of a model."""

    model_config = ConfigDict(frozen=True)

    metric: str
    """The name of the metric that decides."""
    variants: list[VariantReport] = []
    unmet: list[str] = []
    """Required variants that are refused, with the reason; nothing is pushed then."""
    skipped: str = ""
    """The reason why there are no variants."""
    made_from: str = ""
    """A key that variants of the same model and data by the same code share."""
    weight_bytes: int | None = None
    """The bytes of the model's weights as float32."""
    measured: dict[str, Any] = {}
    """The figures of the model itself."""

    @property
    def accepted(self) -> list[str]:
        """The names of the variants that are good enough."""
        return [variant.name for variant in self.variants if variant.accepted]
