"""The typed configuration: what the YAML file may say.

Values are checked here one by one; what holds between them stands in `pipeline.config.rules`.
Nothing here imports TensorFlow or TFX, so that a bad file is refused at once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from components.example_gen.csv_settings import CsvSettings
from components.example_gen.formats import (
    FORMATS,
    IMAGE_FEATURE,
    DataFormat,
    OnBadFile,
    Unlabelled,
)
from components.example_gen.label_settings import LabelsSettings
from components.serving.settings import LogSettings, RequestSettings
from pipeline.config.sections.certificate import AnyCertificate, CertificateSettings
from pipeline.config.sections.evaluate import EvaluateSettings
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.sections.notify import NotifySettings
from pipeline.config.sections.schedule import DriftSettings, ScheduleSettings
from pipeline.config.sections.skew import SkewSettings
from pipeline.own_modules import PACKAGES
from trainer_module.families import Family, family_of
from trainer_module.features.pixels import DATA_PIXELS
from trainer_module.sections import Matching
from trainer_module.settings import (
    CrossValidation,
    DateFeature,
    Feature,
    IgnoredFeature,
    ImageFeature,
    ModelSettings,
    Settings,
    Task,
    TaskSettings,
    TrainerSettings,
    TrainSettings,
)
from trainer_module.settings.optimize import OptimizeSettings, WhileTraining
from trainer_module.settings.train import NOT_IN_CACHE_KEY
from trainer_module.settings.tune import AnyTune

TRAIN_SPLIT = "train"
EVAL_SPLIT = "eval"
BUILTIN_PREFIX = "builtin:"


class DataSettings(Settings):
    """Where the data is and how it is split."""

    format: DataFormat
    path: str = Field(min_length=1)
    """A file, folder or glob, local or gs://; `{SPAN}`, `{VERSION}`, `{YYYY}{MM}{DD}` and
    `{HH}` pick the latest span; `builtin:digits`, `builtin:reviews` and `builtin:taxi` are shipped
    data. Relative to where you run."""
    label: str = Field(default="label", min_length=1)
    """The column to predict. For images in folders the folder's name is the label."""
    weight: str | None = None
    """A column that says how much each example counts in the loss and in the metrics; it is no
    feature, and nobody asks for it when the model serves."""
    splits: dict[str, int | str] = {TRAIN_SPLIT: 8, EVAL_SPLIT: 2}
    """Hash buckets per split (8 and 2: 80 % and 20 %), or a glob per split below `path`."""
    split_by: str | None = None
    """A column, such as a customer's id, whose equal values go to the same split, also when other
    columns come or go; default: the whole record decides."""
    csv: CsvSettings = CsvSettings()
    """How CSV files are written, where looking at them does not tell."""
    stratify: bool = False
    """Whether each class of the label is split in proportion, one of a single row into train."""
    order_by: str | None = None
    """A column of numbers, or of dates and times (ISO 8601), by whose order the rows are split: the
    oldest into train, the newest into the last split; equal values stay together. `null` says that
    a random split of dated rows is meant."""
    on_bad_file: OnBadFile = OnBadFile.FAIL
    """Whether a broken picture ends the run, or is left out and named: one in a folder of a class,
    or one that a row names by path, with that row."""
    max_pixels: PositiveInt = DATA_PIXELS
    """What a picture may have by its header; one of more counts as broken, as to decode it takes
    gigabytes."""
    unlabelled: Unlabelled = Unlabelled.FAIL
    """Whether a row without a label ends the run, or such rows are left out and counted. With
    `labels` they are left out, unless this key says fail."""
    labels: LabelsSettings | None = None
    """Labels that come later, in files of their own, joined by a key; default: a column `label` of
    the data."""


class OnAnomaly(StrEnum):
    """What a severe data anomaly does."""

    FAIL = "fail"
    WARN = "warn"


class Approve(StrEnum):
    """Who decides that a blessed model is pushed."""

    AUTO = "auto"
    MANUAL = "manual"


class PushSettings(Settings):
    """Where a blessed model goes."""

    directory: str | None = None
    """The folder a model server watches; default: `<output>/<name>/serving/<name>`."""
    approve: Approve = Approve.AUTO
    """Whether a blessed model is pushed at once, or waits for `local_runner.py approve`."""


class BeamSettings(Settings):
    """How Apache Beam runs the data components."""

    args: list[str] = []
    """Beam pipeline options, such as `--runner=FlinkRunner`; default: on this machine."""
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """The most processes that share the work of a data component on this machine; auto: one for
    each 32 MB of files, as far as there are files, cores and memory."""


NAME_PATTERN = r"[a-z][a-z0-9_-]{0,62}"


class PipelineConfig(Settings):
    """One pipeline: the whole YAML file."""

    name: Annotated[
        str,
        Matching(
            NAME_PATTERN,
            "use up to 63 lower-case letters, digits, - and _, beginning with a letter",
        ),
    ]
    """Names the pipeline, its output folder and the served model."""
    data: DataSettings
    target: TaskSettings = Field(alias="task")
    """What the model predicts: the name of a task, or a mapping with its options."""
    features: dict[str, Feature] = {}
    """Overrides by column; otherwise what is in the first data decides: docs/your-data.md."""
    preprocessing: str | None = None
    """Import path of a `preprocessing_fn(inputs, custom_config)` of yours; default: by feature."""
    schema_file: str | None = Field(default=None, alias="schema")
    """A curated schema.pbtxt; otherwise it is inferred from the first data, once, and kept."""
    on_anomaly: OnAnomaly = OnAnomaly.FAIL
    """Whether a missing label, a missing or mistyped column, an unknown class, or a number beyond a
    curated schema's bounds stops the run."""
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    tune: AnyTune | None = None
    """Search for better values of `model` and `train` before the training; default: no search."""
    evaluate: EvaluateSettings = EvaluateSettings()
    optimize: OptimizeSettings | None = None
    """Make the model smaller and faster: docs/optimize.md. Default: it stays as it is."""
    certificate: AnyCertificate = CertificateSettings()
    """Ask a blessed model for golden rows by every way before it is pushed; `false`: do not."""
    push: PushSettings = PushSettings()
    beam: BeamSettings = BeamSettings()
    schedule: ScheduleSettings | None = None
    """When to retrain, on which spans, and what to keep."""
    drift: DriftSettings = DriftSettings()
    requests: RequestSettings = RequestSettings()
    log: LogSettings = LogSettings()
    """What is written down of the requests that the model answers."""
    skew: SkewSettings = SkewSettings()
    notify: NotifySettings = NotifySettings()
    metadata: str | None = None
    """Where ML Metadata is kept; default: SQLite in the output folder."""
    kubeflow: KubeflowSettings | None = None
    """How the pipeline runs on Kubeflow Pipelines."""

    @model_validator(mode="after")
    def _has_pictures(self) -> PipelineConfig:
        if FORMATS[self.data.format].holds_images and not self.features:
            # Values do not change any more once this is over.
            object.__setattr__(self, "features", {IMAGE_FEATURE: ImageFeature(type="image")})
        return self

    @property
    def task(self) -> Task:
        """What the label is."""
        return self.target.label_kind

    @property
    def family(self) -> Family:
        """That of the task."""
        return family_of(self.target)

    @property
    def schedule_or_default(self) -> ScheduleSettings:
        """The schedule; without one the latest span is trained on."""
        return self.schedule or ScheduleSettings()

    @property
    def while_training(self) -> WhileTraining:
        """The part of `optimize` that the Trainer is told."""
        told = self.optimize or WhileTraining()
        return WhileTraining(prune=told.prune, quantize=told.quantize)

    def columns_of(self, *kinds: type[Settings]) -> list[str]:
        """The columns that `features` declares to be of one of the kinds, in its order."""
        return [name for name, feature in self.features.items() if isinstance(feature, kinds)]

    @property
    def dates_to_split_by(self) -> dict[str, str | None] | None:
        """Declared columns that may date the rows, with their format, where a split may be by time.

        None where the config says what it is by, `order_by: null` included.
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
        """The columns of pictures whose size follows from the data."""
        features = self.features.items()
        return [n for n, f in features if isinstance(f, ImageFeature) and f.size is None]

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's code, by the key that names each."""
        preprocessing = {"preprocessing": self.preprocessing} if self.preprocessing else {}
        named = self.family.code.items()
        family = {key: path for key, path in named if path.partition(".")[0] not in PACKAGES}
        return preprocessing | family | self.trainer_settings.own_code | self.evaluate.own_code

    @property
    def given_settings(self) -> dict[str, Any]:
        """The same part without what the file leaves out, which follows from the model's kind."""

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
        """The part that Transform and Trainer are told."""
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
