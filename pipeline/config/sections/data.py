"""The sections `data` and `beam`: the location, the split and the reading of the data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PositiveInt

from components.example_gen.builtin import BUILTIN_DATA
from components.example_gen.formats import (
    FORMATS,
    IMAGE_FEATURE,
    CsvSettings,
    DataFormat,
    LabelsSettings,
    LagsSettings,
    OnBadFile,
    Unlabelled,
)
from components.example_gen.paths import (
    HOURS_A_DAY,
    find_label_files,
    is_dated,
    is_hourly,
    is_remote,
    is_span_pattern,
)
from pipeline.config.issues import Issue, near_match, rules_of
from trainer_module.errors import DataError, enumerate_names
from trainer_module.families import family_of
from trainer_module.features.pixels import DATA_PIXELS
from trainer_module.sections import refuse_keys
from trainer_module.settings import (
    Feature,
    ImageFeature,
    Settings,
)
from trainer_module.settings.tasks import BaseTask, LearningTask

TRAIN_SPLIT = "train"
EVAL_SPLIT = "eval"
BUILTIN_PREFIX = "builtin:"


def _as_steps(value: object) -> object:
    return {"steps": value} if isinstance(value, list) else value


AnyLags = Annotated[
    LagsSettings, BeforeValidator(_as_steps, json_schema_input_type=list[int] | LagsSettings)
]


def _refuse_unread_keys(schema: dict[str, Any]) -> None:
    files = [name for name, spec in FORMATS.items() if spec.has_files]
    refuse_keys(schema, files, {"episodes": None, "policy": None}, tag="format")


class DataSettings(Settings):
    """The location and the format of the data, and its split."""

    model_config = ConfigDict(json_schema_extra=_refuse_unread_keys)

    format: DataFormat
    """The format of the files."""
    path: str = Field(min_length=1, examples=["customers.csv", "days/{YYYY}-{MM}-{DD}/*.csv"])
    """A file, folder or glob, local or gs://, relative to the working directory. `{SPAN}`,
    `{VERSION}`, `{YYYY}{MM}{DD}` and `{HH}` match spans; a run reads the newest span.
    `builtin:digits`, `builtin:reviews` and `builtin:taxi` are data sets of Scopeline. For
    reinforcement learning: `gymnasium:CartPole-v1`, or the import path of your function that
    returns an environment.
    """
    label: str = Field(default="label", min_length=1)
    """The column to predict. For images in folders, the label is the folder's name."""
    weight: str | None = None
    """A column with a weight for each example in the loss and the metrics. The weight is not a
    feature, and requests to the served model do not contain it.
    """
    splits: dict[str, int | str] = Field(
        default={TRAIN_SPLIT: 8, EVAL_SPLIT: 2},
        examples=[{TRAIN_SPLIT: 9, EVAL_SPLIT: 1}, {TRAIN_SPLIT: "train/*", EVAL_SPLIT: "test/*"}],
    )
    """The number of hash buckets of each split (8 and 2 mean 80 % and 20 % of the rows), or a glob
    below `path` for each split.
    """
    split_by: str | None = None
    """A column such as a customer's id. All rows with the same value go to the same split. Default:
    a hash of the whole row determines its split.
    """
    csv: CsvSettings = CsvSettings()
    """The dialect of CSV files; default: detected from the files."""
    stratify: bool = False
    """Whether each split has the same share of every class; a class with one row goes to train."""
    order_by: str | None = None
    """A column of numbers, or of dates and times (ISO 8601), by which the rows are split: the
    oldest rows go to train, the newest to the last split, and rows with equal values to the same
    split. `null` requests a random split even if the rows have dates.
    """
    lags: AnyLags | None = None
    """The past labels of a series that become columns, such as `[7, 14, 28]`: docs/features.md.
    Requests must contain these columns. Default: none.
    """
    on_bad_file: OnBadFile = OnBadFile.FAIL
    """The reaction to a broken picture: `fail` ends the run; `skip` leaves the picture out, with
    the row that contains its path, and adds a note.
    """
    max_pixels: PositiveInt = DATA_PIXELS
    """The largest number of pixels of a picture, according to its header; a larger picture counts
    as broken, as its decoding could take gigabytes of memory.
    """
    unlabelled: Unlabelled = Unlabelled.FAIL
    """The reaction to a row without a label: `fail` ends the run; `skip` leaves the row out, and a
    note reports the number of rows. If `labels` is set, the default is `skip`.
    """
    episodes: PositiveInt | None = None
    """The number of episodes to collect from an environment before training; default: the policy
    is trained while it acts.
    """
    policy: str | None = Field(default=None, min_length=1)
    """The policy that acts in the collected episodes: the folder of a pushed policy, or `random`;
    default: `random`.
    """
    labels: LabelsSettings | None = None
    """Separate files of labels, which are joined to the rows by a key; default: the rows contain
    the label.
    """

    @property
    def source(self) -> dict[str, Any]:
        """The settings of data without files, for the code of the task's family."""
        return self.model_dump(mode="json", include={"path", "episodes", "policy"})


class BeamSettings(Settings):
    """How Apache Beam runs the data components."""

    args: list[str] = []
    """Beam pipeline options, such as `--runner=FlinkRunner`; default: Beam runs on this machine."""
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """The largest number of processes that a data component uses on this machine. `auto` starts one
    process for each 32 MB of input, limited by the numbers of files and cores and by memory.
    """


NO_SPAN = -1
"""The span number of data without spans."""

_EPOCH = datetime(1970, 1, 1)
_HOUR_FORMAT = "%Y-%m-%dT%H"


class SpanKind(Enum):
    """The kind of a pipeline's spans; the value is its description in messages."""

    NUMBER = "a number"
    DAY = "a date, such as 2026-01-05"
    HOUR = "an hour, such as 2026-01-05T08"

    @property
    def is_dated(self) -> bool:
        """Whether the spans are days or hours."""
        return self is not SpanKind.NUMBER

    def show(self, number: int) -> str:
        """Returns a span's number, date or hour, for messages."""
        if self is SpanKind.HOUR:
            return (_EPOCH + timedelta(hours=number)).strftime(_HOUR_FORMAT)
        if self is SpanKind.DAY:
            return (_EPOCH + timedelta(days=number)).date().isoformat()
        return str(number)

    def parse(self, text: str) -> int:
        """Returns the number of a span from the result of `show`; raises ValueError if invalid."""
        if self is SpanKind.HOUR:
            return (datetime.strptime(text, _HOUR_FORMAT) - _EPOCH) // timedelta(hours=1)
        return self.first(date.fromisoformat(text)) if self is SpanKind.DAY else int(text)

    def first(self, day: date) -> int:
        """Returns the number of the first span of a day, if the spans are days or hours."""
        days = (day - _EPOCH.date()).days
        return days * HOURS_A_DAY if self is SpanKind.HOUR else days


def has_spans(data: DataSettings) -> bool:
    """Returns whether the data consists of spans."""
    return any(map(is_span_pattern, span_patterns(data)))


def span_kind(data: DataSettings) -> SpanKind:
    """Returns the kind of the data's spans; NUMBER for data without spans."""
    patterns = span_patterns(data)
    if any(map(is_hourly, patterns)):
        return SpanKind.HOUR
    return SpanKind.DAY if any(map(is_dated, patterns)) else SpanKind.NUMBER


def span_patterns(data: DataSettings) -> list[str]:
    """Returns the path and the globs of splits, in which placeholders of spans may be."""
    return [data.path, *(split for split in data.splits.values() if isinstance(split, str))]


def data_is_in_files(data: DataSettings, target: LearningTask) -> Iterator[Issue]:
    """Checks that supervised data is in files, as a label is a column of a file."""
    if not FORMATS[data.format].has_files:
        suitable = enumerate_names((n for n, f in FORMATS.items() if f.has_files), "or")
        yield Issue(
            "data.format",
            f"found {data.format!r}, which has no labels; `task: {target.kind}` needs {suitable}",
        )


def episodes_are_of_an_environment(data: DataSettings, target: LearningTask) -> Iterator[Issue]:
    """Checks that only data of an environment has episodes and a policy."""
    if data.format == "environment" and not family_of(target).has_label:
        return
    for key in ("episodes", "policy"):
        if getattr(data, key) is not None:
            yield Issue(f"data.{key}", "only `data.format: environment` has this key; remove it")


def path_exists(data: DataSettings) -> Iterator[Issue]:
    """Checks that a local path without wildcards exists; ExampleGen checks other paths."""
    path = data.path
    if not FORMATS[data.format].has_files:
        return
    if path.startswith(BUILTIN_PREFIX) or is_remote(path) or any(c in path for c in "*?[{"):
        return
    if not Path(path).exists():
        folder = Path(path).parent
        names = [str(p) for p in folder.iterdir()] if folder.is_dir() else []
        hint = f"; {near_match(path, names)}" if 0 < len(names) <= 20 else ""
        yield Issue("data.path", f"found {path!r}; there is no such file or folder{hint}")


def policy_exists(data: DataSettings) -> Iterator[Issue]:
    """Checks that the policy is the folder of a pushed version."""
    policy = data.policy
    if policy is None or policy == "random" or is_remote(policy):
        return
    if not (Path(policy) / "saved_model.pb").is_file():
        yield Issue(
            "data.policy",
            f"found {policy!r}, which is not the folder of a pushed version; expected a folder "
            "such as output/NAME/serving/NAME/1795396366, or random",
        )


def builtin_data_is_known(data: DataSettings) -> Iterator[Issue]:
    """Checks that the name after `builtin:` is a data set of Scopeline, and its format is right."""
    if not data.path.startswith(BUILTIN_PREFIX):
        return
    name = data.path.removeprefix(BUILTIN_PREFIX)
    if name not in BUILTIN_DATA:
        yield Issue(
            "data.path",
            f"found {data.path!r}; there is no data set {name!r}; {near_match(name, BUILTIN_DATA)}",
        )
    elif data.format != BUILTIN_DATA[name].format:
        yield Issue(
            "data.format",
            f"found {data.format!r}; the format of {data.path} is {BUILTIN_DATA[name].format}",
        )


def csv_is_the_format(data: DataSettings) -> Iterator[Issue]:
    """Checks that a CSV dialect is set only for CSV files, of data or of labels."""
    if data.format == "csv" or data.csv == CsvSettings():
        return
    if data.labels is None:
        yield Issue(
            "data.csv",
            f"found options of CSV files, but data.format is {data.format}; remove this key",
        )


def splits_hold_train_and_eval(data: DataSettings) -> Iterator[Issue]:
    """Checks that there are the splits train and eval."""
    for split in (TRAIN_SPLIT, EVAL_SPLIT):
        if split not in data.splits:
            found = ", ".join(data.splits)
            yield Issue("data.splits", f"found {found}; add a split with the name `{split}`")


def splits_are_of_one_kind(data: DataSettings) -> Iterator[Issue]:
    """Checks that all splits are hash buckets, or all are globs."""
    splits = data.splits
    if len({type(value) for value in splits.values()}) > 1:
        yield Issue(
            "data.splits",
            f"found {splits}; expected either a number of hash buckets or a glob for all splits",
        )
    for name, value in splits.items():
        if isinstance(value, int) and value < 1:
            yield Issue(f"data.splits.{name}", f"found {value}; expected at least 1 hash bucket")


def split_by_has_buckets(data: DataSettings) -> Iterator[Issue]:
    """Checks that `split_by` is set only if the splits are hash buckets."""
    if data.split_by and any(isinstance(v, str) for v in data.splits.values()):
        yield Issue(
            "data.split_by",
            f"found {data.split_by!r}, but data.splits has globs; give every split a number of "
            "hash buckets, or remove this key",
        )


def rows_are_split_in_one_way(data: DataSettings, label_task: BaseTask) -> Iterator[Issue]:
    """Checks that only one key determines the split, and that the key fits the data."""
    chosen = [key for key in ("split_by", "stratify", "order_by") if getattr(data, key)]
    for key in chosen[1:]:
        yield Issue(
            f"data.{key}",
            f"this key cannot be combined with data.{chosen[0]}; remove one of the two keys",
        )
    if any(isinstance(share, str) for share in data.splits.values()):
        for key in {"stratify", "order_by"}.intersection(chosen):
            yield Issue(
                f"data.{key}",
                "data.splits has globs; give every split a number of hash buckets, or remove this "
                "key",
            )
    if data.stratify and not label_task.label_kind.is_classification:
        yield Issue("data.stratify", f"found true, but `task: {label_task.kind}` has no classes")
    if data.order_by and FORMATS[data.format].holds_images:
        yield Issue(
            "data.order_by", f"found {data.order_by!r}, but {data.format} data has no such column"
        )


def lags_are_of_series(data: DataSettings, label_task: BaseTask) -> Iterator[Issue]:
    """Checks that past labels are numbers in a table whose rows have an order."""
    if data.lags is None:
        return
    if not data.order_by:
        yield Issue(
            "data.lags",
            "past labels need the column with the time of each row; add data.order_by, such as"
            " order_by: date",
        )
    if label_task.label_kind.is_classification:
        suitable = "regression or count, whose labels are numbers"
        yield Issue("data.lags", f"found `task: {label_task.kind}`; expected {suitable}")
    if FORMATS[data.format].first_look != FORMATS["csv"].first_look:
        suitable = enumerate_names((n for n, f in FORMATS.items() if f.names_pictures), "or")
        yield Issue("data.lags", f"found data.format {data.format}; expected {suitable}")
    if has_spans(data):
        yield Issue(
            "data.lags",
            "found placeholders of spans in data.path; past labels are not read across spans: name"
            " the files of the whole series, such as data/*.csv",
        )
    if {data.label, data.order_by}.intersection(data.lags.key):
        yield Issue(
            "data.lags.key",
            f"found {data.lags.key}; expected columns such as a store, other than the label and"
            " data.order_by",
        )


def skipped_files_are_examples(data: DataSettings, features: dict[str, Feature]) -> Iterator[Issue]:
    """Checks that `on_bad_file: skip` is set for pictures only; a broken file of rows always ends
    the run.
    """
    if data.on_bad_file is not OnBadFile.SKIP or FORMATS[data.format].has_file_per_example:
        return
    if not any(isinstance(f, ImageFeature) and f.origin == "path" for f in features.values()):
        suitable = enumerate_names((n for n, f in FORMATS.items() if f.has_file_per_example), "and")
        yield Issue(
            "data.on_bad_file",
            f"found 'skip', but a broken {data.format} file always ends the run; skip is only for "
            f"data.format {suitable}, and for features with {{type: image, from: path}}",
        )


def joined_labels_are_of_tables(data: DataSettings) -> Iterator[Issue]:
    """Checks that separate files of labels are joined to a table, by a column other than the
    label.
    """
    if data.labels is None:
        return
    if FORMATS[data.format].first_look != FORMATS["csv"].first_look:
        suitable = enumerate_names((n for n, f in FORMATS.items() if f.names_pictures), "and")
        yield Issue(
            "data.labels",
            f"found data.format {data.format}; only {suitable} data can be joined with files of "
            "labels",
        )
    if data.labels.key == data.label:
        yield Issue(
            "data.labels.key", f"found {data.label!r}, which is the label; name another column"
        )
    path = data.labels.path
    if is_remote(path) or "{" in path:
        yield Issue(
            "data.labels.path",
            f"found {path!r}; expected a local file, folder or glob without placeholders of spans, "
            "as the rows of each span are joined with the labels of all files",
        )


def labels_exist(data: DataSettings) -> Iterator[Issue]:
    """Checks that the files of labels exist."""
    labels = data.labels
    if labels is not None and not is_remote(labels.path) and "{" not in labels.path:
        try:
            find_label_files(labels.path)
        except DataError as error:
            yield Issue("data.labels.path", str(error).removeprefix("data.labels.path: "))


def label_is_no_feature(data: DataSettings, features: dict[str, Feature]) -> Iterator[Issue]:
    """Checks that no feature reads the label."""
    label = data.label
    for name, feature in features.items():
        if name == label:
            yield Issue(f"features.{label}", "the label cannot be a feature; remove this key")
        elif label in feature.columns_of(name):
            yield Issue(
                f"features.{name}", f"the feature reads the label {label!r}; remove this key"
            )


def weight_is_a_column_of_its_own(
    data: DataSettings, features: dict[str, Feature]
) -> Iterator[Issue]:
    """Checks that the weight is neither the label nor a feature."""
    weight = data.weight
    if weight is None:
        return
    if weight == data.label:
        yield Issue("data.weight", f"found {weight!r}, which is the label; name another column")
    if weight in features:
        yield Issue(f"features.{weight}", "the weight cannot be a feature; remove this key")
    if FORMATS[data.format].holds_images:
        problem = f"found {weight!r}, but {data.format} data has no columns; remove this key"
        yield Issue("data.weight", problem)


def image_is_the_only_feature(data: DataSettings, features: dict[str, Feature]) -> Iterator[Issue]:
    """Checks that image data has exactly one feature, `image`."""
    if not FORMATS[data.format].holds_images:
        return
    for name in features:
        if name != IMAGE_FEATURE:
            yield Issue(
                f"features.{name}",
                f"{data.format} data has only the feature `{IMAGE_FEATURE}`; remove this key",
            )
    if not isinstance(features.get(IMAGE_FEATURE), ImageFeature):
        yield Issue(
            f"features.{IMAGE_FEATURE}",
            f"{data.format} data consists of pictures; remove `features`, or write "
            f"{IMAGE_FEATURE}: {{type: image, height: 28, width: 28, channels: 1}}",
        )


def pictures_of_tables_have_files(
    data: DataSettings, features: dict[str, Feature]
) -> Iterator[Issue]:
    """Checks that only tables of text contain paths of pictures, and only formats with bytes
    contain encoded pictures.
    """
    spec = FORMATS[data.format]
    for name, feature in features.items():
        if not isinstance(feature, ImageFeature):
            continue
        if feature.origin == "path" and not spec.names_pictures:
            suitable = enumerate_names((n for n, f in FORMATS.items() if f.names_pictures), "and")
            yield Issue(
                f"features.{name}.from",
                f"found 'path', but {data.format} data contains the pictures themselves; remove "
                f"this key, which is only for {suitable}",
            )
        elif feature.origin != "path" and not spec.holds_bytes:
            yield Issue(
                f"features.{name}",
                f"{data.format} files cannot contain encoded pictures; if the column contains "
                "paths of pictures, add from: path",
            )


def picture_folders_exist(data: DataSettings, features: dict[str, Feature]) -> Iterator[Issue]:
    """Checks that local folders of pictures exist."""
    for name, feature in features.items():
        folder = feature.folder if isinstance(feature, ImageFeature) else None
        if folder and not is_remote(folder) and not Path(folder).is_dir():
            sibling = Path(data.path).parent / folder
            hint = f"; did you mean {str(sibling)!r}?" if sibling.is_dir() else f" in {Path.cwd()}"
            problem = f"found {folder!r}; there is no such folder{hint}"
            yield Issue(f"features.{name}.folder", problem)


def image_folders_hold_classes(data: DataSettings, label_task: BaseTask) -> Iterator[Issue]:
    """Checks that the task of image data is classification, as a folder's name is a class."""
    if FORMATS[data.format].holds_images and not label_task.label_kind.is_classification:
        problem = f"found {label_task.kind!r}, but the labels of {data.format} data are classes"
        yield Issue("task", problem)


def schema_exists(schema_file: str | None) -> Iterator[Issue]:
    """Checks that the user's schema file exists."""
    path = schema_file
    if path is not None and not is_remote(path) and not Path(path).is_file():
        yield Issue("schema", f"found {path!r}; there is no such file")


DATA_RULES = rules_of(__name__)


def workers_are_of_this_machine(beam: BeamSettings) -> Iterator[Issue]:
    """Checks that `workers` is not set together with `args`, which choose the runner."""
    if beam.args and "workers" in beam.model_fields_set:
        yield Issue(
            "beam.workers",
            f"found {beam.workers}, but beam.args chooses the runner; remove beam.args to use the "
            "cores of this machine, or remove this key and add the runner's own option to "
            "beam.args, such as Flink's --parallelism=4",
        )


BEAM_RULES = (workers_are_of_this_machine,)
