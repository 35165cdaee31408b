"""Cache keys of components: the code that they run, and only the settings that they read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pipeline.config.fingerprint import (
    CODE_KEY,
    FILES_KEY,
    MODELS,
    code_fingerprint,
    files_fingerprint,
)
from pipeline.config.settings import PipelineConfig
from trainer_module.features.text.pieces import TOKENIZER, VOCABULARY
from trainer_module.published import class_index, local_folder, local_weights
from trainer_module.settings import (
    OWN_PREPROCESSING_KEY,
    SETTINGS_KEY,
    ModelSettings,
    TextFeature,
    TrainerSettings,
)
from trainer_module.settings.model import TRAINERS, ZOO, trainer_of
from trainer_module.settings.tune import TUNE_KEY

if TYPE_CHECKING:
    from tfx.dsl.components.base import base_node

PREPROCESSING_FN = "trainer_module.preprocessing.preprocessing_fn"
OWN_PREPROCESSING_FN = "trainer_module.preprocessing.preprocess_by_own_function"


def preprocessing_fn(config: PipelineConfig) -> str:
    """The import path of the function that Transform calls."""
    if config.preprocessing and any(_divided_by(config).values()):
        return OWN_PREPROCESSING_FN
    return config.preprocessing or PREPROCESSING_FN


def _divided_by(config: PipelineConfig) -> dict[str, str | None]:
    """The column that Trainer and Tuner divide the rows of train by, if there is one."""
    # A function of the user's that trains may take all that Transform returns for inputs.
    data = None if config.train.run_fn else config.data
    return {key: getattr(data, key, None) for key in ("split_by", "order_by")}


def transform_config(config: PipelineConfig) -> dict[str, object]:
    """What Transform is told: without the model's settings, which must not invalidate its cache.

    But for its kind and weights, where features follow from that.
    """
    data, kind, weights = config.data, config.model.kind, config.model.weights
    follows = kind in ZOO and ZOO[kind].features
    settings = TrainerSettings(
        label=data.label,
        weight=data.weight,
        **_divided_by(config),
        task=config.target.without_model_keys(),
        features=config.features,
        model=ModelSettings(kind=kind, weights=weights) if follows else ModelSettings(),
    )
    own = [config.preprocessing] if config.preprocessing else []
    code = code_fingerprint(
        ["components.column_types.transform", _module_of(PREPROCESSING_FN)],
        [*own, *settings.own_features.values()],
        never_loads=MODELS,
    )
    told = _custom_config(settings, code, _vocabularies(settings))
    is_wrapped = preprocessing_fn(config) == OWN_PREPROCESSING_FN
    return {**told, OWN_PREPROCESSING_KEY: config.preprocessing} if is_wrapped else told


def run_fn(config: PipelineConfig) -> str:
    """The import path of the function that trains, where a search chooses no other kind."""
    return config.train.run_fn or f"{trainer_of(config.model.kind)}.run_fn"


def trainer_config(config: PipelineConfig) -> dict[str, object]:
    """What Trainer is told."""
    settings = config.trainer_settings
    # A search may choose another kind of model, which another function trains.
    code = code_fingerprint(["components.trainer.executor", *TRAINERS], settings.own_code.values())
    told = _custom_config(settings, code, _weights(settings))
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
    code = code_fingerprint(["components.tuner.executor"], settings.own_code.values())
    told = _custom_config(settings, code, _weights(settings))
    tune = config.tune.model_dump(mode="json", exclude_unset=True)
    return {**told, SETTINGS_KEY: config.given_settings, TUNE_KEY: tune}


def add_code(
    component: base_node.BaseNode,
    *loaded: str,
    own: Iterable[str] = (),
    never_loads: Collection[str] = MODELS,
) -> None:
    """Makes the code that a component runs a part of its cache key.

    Beside its parameters: not all of these components have one for it.

    Args:
      component: the component, whose executor's imports count.
      loaded: modules of ours that the executor is given the names of.
      own: import paths of the user's.
      never_loads: packages whose modules the executor never loads by name.
    """
    roots = [cast(Any, component.executor_spec).executor_class.__module__, *loaded]
    component.exec_properties[CODE_KEY] = code_fingerprint(roots, own, never_loads)


def _module_of(import_path: str) -> str:
    return import_path.rpartition(".")[0]


def _custom_config(
    settings: TrainerSettings, code: str, files: Iterable[Path]
) -> dict[str, object]:
    read = [*files]
    told = {FILES_KEY: files_fingerprint(read)} if read else {}
    return {**settings.to_custom_config(), CODE_KEY: code, **told}


def _vocabularies(settings: TrainerSettings) -> list[Path]:
    """The files that say how Transform cuts words and what classes are called, as far as they
    are on this machine.

    Columns that are found to be text have the vocabulary of the weights.
    """
    texts = (f for f in settings.features.values() if isinstance(f, TextFeature))
    folders = {settings.model.weights, *(text.vocabulary for text in texts)}
    local = [Path(local_folder(folder)) for folder in folders if folder]
    paths = (folder / name for folder in local for name in (VOCABULARY, TOKENIZER))
    named = [class_index()] if getattr(settings.target, "classes", None) else []
    return sorted(path for path in (*paths, *named) if path.is_file())


def _weights(settings: TrainerSettings) -> list[Path]:
    """The files of weights that a model begins with, as far as they are on this machine."""
    model = settings.model
    if model.weights is None:
        return []
    path = Path(local_weights(model.kind, model.weights, model.has_published_head))
    if path.is_file():
        return [path]
    # Hidden ones are those of Git and other tools.
    names = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    return sorted(path / n for n in names if not any(part.startswith(".") for part in n.parts))
