"""What a model takes where the config leaves a key out: its kind, its sizes, how it is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from trainer_module.models import AUTO, ZOO, ModelSpec, kind_for
from trainer_module.sections import Settings
from trainer_module.settings.model import ModelSettings
from trainer_module.settings.train import TrainSettings

Section = TypeVar("Section", bound=Settings)

GO_BY = {"learning_rate": "optimizer", "early_stopping": "epochs"}
"""Keys of `train` that mean something else where the config gives the other one as it likes."""


def complete(
    model: ModelSettings, train: TrainSettings, feature_types: Iterable[str]
) -> tuple[ModelSettings, TrainSettings]:
    """The same settings with what follows from the features and the model.

    What the config gives is kept, and what is complete stays as it is.
    """
    kind = kind_for(feature_types) if model.kind == AUTO else model.kind
    model = model.model_copy(update={"kind": kind})
    spec = ZOO.get(kind, ModelSpec(kind))
    given = train.model_fields_set
    defaults = {key: value for key, value in spec.train.items() if GO_BY.get(key) not in given}
    return _filled(model, spec.model), _filled(train, defaults)


def _filled(section: Section, defaults: Mapping[str, Any]) -> Section:
    left_out = {k: v for k, v in defaults.items() if k not in section.model_fields_set}
    given = type(section).model_validate(left_out)
    return section.model_copy(update={key: getattr(given, key) for key in left_out})
