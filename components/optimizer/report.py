"""The Optimizer's report, which summaries and the Pusher read. The module imports no TFX."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from components.json_numbers import Number

REPORT_FILE = "report.json"
"""The file of the report, in the artifact of the variants."""


class VariantReport(BaseModel):
    """The figures of one variant, and whether it is accepted."""

    model_config = ConfigDict(frozen=True)

    name: str
    accepted: bool
    reasons: list[str] = []
    remarks: list[str] = []
    unmeasured: str = ""
    """The reason why the variant was not measured on its target device, or an empty string."""
    bytes: int | None = None
    gzipped_bytes: int | None = None
    size_ratio: float | None = None
    """The bytes of the variant, divided by the bytes of the model's weights as float32."""
    drop: Number | None = None
    """The drop of the deciding metric; see `DecidingMetric.drop`."""
    drop_is_share: bool = False
    """Whether the drop is relative to the model's value, because the metric has the label's
    unit."""
    metrics: dict[str, Number] = {}
    slices: dict[str, dict[str, Number]] = {}
    measured: dict[str, Any] = {}
    """The figures of `trainer_module.export.variants.measuring`."""
    latency_ratio: float | None = None
    """The latency of the variant for one example, divided by the latency of the model's
    signature."""


class OptimizerReport(BaseModel):
    """The report on all variants of a model."""

    model_config = ConfigDict(frozen=True)

    metric: str
    """The name of the metric that decides."""
    variants: list[VariantReport] = []
    unmet: list[str] = []
    """Sentences about rejected variants that are required; if there are any, nothing is pushed."""
    skipped: str = ""
    made_from: str = ""
    """The hash of the model, the sample and the code of the variants."""
    weight_bytes: int | None = None
    """The bytes of the model's weights as float32."""
    measured: dict[str, Any] = {}
    """The figures of the model itself."""

    @property
    def accepted(self) -> list[str]:
        """The names of the accepted variants."""
        return [variant.name for variant in self.variants if variant.accepted]
