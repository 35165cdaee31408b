"""What TFX's cache cannot see by itself: the code that a component runs, and no more settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config.fingerprint import CODE_KEY, FILES_KEY, code_fingerprint
from pipeline.config.settings import PipelineConfig
from pipeline.own_modules import ROOT
from trainer_module.features.text.pieces import TOKENIZER, VOCABULARY
from trainer_module.models import ZOO
from trainer_module.settings import SETTINGS_KEY, ModelSettings, TextFeature, TrainerSettings
from trainer_module.settings.tune import TUNE_KEY

if TYPE_CHECKING:
    from tfx.dsl.components.base import base_node

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
    return _custom_config(
        settings, [*own, *settings.own_features.values()], _vocabularies(settings)
    )


def trainer_config(config: PipelineConfig) -> dict[str, object]:
    """What Trainer is told."""
    settings = config.trainer_settings
    told = _custom_config(settings, settings.own_code.values(), _weights(settings))
    # What the search finds is put in where it was left out.
    return told if config.tune is None else {**told, SETTINGS_KEY: config.given_settings}


def files_read(config: PipelineConfig) -> list[Path]:
    """The vocabularies and weights on this machine that Transform, Tuner and Trainer read."""
    settings = config.trainer_settings
    return sorted({*_vocabularies(settings), *_weights(settings)})


def certificate_config(config: PipelineConfig) -> dict[str, object]:
    """What InfraValidator is told: the settings that Trainer's model follows from."""
    if config.tune is not None:
        return {SETTINGS_KEY: config.given_settings}
    return config.trainer_settings.to_custom_config()


def tuner_config(config: PipelineConfig) -> dict[str, object]:
    """What Tuner is told."""
    assert config.tune is not None  # noqa: S101 - else there is no Tuner
    settings = config.trainer_settings
    told = _custom_config(
        settings, settings.own_code.values(), _weights(settings), (*_CODE, "components/tuner")
    )
    tune = config.tune.model_dump(mode="json", exclude_unset=True)
    return {**told, SETTINGS_KEY: config.given_settings, TUNE_KEY: tune}


def add_code(component: base_node.BaseNode, *code: str, own: Iterable[str] = ()) -> None:
    """Makes the code that a component runs a part of its cache key.

    Beside its parameters: not all of these components have one for it.

    Args:
      component: the component.
      code: ours, files and folders.
      own: import paths of the user's.
    """
    component.exec_properties[CODE_KEY] = code_fingerprint((ROOT / path for path in code), own)


def _custom_config(
    settings: TrainerSettings,
    import_paths: Iterable[str],
    files: Iterable[Path],
    code: Iterable[str] = _CODE,
) -> dict[str, object]:
    ours = code_fingerprint((ROOT / path for path in code), import_paths)
    read = [*files]
    told = {FILES_KEY: code_fingerprint(read)} if read else {}
    return {**settings.to_custom_config(), CODE_KEY: ours, **told}


def _vocabularies(settings: TrainerSettings) -> list[Path]:
    """The files that say how Transform cuts words into pieces, as far as they are on this machine.

    Columns that are found to be text have the vocabulary of the weights.
    """
    texts = (f for f in settings.features.values() if isinstance(f, TextFeature))
    folders = {settings.model.weights, *(text.vocabulary for text in texts)}
    paths = (Path(folder) / n for folder in folders if folder for n in (VOCABULARY, TOKENIZER))
    return sorted(path for path in paths if path.is_file())


def _weights(settings: TrainerSettings) -> list[Path]:
    """The files of weights that a model begins with, as far as they are on this machine."""
    if settings.model.weights is None:
        return []
    path = Path(settings.model.weights)
    if path.is_file():
        return [path]
    # Hidden ones are those of Git and other tools.
    names = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    return sorted(path / n for n in names if not any(part.startswith(".") for part in n.parts))
