"""What has to hold between `data`, `schema` and the rest of a config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from components.example_gen.builtin import BUILTIN_DATA
from components.example_gen.csv_settings import CsvSettings
from components.example_gen.formats import FORMATS, IMAGE_FEATURE, OnBadFile
from components.example_gen.label_settings import find_label_files
from components.example_gen.paths import is_remote
from pipeline.config.issues import Issue, near_match
from pipeline.config.settings import (
    BUILTIN_PREFIX,
    EVAL_SPLIT,
    TRAIN_SPLIT,
    PipelineConfig,
)
from trainer_module.errors import DataError, enumerate_names
from trainer_module.settings import ImageFeature


def path_exists(config: PipelineConfig) -> Iterator[Issue]:
    """A local path without wildcards has to be there; others are looked at by ExampleGen."""
    path = config.data.path
    if path.startswith(BUILTIN_PREFIX) or is_remote(path) or any(c in path for c in "*?[{"):
        return
    if not Path(path).exists():
        folder = Path(path).parent
        names = [str(p) for p in folder.iterdir()] if folder.is_dir() else []
        hint = f"; {near_match(path, names)}" if 0 < len(names) <= 20 else ""
        yield Issue("data.path", f"found {path!r}; there is no such file or folder{hint}")


def builtin_data_is_known(config: PipelineConfig) -> Iterator[Issue]:
    """`builtin:` names shipped data, each of one format."""
    if not config.data.path.startswith(BUILTIN_PREFIX):
        return
    name = config.data.path.removeprefix(BUILTIN_PREFIX)
    if name not in BUILTIN_DATA:
        yield Issue(
            "data.path", f"found {name!r} as shipped data; {near_match(name, BUILTIN_DATA)}"
        )
    elif config.data.format != BUILTIN_DATA[name].format:
        yield Issue(
            "data.format",
            f"found {config.data.format!r}; builtin:{name} is {BUILTIN_DATA[name].format}",
        )


def csv_is_the_format(config: PipelineConfig) -> Iterator[Issue]:
    """How CSV files are written matters for them alone, which files of labels may be as well."""
    data = config.data
    if data.format == "csv" or data.csv == CsvSettings():
        return
    if data.labels is None:
        yield Issue(
            "data.csv",
            f"the format is {data.format}; remove this key, unless files of `data.labels` are CSV",
        )


def splits_hold_train_and_eval(config: PipelineConfig) -> Iterator[Issue]:
    """Training and evaluation need a split each."""
    for split in (TRAIN_SPLIT, EVAL_SPLIT):
        if split not in config.data.splits:
            found = ", ".join(config.data.splits)
            yield Issue("data.splits", f"found {found}; a split called `{split}` is missing")


def splits_are_of_one_kind(config: PipelineConfig) -> Iterator[Issue]:
    """Hash buckets divide one set of files; globs name several: never both."""
    splits = config.data.splits
    if len({type(value) for value in splits.values()}) > 1:
        yield Issue(
            "data.splits",
            f"found {splits}; give every split a number of hash buckets, or every split a glob",
        )
    for name, value in splits.items():
        if isinstance(value, int) and value < 1:
            yield Issue(f"data.splits.{name}", f"found {value}; a split has at least 1 bucket")


def split_by_has_buckets(config: PipelineConfig) -> Iterator[Issue]:
    """Only hash buckets are filled by a column's value."""
    if config.data.split_by and any(isinstance(v, str) for v in config.data.splits.values()):
        yield Issue(
            "data.split_by",
            f"found {config.data.split_by!r}, but the splits are globs; give every split a number "
            "of hash buckets",
        )


def rows_are_split_in_one_way(config: PipelineConfig) -> Iterator[Issue]:
    """What decides about a row is its hash, a column's, its class or its time."""
    data = config.data
    chosen = [key for key in ("split_by", "stratify", "order_by") if getattr(data, key)]
    for key in chosen[1:]:
        yield Issue(f"data.{key}", f"it excludes data.{chosen[0]}; leave one of them out")
    if any(isinstance(share, str) for share in data.splits.values()):
        for key in {"stratify", "order_by"}.intersection(chosen):
            yield Issue(
                f"data.{key}", "the splits are globs; give every split a number of hash buckets"
            )
    if data.stratify and not config.task.is_classification:
        yield Issue("data.stratify", f"found true, but task {config.target.kind} has no classes")
    if data.order_by and FORMATS[data.format].holds_images:
        yield Issue(
            "data.order_by", f"found {data.order_by!r}, but {data.format} data has no such column"
        )


def files_left_out_are_examples(config: PipelineConfig) -> Iterator[Issue]:
    """A file that holds many rows is mended, as a hole in a table is no accident."""
    data, features = config.data, config.features.values()
    if data.on_bad_file is not OnBadFile.SKIP or FORMATS[data.format].has_file_per_example:
        return
    if not any(isinstance(f, ImageFeature) and f.origin == "path" for f in features):
        able = enumerate_names((n for n, f in FORMATS.items() if f.has_file_per_example), "and")
        yield Issue(
            "data.on_bad_file",
            f"found 'skip'; of {data.format} data a broken file ends the run, as it holds many "
            f"rows; skip is for {able}, and for pictures that a column names (from: path)",
        )


def labels_of_others_are_of_tables(config: PipelineConfig) -> Iterator[Issue]:
    """Labels in files of their own are joined to rows, by a column that is not the label."""
    data = config.data
    if data.labels is None:
        return
    if FORMATS[data.format].first_look != FORMATS["csv"].first_look:
        able = enumerate_names((n for n, f in FORMATS.items() if f.names_pictures), "and")
        yield Issue("data.labels", f"found {data.format} data; labels are joined to {able}")
    if data.labels.key == data.label:
        yield Issue("data.labels.key", f"found {data.label!r}, which is the label; name another")
    path = data.labels.path
    if is_remote(path) or "{" in path:
        yield Issue(
            "data.labels.path",
            f"found {path!r}; right is a local file, folder or glob, without spans: each span's "
            "rows look for their labels in all of them",
        )


def labels_exist(config: PipelineConfig) -> Iterator[Issue]:
    """Files of labels have to be there."""
    labels = config.data.labels
    if labels is not None and not is_remote(labels.path) and "{" not in labels.path:
        try:
            find_label_files(labels.path)
        except DataError as error:
            yield Issue("data.labels.path", str(error).removeprefix("data.labels.path: "))


def label_is_no_feature(config: PipelineConfig) -> Iterator[Issue]:
    """The label follows from the task; it cannot be an input."""
    label = config.data.label
    for name, feature in config.features.items():
        if name == label:
            yield Issue(f"features.{label}", "the label cannot be a feature; remove this key")
        elif label in feature.columns_of(name):
            yield Issue(f"features.{name}", f"it uses {label!r}, which is the label; leave it out")


def weight_is_a_column_of_its_own(config: PipelineConfig) -> Iterator[Issue]:
    """A weight is neither what is learnt nor what it is learnt from."""
    weight = config.data.weight
    if weight is None:
        return
    if weight == config.data.label:
        yield Issue("data.weight", f"found {weight!r}, which is the label; name another column")
    if weight in config.features:
        yield Issue(f"features.{weight}", "the weight cannot be a feature; remove this key")
    if FORMATS[config.data.format].holds_images:
        found = f"found {weight!r}, but {config.data.format} data has no columns; leave it out"
        yield Issue("data.weight", found)


def pictures_are_the_one_feature(config: PipelineConfig) -> Iterator[Issue]:
    """Image data has one feature, `image`."""
    if not FORMATS[config.data.format].holds_images:
        return
    for name in config.features:
        if name != IMAGE_FEATURE:
            yield Issue(
                f"features.{name}",
                f"{config.data.format} data has the one feature `{IMAGE_FEATURE}`",
            )
    if not isinstance(config.features.get(IMAGE_FEATURE), ImageFeature):
        yield Issue(
            f"features.{IMAGE_FEATURE}",
            f"{config.data.format} data holds pictures; leave all features out, or give this one, "
            "such as {type: image, height: 28, width: 28, channels: 1}",
        )


def pictures_of_tables_have_files(config: PipelineConfig) -> Iterator[Issue]:
    """A table of text can only name its pictures; a file of tf.Examples holds them."""
    spec = FORMATS[config.data.format]
    for name, feature in config.features.items():
        if not isinstance(feature, ImageFeature):
            continue
        if feature.origin == "path" and not spec.names_pictures:
            able = enumerate_names((n for n, f in FORMATS.items() if f.names_pictures), "and")
            yield Issue(
                f"features.{name}.from",
                f"found 'path', but {config.data.format} data holds pictures; leave it out. Paths "
                f"are for {able}",
            )
        elif feature.origin != "path" and not spec.holds_bytes:
            yield Issue(
                f"features.{name}",
                f"{config.data.format} files hold no encoded pictures, but may name their files; "
                "add from: path",
            )


def picture_folders_exist(config: PipelineConfig) -> Iterator[Issue]:
    """A local folder of pictures has to be there."""
    for name, feature in config.features.items():
        folder = feature.folder if isinstance(feature, ImageFeature) else None
        if folder and not is_remote(folder) and not Path(folder).is_dir():
            beside = Path(config.data.path).parent / folder
            hint = f"; did you mean {str(beside)!r}?" if beside.is_dir() else f" in {Path.cwd()}"
            found = f"found {folder!r}; there is no such folder{hint}"
            yield Issue(f"features.{name}.folder", found)


def image_folders_hold_classes(config: PipelineConfig) -> Iterator[Issue]:
    """A folder's name is a class, never a number to regress to."""
    if FORMATS[config.data.format].holds_images and not config.task.is_classification:
        found = f"found {config.target.kind!r}; {config.data.format} data has classes as labels"
        yield Issue("task", found)


def schema_exists(config: PipelineConfig) -> Iterator[Issue]:
    """A curated schema has to be a file."""
    path = config.schema_file
    if path is not None and not is_remote(path) and not Path(path).is_file():
        yield Issue("schema", f"found {path!r}; there is no such file")


DATA_RULES = (
    path_exists,
    builtin_data_is_known,
    csv_is_the_format,
    splits_hold_train_and_eval,
    splits_are_of_one_kind,
    split_by_has_buckets,
    rows_are_split_in_one_way,
    files_left_out_are_examples,
    labels_of_others_are_of_tables,
    labels_exist,
    label_is_no_feature,
    weight_is_a_column_of_its_own,
    pictures_are_the_one_feature,
    pictures_of_tables_have_files,
    picture_folders_exist,
    image_folders_hold_classes,
    schema_exists,
)
"""All rules of this module."""
