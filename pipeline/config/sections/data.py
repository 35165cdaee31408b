"""The sections `data` and `beam`: where the data is, and how it is split and read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from components.example_gen.builtin import BUILTIN_DATA
from components.example_gen.formats import (
    FORMATS,
    IMAGE_FEATURE,
    CsvSettings,
    DataFormat,
    LabelsSettings,
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
from trainer_module.settings import (
    Feature,
    ImageFeature,
    Settings,
)
from trainer_module.settings.tasks import BaseTask, LearningTask

TRAIN_SPLIT = "train"
EVAL_SPLIT = "eval"
BUILTIN_PREFIX = "builtin:"


class DataSettings(Settings):
    """The location of the data, and how it is split."""

    format: DataFormat
    path: str = Field(min_length=1)
    """A file, folder or glob, local or gs://, relative to the working directory. `{SPAN}`,
    `{VERSION}`, `{YYYY}{MM}{DD}` and `{HH}` match spans, of which the latest is read.
    `builtin:digits`, `builtin:reviews` and `builtin:taxi` are shipped data. For reinforcement
    learning: `gymnasium:CartPole-v1`, or the import path of your function that returns an
    environment.
    """
    label: str = Field(default="label", min_length=1)
    """The column to predict. For images in folders, the label is the folder's name."""
    weight: str | None = None
    """A column with a weight for each example in the loss and the metrics. The weight is not a
    feature, and requests to the served model do not contain it.
    """
    splits: dict[str, int | str] = {TRAIN_SPLIT: 8, EVAL_SPLIT: 2}
    """Hash buckets per split (8 and 2: 80 % and 20 %), or a glob per split below `path`."""
    split_by: str | None = None
    """A column, such as a customer's id, whose equal values go to the same split, even if other
    columns change; default: a hash of the whole record decides.
    """
    csv: CsvSettings = CsvSettings()
    """The dialect of CSV files, where it cannot be detected from the files."""
    stratify: bool = False
    """Whether to split each class of the label in proportion; a class with one row goes to
    train.
    """
    order_by: str | None = None
    """A column of numbers, or of dates and times (ISO 8601), that orders the rows: the oldest go to
    train, the newest to the last split; equal values stay together. `null` requests a random split
    even if the rows have dates.
    """
    on_bad_file: OnBadFile = OnBadFile.FAIL
    """Whether a broken picture ends the run, or is left out and named in a note; if a row names
    the picture by path, the row is left out as well.
    """
    max_pixels: PositiveInt = DATA_PIXELS
    """The most pixels that a picture may have according to its header; a larger picture counts as
    broken, as decoding it would take gigabytes of memory.
    """
    unlabelled: Unlabelled = Unlabelled.FAIL
    """Whether a row without a label ends the run, or is left out and counted. With `labels`, rows
    without a label are left out unless this key is `fail`.
    """
    episodes: PositiveInt | None = None
    """The number of episodes to collect from an environment, for offline training; default: the
    policy learns while it acts.
    """
    policy: str | None = Field(default=None, min_length=1)
    """The policy that acts in the collected episodes of an environment: the folder of a pushed
    policy, or `random`, the default.
    """
    labels: LabelsSettings | None = None
    """Labels in files of their own, joined to the rows by a key; default: a column `label` of the
    data.
    """

    @property
    def source(self) -> dict[str, Any]:
        """The settings of data without files, for the code of the task's family."""
        return self.model_dump(mode="json", include={"path", "episodes", "policy"})


class BeamSettings(Settings):
    """How Apache Beam runs the data components."""

    args: list[str] = []
    """Beam pipeline options, such as `--runner=FlinkRunner`; default: on this machine."""
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """The most processes that share the work of a data component on this machine. `auto` starts one
    process for each 32 MB of input, limited by the number of files, cores and memory.
    """


NO_SPAN = -1
"""The span number of data without spans."""

_EPOCH = datetime(1970, 1, 1)
_HOUR_FORMAT = "%Y-%m-%dT%H"


class SpanKind(Enum):
    """The kind of span that data comes in; the value describes it in messages."""

    NUMBER = "a number"
    DAY = "a date, such as 2026-01-05"
    HOUR = "an hour, such as 2026-01-05T08"

    @property
    def is_dated(self) -> bool:
        """Whether spans are days or hours."""
        return self is not SpanKind.NUMBER

    def show(self, number: int) -> str:
        """Returns a span's number as messages show it."""
        if self is SpanKind.HOUR:
            return (_EPOCH + timedelta(hours=number)).strftime(_HOUR_FORMAT)
        if self is SpanKind.DAY:
            return (_EPOCH + timedelta(days=number)).date().isoformat()
        return str(number)

    def parse(self, text: str) -> int:
        """Returns the number of a span from its shown form; raises ValueError for other texts."""
        if self is SpanKind.HOUR:
            return (datetime.strptime(text, _HOUR_FORMAT) - _EPOCH) // timedelta(hours=1)
        return self.first(date.fromisoformat(text)) if self is SpanKind.DAY else int(text)

    def first(self, day: date) -> int:
        """Returns the number of the first span of a day, for spans with dates."""
        days = (day - _EPOCH.date()).days
        return days * HOURS_A_DAY if self is SpanKind.HOUR else days


def has_spans(data: DataSettings) -> bool:
    """Returns whether the data comes in spans."""
    return any(map(is_span_pattern, span_patterns(data)))


def span_kind(data: DataSettings) -> SpanKind:
    """Returns the kind of the data's spans; a number for data without spans."""
    patterns = span_patterns(data)
    if any(map(is_hourly, patterns)):
        return SpanKind.HOUR
    return SpanKind.DAY if any(map(is_dated, patterns)) else SpanKind.NUMBER


def span_patterns(data: DataSettings) -> list[str]:
    """Returns the patterns that may name spans: the path, and the globs of splits."""
    return [data.path, *(split for split in data.splits.values() if isinstance(split, str))]


def data_is_in_files(data: DataSettings, target: LearningTask) -> Iterator[Issue]:
    """Checks that supervised data is in files, as a label is a column of a file."""
    if not FORMATS[data.format].has_files:
        suitable = enumerate_names((n for n, f in FORMATS.items() if f.has_files), "or")
        yield Issue(
            "data.format",
            f"found {data.format!r}, which has no labels; task {target.kind} needs {suitable}",
        )


def episodes_are_of_an_environment(data: DataSettings, target: LearningTask) -> Iterator[Issue]:
    """Checks that episodes and policies are given only for environments."""
    if data.format == "environment" and not family_of(target).has_label:
        return
    for key in ("episodes", "policy"):
        if getattr(data, key) is not None:
            yield Issue(f"data.{key}", "only data of an environment has this key; leave it out")


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
    """Checks that the policy that acts is a pushed model."""
    policy = data.policy
    if policy is None or policy == "random" or is_remote(policy):
        return
    if not (Path(policy) / "saved_model.pb").is_file():
        yield Issue(
            "data.policy",
            f"found {policy!r}, which is not the folder of a pushed version; right is a folder "
            "such as output/NAME/serving/NAME/1795396366, or random",
        )


def builtin_data_is_known(data: DataSettings) -> Iterator[Issue]:
    """Checks that `builtin:` names shipped data, in its format."""
    if not data.path.startswith(BUILTIN_PREFIX):
        return
    name = data.path.removeprefix(BUILTIN_PREFIX)
    if name not in BUILTIN_DATA:
        yield Issue(
            "data.path",
            f"found {name!r}, which is not shipped data; {near_match(name, BUILTIN_DATA)}",
        )
    elif data.format != BUILTIN_DATA[name].format:
        yield Issue(
            "data.format",
            f"found {data.format!r}; builtin:{name} is {BUILTIN_DATA[name].format}",
        )


def csv_is_the_format(data: DataSettings) -> Iterator[Issue]:
    """Checks that a CSV dialect is given only for CSV files, of data or of labels."""
    if data.format == "csv" or data.csv == CsvSettings():
        return
    if data.labels is None:
        yield Issue(
            "data.csv",
            f"the format is {data.format}; remove this key, unless files of `data.labels` are CSV",
        )


def splits_hold_train_and_eval(data: DataSettings) -> Iterator[Issue]:
    """Checks that there is a split for training and one for evaluation."""
    for split in (TRAIN_SPLIT, EVAL_SPLIT):
        if split not in data.splits:
            found = ", ".join(data.splits)
            yield Issue("data.splits", f"found {found}; a split called `{split}` is missing")


def splits_are_of_one_kind(data: DataSettings) -> Iterator[Issue]:
    """Checks that all splits are hash buckets, or all are globs."""
    splits = data.splits
    if len({type(value) for value in splits.values()}) > 1:
        yield Issue(
            "data.splits",
            f"found {splits}; give every split a number of hash buckets, or every split a glob",
        )
    for name, value in splits.items():
        if isinstance(value, int) and value < 1:
            yield Issue(f"data.splits.{name}", f"found {value}; a split has at least 1 bucket")


def split_by_has_buckets(data: DataSettings) -> Iterator[Issue]:
    """Checks that `split_by` comes with hash buckets: only they depend on a column."""
    if data.split_by and any(isinstance(v, str) for v in data.splits.values()):
        yield Issue(
            "data.split_by",
            f"found {data.split_by!r}, but the splits are globs; give every split a number "
            "of hash buckets",
        )


def rows_are_split_in_one_way(data: DataSettings, label_task: BaseTask) -> Iterator[Issue]:
    """Checks that only one key decides how rows are split, and that it fits the data."""
    chosen = [key for key in ("split_by", "stratify", "order_by") if getattr(data, key)]
    for key in chosen[1:]:
        yield Issue(
            f"data.{key}", f"it cannot be combined with data.{chosen[0]}; leave one of them out"
        )
    if any(isinstance(share, str) for share in data.splits.values()):
        for key in {"stratify", "order_by"}.intersection(chosen):
            yield Issue(
                f"data.{key}", "the splits are globs; give every split a number of hash buckets"
            )
    if data.stratify and not label_task.label_kind.is_classification:
        yield Issue("data.stratify", f"found true, but task {label_task.kind} has no classes")
    if data.order_by and FORMATS[data.format].holds_images:
        yield Issue(
            "data.order_by", f"found {data.order_by!r}, but {data.format} data has no such column"
        )


def skipped_files_are_examples(data: DataSettings, features: dict[str, Feature]) -> Iterator[Issue]:
    """Checks that `on_bad_file: skip` is given for pictures only: a bad file of rows ends the
    run.
    """
    if data.on_bad_file is not OnBadFile.SKIP or FORMATS[data.format].has_file_per_example:
        return
    if not any(isinstance(f, ImageFeature) and f.origin == "path" for f in features.values()):
        suitable = enumerate_names((n for n, f in FORMATS.items() if f.has_file_per_example), "and")
        yield Issue(
            "data.on_bad_file",
            f"found 'skip'; a {data.format} file contains many rows, so a broken one ends the "
            f"run; skip is for {suitable}, and for pictures that a column names (from: path)",
        )


def joined_labels_are_of_tables(data: DataSettings) -> Iterator[Issue]:
    """Checks that labels in files of their own join rows of tables, by a column other than the
    label.
    """
    if data.labels is None:
        return
    if FORMATS[data.format].first_look != FORMATS["csv"].first_look:
        suitable = enumerate_names((n for n, f in FORMATS.items() if f.names_pictures), "and")
        yield Issue("data.labels", f"found {data.format} data; labels are joined to {suitable}")
    if data.labels.key == data.label:
        yield Issue(
            "data.labels.key", f"found {data.label!r}, which is the label; name another column"
        )
    path = data.labels.path
    if is_remote(path) or "{" in path:
        yield Issue(
            "data.labels.path",
            f"found {path!r}; right is a local file, folder or glob, without spans: the rows of "
            "each span are joined with the labels of all files",
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
            yield Issue(f"features.{name}", f"it uses {label!r}, which is the label; leave it out")


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
        found = f"found {weight!r}, but {data.format} data has no columns; leave it out"
        yield Issue("data.weight", found)


def image_is_the_only_feature(data: DataSettings, features: dict[str, Feature]) -> Iterator[Issue]:
    """Checks that image data has exactly one feature, `image`."""
    if not FORMATS[data.format].holds_images:
        return
    for name in features:
        if name != IMAGE_FEATURE:
            yield Issue(
                f"features.{name}",
                f"{data.format} data has only the feature `{IMAGE_FEATURE}`",
            )
    if not isinstance(features.get(IMAGE_FEATURE), ImageFeature):
        yield Issue(
            f"features.{IMAGE_FEATURE}",
            f"{data.format} data consists of pictures; leave all features out, or declare this "
            "one, such as {type: image, height: 28, width: 28, channels: 1}",
        )


def pictures_of_tables_have_files(
    data: DataSettings, features: dict[str, Feature]
) -> Iterator[Issue]:
    """Checks that text tables name pictures by path, and that tf.Examples contain them."""
    spec = FORMATS[data.format]
    for name, feature in features.items():
        if not isinstance(feature, ImageFeature):
            continue
        if feature.origin == "path" and not spec.names_pictures:
            suitable = enumerate_names((n for n, f in FORMATS.items() if f.names_pictures), "and")
            yield Issue(
                f"features.{name}.from",
                f"found 'path', but {data.format} data consists of pictures; leave it out. Paths "
                f"are for {suitable}",
            )
        elif feature.origin != "path" and not spec.holds_bytes:
            yield Issue(
                f"features.{name}",
                f"{data.format} files contain no encoded pictures; if the column contains paths "
                "of pictures, add from: path",
            )


def picture_folders_exist(data: DataSettings, features: dict[str, Feature]) -> Iterator[Issue]:
    """Checks that local folders of pictures exist."""
    for name, feature in features.items():
        folder = feature.folder if isinstance(feature, ImageFeature) else None
        if folder and not is_remote(folder) and not Path(folder).is_dir():
            sibling = Path(data.path).parent / folder
            hint = f"; did you mean {str(sibling)!r}?" if sibling.is_dir() else f" in {Path.cwd()}"
            found = f"found {folder!r}; there is no such folder{hint}"
            yield Issue(f"features.{name}.folder", found)


def image_folders_hold_classes(data: DataSettings, label_task: BaseTask) -> Iterator[Issue]:
    """Checks that images in folders have a classification task: a folder's name is a class."""
    if FORMATS[data.format].holds_images and not label_task.label_kind.is_classification:
        found = f"found {label_task.kind!r}; {data.format} data has classes as labels"
        yield Issue("task", found)


def schema_exists(schema_file: str | None) -> Iterator[Issue]:
    """Checks that the file of a curated schema exists."""
    path = schema_file
    if path is not None and not is_remote(path) and not Path(path).is_file():
        yield Issue("schema", f"found {path!r}; there is no such file")


DATA_RULES = rules_of(__name__)


def workers_are_of_this_machine(beam: BeamSettings) -> Iterator[Issue]:
    """Checks that `workers` is not given beside Beam options, which set the number of workers."""
    if beam.args and "workers" in beam.model_fields_set:
        yield Issue(
            "beam.workers",
            f"found {beam.workers}, but beam.args choose the runner: leave beam.args out to use "
            "the cores of this machine, or add the runner's own option to beam.args, such as "
            "Flink's --parallelism=4",
        )


BEAM_RULES = (workers_are_of_this_machine,)
