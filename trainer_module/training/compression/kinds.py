"""Which models can be made smaller while they are trained, as far as their kind tells."""

from __future__ import annotations

from trainer_module.settings.model import NETWORKS, is_grown
from trainer_module.settings.optimize import WhileTraining

NOT_QUANTISED = ("tabular", *NETWORKS)
"""Their weights are in layers of ours, or in a model that is a layer: TFMOT knows neither."""


def can_change(kind: str, told: WhileTraining) -> bool:
    """Whether a model of a kind can be trained as it is told."""
    if told.changes_training and is_grown(kind):
        return False
    return told.quantize is None or kind not in NOT_QUANTISED
