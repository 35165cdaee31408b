"""The parts of components' cache keys: their settings, and hashes of the code that they run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import (
    CODE_KEY,
    FILES_KEY,
    MODELS,
    code_fingerprint,
    files_fingerprint,
)
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
from trainer_module.settings.tune import TUNE_KEY, TuneSettings

if TYPE_CHECKING:
    from tfx.dsl.components.base import base_node

PREPROCESSING_FN = "trainer_module.preprocessing.preprocessing_fn"
OWN_PREPROCESSING_FN = "trainer_module.preprocessing.preprocess_by_own_function"


@dataclass(frozen=True)
class Recipe:
    """The functions that Transform, Tuner and Trainer run, with their settings.

    Each property `*_config` is the `custom_config` of a component, which is a part of its cache
    key. It contains the settings that the component reads, and hashes of its code and its files.
    """

    settings: TrainerSettings
    """The settings of the Trainer, with the defaults of the model's kind."""
    given_settings: Mapping[str, Any]
    """The settings of the Trainer that the config file sets; a search sets further ones."""
    transform_settings: TrainerSettings
    """The settings of Transform. Settings of the model are left out, so that Transform's output is
    taken from the cache if only the model has changed.
    """
    run_fn: str
    """The import path of the function that trains the model of the config."""
    preprocessing: str | None
    """The import path of the user's preprocessing function, or None for the default."""
    tune: TuneSettings | None
    """The settings of the search, or None if the config has no search."""

    @classmethod
    def of(cls, config: PipelineConfig) -> Recipe:
        """Returns the recipe of a config."""
        return cls(
            settings=config.trainer_settings,
            given_settings=config.given_settings,
            transform_settings=_transform_settings(config),
            run_fn=config.train.run_fn or f"{trainer_of(config.model.kind)}.run_fn",
            preprocessing=config.preprocessing,
            tune=config.tune,
        )

    @property
    def preprocessing_fn(self) -> str:
        """The import path of the function that Transform calls."""
        if self._splits_own_inputs:
            return OWN_PREPROCESSING_FN
        return self.preprocessing or PREPROCESSING_FN

    @property
    def _splits_own_inputs(self) -> bool:
        """Whether the split needs a column that the user's preprocessing function may drop."""
        settings = self.transform_settings
        return bool(self.preprocessing and (settings.split_by or settings.order_by))

    @property
    def transform_config(self) -> dict[str, object]:
        """The `custom_config` of Transform."""
        settings = self.transform_settings
        own_code = [self.preprocessing] if self.preprocessing else []
        code = code_fingerprint(
            ["components.column_types.transform", _module_of(PREPROCESSING_FN)],
            [*own_code, *settings.own_features.values()],
            never_loads=MODELS,
        )
        custom = _custom_config(settings, code, _vocabularies(settings))
        if self._splits_own_inputs:
            return {**custom, OWN_PREPROCESSING_KEY: self.preprocessing}
        return custom

    @property
    def trainer_config(self) -> dict[str, object]:
        """The `custom_config` of Trainer."""
        # A search may choose another kind of model, with another training function.
        code = code_fingerprint(
            ["components.trainer.component", *TRAINERS], self.settings.own_code.values()
        )
        custom = _custom_config(self.settings, code, _weights(self.settings))
        # The search sets keys that the file does not set.
        return custom if self.tune is None else {**custom, SETTINGS_KEY: self.given_settings}

    @property
    def tuner_config(self) -> dict[str, object]:
        """The `custom_config` of Tuner."""
        assert self.tune is not None  # noqa: S101 - else there is no Tuner
        code = code_fingerprint(["components.tuner.component"], self.settings.own_code.values())
        custom = _custom_config(self.settings, code, _weights(self.settings))
        tune = self.tune.model_dump(mode="json", exclude_unset=True)
        return {**custom, SETTINGS_KEY: self.given_settings, TUNE_KEY: tune}

    @property
    def certificate_config(self) -> dict[str, object]:
        """The `custom_config` of InfraValidator: the settings that determine the model."""
        if self.tune is not None:
            return {SETTINGS_KEY: self.given_settings}
        return self.settings.to_custom_config()


def _transform_settings(config: PipelineConfig) -> TrainerSettings:
    """Returns the settings that Transform reads."""
    data, kind, weights = config.data, config.model.kind, config.model.weights
    # Some models need particular features, which `kind` and `weights` determine.
    needs_model = kind in ZOO and ZOO[kind].features
    # A training function of the user's may take all outputs of Transform as inputs of the model,
    # so that Transform must not output the columns of the split.
    keeps_split = not config.train.run_fn
    return TrainerSettings(
        label=data.label,
        weight=data.weight,
        split_by=data.split_by if keeps_split else None,
        order_by=data.order_by if keeps_split else None,
        task=config.target.without_model_keys(),
        features=config.features,
        model=ModelSettings(kind=kind, weights=weights) if needs_model else ModelSettings(),
    )


def files_read(settings: TrainerSettings) -> list[Path]:
    """Returns the local vocabularies and weights that Transform, Tuner and Trainer read."""
    return sorted({*_vocabularies(settings), *_weights(settings)})


def add_code(
    component: base_node.BaseNode,
    *loaded: str,
    own: Iterable[str] = (),
    never_loads: Collection[str] = MODELS,
) -> None:
    """Adds a hash of a component's code to its cache key.

    The hash is stored in `exec_properties`, as not all components have a parameter for the hash.

    Args:
      component: the component; the hash includes all modules that its executor imports.
      loaded: modules of Scopeline that the executor loads by name.
      own: import paths of the user's code.
      never_loads: modules whose strings are ignored, as the executor loads nothing by these names.
    """
    roots = [cast("Any", component.executor_spec).executor_class.__module__, *loaded]
    component.exec_properties[CODE_KEY] = code_fingerprint(roots, own, never_loads)


def _module_of(import_path: str) -> str:
    return import_path.rpartition(".")[0]


def _custom_config(
    settings: TrainerSettings, code: str, files: Iterable[Path]
) -> dict[str, object]:
    paths = [*files]
    files_hash = {FILES_KEY: files_fingerprint(paths)} if paths else {}
    return {**settings.to_custom_config(), CODE_KEY: code, **files_hash}


def _vocabularies(settings: TrainerSettings) -> list[Path]:
    """Returns the local files with wordpieces of text features and with names of classes.

    Text columns without an entry in `features` use the vocabulary in the folder of the weights.
    """
    texts = (f for f in settings.features.values() if isinstance(f, TextFeature))
    folders = {settings.model.weights, *(text.vocabulary for text in texts)}
    local = [Path(local_folder(folder)) for folder in folders if folder]
    paths = (folder / name for folder in local for name in (VOCABULARY, TOKENIZER))
    named = [class_index()] if getattr(settings.target, "classes", None) else []
    return sorted(path for path in (*paths, *named) if path.is_file())


def _weights(settings: TrainerSettings) -> list[Path]:
    """Returns the local files of a model's initial weights."""
    model = settings.model
    if model.weights is None:
        return []
    path = Path(local_weights(model.kind, model.weights, model.has_published_head))
    if path.is_file():
        return [path]
    # Hidden files belong to Git and other tools.
    names = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    return sorted(path / n for n in names if not any(part.startswith(".") for part in n.parts))
