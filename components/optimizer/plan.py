"""What the Optimizer is told, as JSON: what to make, and by what each variant is accepted."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict

from trainer_module.settings.optimize import OptimizeSettings, VariantName

OPTIMIZE_KEY, METRIC_KEY = "optimize", "metric"
"""Of the plan in a `custom_config`: the config's section, and the metric that decides."""

DECIDING = {"accept", "required", "variants"}
"""Keys of the section that are the Optimizer's; none changes what a variant is."""


class DecidingMetric(BaseModel):
    """The metric by which a variant is compared with its model."""

    model_config = ConfigDict(frozen=True)

    name: str
    higher_is_better: bool | None
    """None of one whose value may be too large as well as too small: any change is a drop."""

    has_unit: bool
    """Whether a drop is a share of the model's value, as of an error in the label's unit."""

    def drop(self, model: float, variant: float) -> float:
        """How much worse the variant's value is; negative where it is better.

        A share of the model's value where the metric has a unit; infinite where that value is 0.
        """
        if self.higher_is_better is None:
            worse = abs(model - variant)
        else:
            worse = model - variant if self.higher_is_better else variant - model
        if not self.has_unit or not worse:
            return worse
        return worse / abs(model) if model else math.copysign(math.inf, worse)


class OptimizerPlan(BaseModel):
    """Which variants are made, and what each has to reach."""

    model_config = ConfigDict(frozen=True)

    settings: OptimizeSettings
    metric: DecidingMetric

    @classmethod
    def from_custom_config(cls, custom_config: str) -> OptimizerPlan:
        """The plan that `to_custom_config` gave, as JSON."""
        told = json.loads(custom_config)
        return cls(settings=told[OPTIMIZE_KEY], metric=told[METRIC_KEY])

    def to_custom_config(self) -> dict[str, Any]:
        """What an executor is told."""
        return {
            OPTIMIZE_KEY: self.settings.model_dump(mode="json", include=DECIDING),
            METRIC_KEY: self.metric.model_dump(mode="json"),
        }

    @property
    def names(self) -> list[VariantName]:
        """The variants to make, in the order of the config."""
        return list(self.settings.variants)
