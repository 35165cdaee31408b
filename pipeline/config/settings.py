"""The settings of the whole config, and values derived from the config alone.

Each section, with its rules, is a module of `sections`. No module here imports TensorFlow or TFX,
so that an invalid file is rejected immediately.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from components.example_gen.formats import (
    FORMATS,
    IMAGE_FEATURE,
)
from components.serving.settings import LogSettings, RequestSettings
from pipeline.config.issues import Issue, Rule
from pipeline.config.sections.card import CardSettings
from pipeline.config.sections.data import BeamSettings, DataSettings
from pipeline.config.sections.evaluate import Criteria, EvaluateSettings
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.sections.notify import NotifySettings
from pipeline.config.sections.push import AnyCertificate, CertificateSettings, PushSettings
from pipeline.config.sections.report import ReportSettings
from pipeline.config.sections.schedule import (
    DriftSettings,
    OnDrift,
    OnSkew,
    ScheduleSettings,
    SkewSettings,
)
from pipeline.own_modules import is_own_module
from trainer_module.families import Family, family_of
from trainer_module.sections import Matching
from trainer_module.settings import (
    CrossValidation,
    DateFeature,
    Feature,
    IgnoredFeature,
    ImageFeature,
    ModelSettings,
    NumericFeature,
    Settings,
    Task,
    TaskSettings,
    TrainerSettings,
    TrainSettings,
)
from trainer_module.settings.model import ModelName
from trainer_module.settings.optimize import OptimizeSettings, WhileTraining
from trainer_module.settings.tasks import BaseTask, as_task
from trainer_module.settings.train import NOT_IN_CACHE_KEY, as_kind
from trainer_module.settings.tune import AnyTune


class OnAnomaly(StrEnum):
    """The reaction to a severe data anomaly."""

    FAIL = "fail"
    """The run ends before training."""
    WARN = "warn"
    """The run reports the anomaly and continues."""


SCHEDULE_KEYS_WITHOUT_EFFECT_ON_MODEL = set(ScheduleSettings.model_fields) - {
    "window",
    "missing_span",
    "warm_start",
}
"""Keys of `schedule` about times and frequencies, without effect on the model."""

KEYS_WITHOUT_EFFECT_ON_MODEL: Any = {
    "beam": True,
    "notify": True,
    "schedule": SCHEDULE_KEYS_WITHOUT_EFFECT_ON_MODEL,
    "kubeflow": True,
    "requests": True,
    "log": True,
    "skew": True,
    "card": True,
    "report": True,
}
"""Sections, or keys of a section, without effect on the model or its destination."""

NAME_PATTERN = r"[a-z][a-z0-9_-]{0,62}"


AnyModel: TypeAlias = Annotated[
    ModelSettings, BeforeValidator(as_kind, json_schema_input_type=ModelName | ModelSettings)
]


class PipelineConfig(Settings):
    """The content of a config file, which describes one pipeline."""

    name: Annotated[
        str,
        Matching(
            NAME_PATTERN,
            "use up to 63 lower-case letters, digits, - and _, beginning with a letter",
        ),
    ]
    """The name of the pipeline, of its output folder and of the served model."""
    data: DataSettings
    """The location and the format of the data, and its split."""
    target: TaskSettings = Field(alias="task")
    """The task of the model: its name, or a mapping with its options."""
    features: dict[str, Feature] = Field(
        default={}, examples=[{"review": {"type": "text"}, "id": {"type": "ignore"}}]
    )
    """The types of columns, by name; all other types are inferred from the data of the first run:
    docs/your-data.md.
    """
    preprocessing: str | None = None
    """The import path of your `preprocessing_fn(inputs, custom_config)`; default: the type of each
    feature determines its preprocessing.
    """
    schema_file: str | None = Field(default=None, alias="schema")
    """The path of a schema.pbtxt of your own; default: the first run infers the schema from its
    data, and later runs reuse it.
    """
    on_anomaly: OnAnomaly = OnAnomaly.FAIL
    """Whether an anomaly stops the run (`fail`) or is reported (`warn`). Anomalies are a missing
    label, a missing or mistyped column, an unknown class, and a number outside the bounds of a
    schema of your own.
    """
    model: AnyModel = ModelSettings()
    """The model: its name, the import path of your builder, or a mapping with `kind` and sizes."""
    train: TrainSettings = TrainSettings()
    tune: AnyTune | None = None
    """The search for better values of keys of `model` and `train`, which precedes training;
    default: no search.
    """
    evaluate: EvaluateSettings = EvaluateSettings()
    optimize: OptimizeSettings | None = None
    """The conversions that make the model smaller and faster: docs/optimize.md. Default: none."""
    certificate: AnyCertificate = CertificateSettings()
    """The check before a push that all serving interfaces give the same predictions for golden
    rows; `false` turns the check off.
    """
    push: PushSettings = PushSettings()
    card: CardSettings = CardSettings()
    beam: BeamSettings = BeamSettings()
    schedule: ScheduleSettings | None = None
    """The times of retraining, the spans to train on, and the versions and runs to keep."""
    drift: DriftSettings = DriftSettings()
    requests: RequestSettings = RequestSettings()
    log: LogSettings = LogSettings()
    """The contents of the request log of the served model."""
    skew: SkewSettings = SkewSettings()
    notify: NotifySettings = NotifySettings()
    report: ReportSettings = ReportSettings()
    metadata: str | None = None
    """The server of ML Metadata; default: a SQLite file in the output folder."""
    kubeflow: KubeflowSettings | None = None
    """How the pipeline runs on Kubeflow Pipelines."""

    @model_validator(mode="after")
    def _has_pictures(self) -> PipelineConfig:
        if FORMATS[self.data.format].holds_images and not self.features:
            # The config is frozen after validation.
            object.__setattr__(self, "features", {IMAGE_FEATURE: ImageFeature(type="image")})
        return self

    @model_validator(mode="after")
    def _has_past_labels(self) -> PipelineConfig:
        if self.data.lags is not None:
            past = {name: NumericFeature(type="numeric") for name in self.past_labels}
            object.__setattr__(self, "features", {**past, **self.features})
        return self

    def find_issues(self, rules: Iterable[Rule]) -> Iterator[Issue]:
        """Yields the problems that rules find in this config.

        Args:
          rules: functions. Each parameter has the name of a section or property of the config, and
            receives its value; a parameter `config` receives the whole config.
        """
        for rule in rules:
            names = inspect.signature(rule).parameters
            yield from rule(
                **{name: self if name == "config" else getattr(self, name) for name in names}
            )

    @property
    def task(self) -> Task:
        """The kind of the label."""
        return self.label_task.label_kind

    @property
    def label_task(self) -> BaseTask:
        """The task of a supervised family; raises TypeError if the task has no label."""
        return as_task(self.target)

    @property
    def family(self) -> Family:
        """The family of the task."""
        return family_of(self.target)

    @property
    def schedule_or_default(self) -> ScheduleSettings:
        """The section `schedule`, or its defaults: train on the newest span, without triggers."""
        return self.schedule or ScheduleSettings()

    @property
    def has_trigger(self) -> bool:
        """Whether cron, new data, drift or skew starts runs."""
        schedule, drift = self.schedule_or_default, self.drift
        by_drift = drift.on_drift is OnDrift.RETRAIN and bool(drift.columns)
        by_skew = self.skew.on_skew is OnSkew.RETRAIN and self.skew.is_watched
        return schedule.cron is not None or schedule.on_new_data or by_drift or by_skew

    @property
    def without_search(self) -> dict[str, Any]:
        """The values that the file sets, without the section `tune`."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"tune"})

    @property
    def while_training(self) -> WhileTraining:
        """The part of `optimize` that the Trainer reads."""
        settings = self.optimize or WhileTraining()
        return WhileTraining(prune=settings.prune, quantize=settings.quantize)

    def columns_of(self, *kinds: type[Settings]) -> list[str]:
        """Returns the names in `features` that have one of the types, in the file's order."""
        return [name for name, feature in self.features.items() if isinstance(feature, kinds)]

    @property
    def dates_to_split_by(self) -> dict[str, str | None] | None:
        """The declared columns that may contain the date of a row, by name, with their formats.

        The rows may be split by one of these columns. None if the config itself defines the split,
        by globs or by `order_by`, of which `order_by: null` means a random split.
        """
        has_globs = any(isinstance(share, str) for share in self.data.splits.values())
        if has_globs or "order_by" in self.data.model_fields_set:
            return None
        return {
            name: feature.format if isinstance(feature, DateFeature) else None
            for name, feature in self.features.items()
            if isinstance(feature, (DateFeature, IgnoredFeature))
        }

    @property
    def unsized_pictures(self) -> list[str]:
        """The columns of pictures whose size the data determines."""
        return find_unsized(self.features)

    @property
    def no_features(self) -> tuple[str, ...]:
        """The columns that are never inputs of the model."""
        return (self.data.label, self.data.weight) if self.data.weight else (self.data.label,)

    @property
    def past_labels(self) -> tuple[str, ...]:
        """The columns that `data.lags` adds."""
        lags = self.data.lags
        return tuple(lags.windows(self.data.label)) if lags else ()

    @property
    def criteria(self) -> Criteria:
        """The criteria by which the Evaluator compares models of this pipeline."""
        changes_labels = self.preprocessing is not None and not self.task.is_classification
        is_comparable = not (changes_labels or self.data.weight)
        return Criteria(
            self.target,
            self.evaluate,
            self.data.weight,
            changes_labels=changes_labels,
            split_by=self.data.split_by,
            order_by=self.data.order_by,
            past_labels=self.past_labels if is_comparable else (),
        )

    @property
    def named_columns(self) -> dict[str, str]:
        """The columns that the config names as features, weight or slices, by config key."""
        features = {
            _key(name, column, feature): column
            for name, feature in self.features.items()
            for column in feature.columns_of(name)
        }
        if self.data.weight:
            features["data.weight"] = self.data.weight
        slices = {
            f"evaluate.slices.{i}": name
            for i, columns in enumerate(self.evaluate.slices)
            for name in columns
        }
        return features | slices

    @property
    def all_named_columns(self) -> dict[str, str]:
        """The columns of `named_columns`, for the split, for drift, and of the report."""
        by = {"data.split_by": self.data.split_by, "data.order_by": self.data.order_by}
        split_by = {key: name for key, name in by.items() if name}
        lags = self.data.lags
        split_by |= {f"data.lags.key.{i}": name for i, name in enumerate(lags.key if lags else [])}
        drift = {f"drift.columns.{name}": name for name in self.drift.columns}
        return self.named_columns | split_by | drift | self.private_columns

    @property
    def private_columns(self) -> dict[str, str]:
        """The columns whose values stay out of the report, by config key."""
        return {f"report.private.{i}": name for i, name in enumerate(self.report.private)}

    @property
    def fingerprint(self) -> str:
        """A hash of everything that may change the model or its destination."""
        text = self.model_dump_json(exclude=KEYS_WITHOUT_EFFECT_ON_MODEL)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's code, by the config key of each."""
        preprocessing = {"preprocessing": self.preprocessing} if self.preprocessing else {}
        family = {key: path for key, path in self.family.code.items() if not is_own_module(path)}
        family |= self.family.own_code(self)
        return preprocessing | family | self.trainer_settings.own_code | self.evaluate.own_code

    @property
    def given_settings(self) -> dict[str, Any]:
        """The part of `trainer_settings` that the file sets; the model's kind determines all other
        values.
        """

        def dump(section: Settings, **excluded: Any) -> dict[str, Any]:
            return section.model_dump(mode="json", exclude_unset=True, **excluded)

        return {
            "label": self.data.label,
            "weight": self.data.weight,
            "task": dump(self.target),
            "features": {name: dump(feature) for name, feature in self.features.items()},
            "model": dump(self.model),
            "train": dump(self.train, exclude=NOT_IN_CACHE_KEY),
            "evaluate": {"folds": self.evaluate.folds},
            "optimize": dump(self.while_training),
        }

    @property
    def trainer_settings(self) -> TrainerSettings:
        """The settings that Transform and Trainer read."""
        return TrainerSettings(
            label=self.data.label,
            weight=self.data.weight,
            task=self.target,
            features=self.features,
            model=self.model,
            train=self.train,
            evaluate=CrossValidation(folds=self.evaluate.folds),
            optimize=self.while_training,
        )


def find_unsized(features: Mapping[str, Feature]) -> list[str]:
    """Returns the columns of pictures for which the config sets no size."""
    return [
        name
        for name, feature in features.items()
        if isinstance(feature, ImageFeature) and feature.size is None
    ]


def _key(name: str, column: str, feature: Feature) -> str:
    """Returns the config key of a column that a feature reads, for messages.

    For `from: path`, the message adds that the feature and its column of paths have the same name.
    """
    if isinstance(feature, ImageFeature) and feature.origin == "path":
        return f"features.{name}, whose name is also the name of its column of paths"
    return f"features.{name}" + ("" if column == name else f" ({column})")
