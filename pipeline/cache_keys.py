"""What TFX's cache cannot see by itself: the code that a component runs, and no more settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tfx.dsl.components.base import base_node

from pipeline.config.fingerprint import CODE_KEY, code_fingerprint
from pipeline.config.settings import PipelineConfig
from pipeline.own_modules import ROOT
from trainer_module.models import ZOO
from trainer_module.settings import SETTINGS_KEY, ModelSettings, TrainerSettings
from trainer_module.settings.tune import TUNE_KEY

_CODE = (
    "trainer_module",
    "components/column_types/choice.py",
    "components/column_types/handing_on.py",
)
"""What Transform and Trainer run, and what tells them what the columns are."""


def transform_config(config: PipelineConfig) -> dict[str, object]:
    """What Transform is told: without the model's settings, which must not invalidate its cache.

    But for its kind and weights, where features follow from that.
    """
    data, kind, weights = config.data, config.model.kind, config.model.weights
    follows = kind in ZOO and ZOO[kind].features
    settings = TrainerSettings(
        label=data.label,
        weight=data.weight,
        task=config.target.without_model_keys(),
        features=config.features,
        model=ModelSettings(kind=kind, weights=weights) if follows else ModelSettings(),
    )
    own = [config.preprocessing] if config.preprocessing else []
    return _custom_config(settings, [*own, *settings.own_features.values()])


def trainer_config(config: PipelineConfig) -> dict[str, object]:
    """What Trainer is told."""
    settings = config.trainer_settings
    if config.tune is None:
        return _custom_config(settings, settings.own_code.values())
    # What the search finds is put in where it was left out.
    told = _custom_config(settings, settings.own_code.values())
    return {**told, SETTINGS_KEY: config.given_settings}


def tuner_config(config: PipelineConfig) -> dict[str, object]:
    """What Tuner is told."""
    assert config.tune is not None  # noqa: S101 - else there is no Tuner
    settings = config.trainer_settings
    files = [*(ROOT / path for path in (*_CODE, "components/tuner")), *_weights(settings)]
    return {
        SETTINGS_KEY: config.given_settings,
        TUNE_KEY: config.tune.model_dump(mode="json", exclude_unset=True),
        CODE_KEY: code_fingerprint(files, settings.own_code.values()),
    }


def add_code(component: base_node.BaseNode, *code: str, own: Iterable[str] = ()) -> None:
    """Makes the code that a component runs a part of its cache key.

    Beside its parameters: not all of these components have one for it.

    Args:
      component: the component.
      code: ours, files and folders.
      own: import paths of the user's.
    """
    component.exec_properties[CODE_KEY] = code_fingerprint((ROOT / path for path in code), own)


def _custom_config(settings: TrainerSettings, import_paths: Iterable[str]) -> dict[str, object]:
    files = [*(ROOT / path for path in _CODE), *_weights(settings)]
    code = code_fingerprint(files, import_paths)
    return {**settings.to_custom_config(), CODE_KEY: code}


def _weights(settings: TrainerSettings) -> list[Path]:
    """The files of weights that a model begins with, as far as they are on this machine."""
    path = Path(settings.model.weights or "")
    if settings.model.weights is None:
        return []
    return [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
