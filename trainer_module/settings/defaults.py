"""What a model takes where the config leaves a key out: its kind, its sizes, how it is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from trainer_module.models import AUTO, ZOO, ModelSpec, kind_for
from trainer_module.sections import Settings
from trainer_module.settings.model import ModelSettings
from trainer_module.settings.train import TrainSettings

Section = TypeVar("Section", bound=Settings)

OF_ITS_OPTIMIZER = "learning_rate"
"""The key of `train` that means something else with another optimizer than the model's own."""


def complete(
    model: ModelSettings, train: TrainSettings, feature_types: Iterable[str]
) -> tuple[ModelSettings, TrainSettings]:
    """The same settings with what follows from the features and the model.

    What the config gives is kept, and what is complete stays as it is.
    """
    kind = kind_for(feature_types) if model.kind == AUTO else model.kind
    model = model.model_copy(update={"kind": kind})
    spec = ZOO.get(kind, ModelSpec(kind))
    defaults = dict(spec.train)
    if "optimizer" in train.model_fields_set:
        defaults.pop(OF_ITS_OPTIMIZER, None)
    return _filled(model, spec.model), _filled(train, defaults)


def _filled(section: Section, defaults: Mapping[str, Any]) -> Section:
    left_out = {k: v for k, v in defaults.items() if k not in section.model_fields_set}
    given = type(section).model_validate(left_out)
    return section.model_copy(update={key: getattr(given, key) for key in left_out})
