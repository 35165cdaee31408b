"""What TFX's cache cannot see by itself: the code that a component runs, and no more settings."""

from __future__ import annotations

from collections.abc import Iterable

from tfx.dsl.components.base import base_node

from pipeline.config.fingerprint import CODE_KEY, code_fingerprint
from pipeline.config.settings import PipelineConfig
from pipeline.own_modules import ROOT
from trainer_module.settings import TrainerSettings

_CODE = (
    "trainer_module",
    "components/column_types/choice.py",
    "components/column_types/handing_on.py",
)
"""What Transform and Trainer run, and what tells them what the columns are."""


def transform_config(config: PipelineConfig) -> dict[str, object]:
    """What Transform is told: without the model's settings, which must not invalidate its cache."""
    data = config.data
    settings = TrainerSettings(
        label=data.label,
        weight=data.weight,
        task=config.target.without_model_keys(),
        features=config.features,
    )
    own = [config.preprocessing] if config.preprocessing else []
    return _custom_config(settings, [*own, *settings.own_features.values()])


def trainer_config(config: PipelineConfig) -> dict[str, object]:
    """What Trainer is told."""
    settings = config.trainer_settings
    return _custom_config(settings, settings.own_code.values())


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
    code = code_fingerprint((ROOT / path for path in _CODE), import_paths)
    return {**settings.to_custom_config(), CODE_KEY: code}
