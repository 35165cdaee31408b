"""What has to hold between the values of a config: one small registered function per rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from components.example_gen.builtin import BUILTIN_DATA
from components.example_gen.csv_settings import CsvSettings
from components.example_gen.formats import FORMATS, IMAGE_FEATURE, OnBadFile
from components.example_gen.paths import is_remote
from pipeline.config.issues import Issue, near_match
from pipeline.config.metadata_url import parse_metadata_url
from pipeline.config.metrics import is_own
from pipeline.config.schedule_rules import SCHEDULE_RULES
from pipeline.config.settings import (
    BUILTIN_PREFIX,
    EVAL_SPLIT,
    TRAIN_SPLIT,
    Approve,
    PipelineConfig,
)
from pipeline.config.train_rules import TRAIN_RULES
from pipeline.config.user_code.import_paths import check_import_path
from trainer_module.errors import enumerate_names
from trainer_module.models import AUTO, ZOO, ModelSpec, undemanding_models
from trainer_module.settings import ImageFeature, Task

Rule = Callable[[PipelineConfig], Iterator[Issue]]
_RULES: list[Rule] = [*SCHEDULE_RULES, *TRAIN_RULES]


def check_rules(config: PipelineConfig, looks_at_files: bool = True) -> Iterator[Issue]:
    """All problems that the registered rules find.

    Args:
      config: values that are fine one by one.
      looks_at_files: whether the pipeline runs on this machine, with its files.
    """
    for rule in _RULES:
        if looks_at_files or rule not in (path_exists, schema_exists):
            yield from rule(config)


def _rule(function: Rule) -> Rule:
    _RULES.append(function)
    return function


@_rule
def splits_hold_train_and_eval(config: PipelineConfig) -> Iterator[Issue]:
    """Training and evaluation need a split each."""
    for split in (TRAIN_SPLIT, EVAL_SPLIT):
        if split not in config.data.splits:
            found = ", ".join(config.data.splits)
            yield Issue("data.splits", f"found {found}; a split called `{split}` is missing")


@_rule
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


@_rule
def split_by_has_buckets(config: PipelineConfig) -> Iterator[Issue]:
    """Only hash buckets are filled by a column's value."""
    if config.data.split_by and any(isinstance(v, str) for v in config.data.splits.values()):
        yield Issue(
            "data.split_by",
            f"found {config.data.split_by!r}, but the splits are globs; give every split a number "
            "of hash buckets",
        )


@_rule
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


@_rule
def files_left_out_are_examples(config: PipelineConfig) -> Iterator[Issue]:
    """A file that holds many rows is mended, as a hole in a table is no accident."""
    data = config.data
    if data.on_bad_file is OnBadFile.SKIP and not FORMATS[data.format].has_file_per_example:
        able = enumerate_names((n for n, f in FORMATS.items() if f.has_file_per_example), "and")
        yield Issue(
            "data.on_bad_file",
            f"found 'skip'; of {data.format} data a broken file ends the run, as it holds many "
            f"rows; skip is for {able}",
        )


@_rule
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


@_rule
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


@_rule
def csv_is_the_format(config: PipelineConfig) -> Iterator[Issue]:
    """How CSV files are written matters for them alone."""
    if config.data.format != "csv" and config.data.csv != CsvSettings():
        yield Issue("data.csv", f"the format is {config.data.format}; remove this key")


@_rule
def label_is_no_feature(config: PipelineConfig) -> Iterator[Issue]:
    """The label follows from the task; it cannot be an input."""
    label = config.data.label
    for name, feature in config.features.items():
        if name == label:
            yield Issue(f"features.{label}", "the label cannot be a feature; remove this key")
        elif label in feature.columns_of(name):
            yield Issue(f"features.{name}", f"it uses {label!r}, which is the label; leave it out")


@_rule
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


@_rule
def images_declare_their_size(config: PipelineConfig) -> Iterator[Issue]:
    """Image data has one feature, `image`, and the model needs its size."""
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
            "images need a size, such as {type: image, height: 28, width: 28, channels: 1}",
        )


@_rule
def image_folders_hold_classes(config: PipelineConfig) -> Iterator[Issue]:
    """A folder's name is a class, never a number to regress to."""
    if FORMATS[config.data.format].holds_images and config.task is Task.REGRESSION:
        found = f"found {config.target.kind!r}; {config.data.format} data has classes as labels"
        yield Issue("task", found)


@_rule
def model_has_the_feature_it_needs(config: PipelineConfig) -> Iterator[Issue]:
    """A model may need a feature of some type, such as an image to slide a convolution over."""
    kind = config.trainer_settings.model.kind
    needs = ZOO[kind].needs if kind in ZOO else ""
    if not needs or config.preprocessing is not None:
        return
    if not any(feature.type == needs for feature in config.features.values()):
        article = "an" if needs[0] in "aeiou" else "a"
        others = enumerate_names(undemanding_models(), "and")
        yield Issue(
            "model.kind", f"found {kind!r}, but no feature is {article} {needs}; {others} need none"
        )


@_rule
def model_can_do_what_is_asked(config: PipelineConfig) -> Iterator[Issue]:
    """A model may know some tasks alone, and take no feature of some type, as trees no pixels."""
    kind = config.model.kind
    spec = ZOO.get(kind, ModelSpec(""))
    types = {feature.type for feature in config.features.values()}
    others = {n: s for n, s in ZOO.items() if not s.needs or s.needs in types}
    for name, feature in config.features.items():
        if feature.type == spec.refuses and config.preprocessing is None:
            able = enumerate_names((n for n, s in others.items() if s.refuses not in types), "or")
            yield Issue(
                "model.kind",
                f"found {kind!r}, which takes no {spec.refuses}, and feature {name!r} is one; use "
                f"{able}",
            )
    plain = not config.target.has_options
    if spec.tasks and not (plain and config.target.kind in spec.tasks):
        able = enumerate_names((n for n, s in others.items() if not s.tasks), "or")
        yield Issue(
            "task",
            f"found {config.target.kind}{'' if plain else ' with options'}, but {kind} know "
            f"{enumerate_names(spec.tasks, 'and')} alone, without options; use the model {able}",
        )


@_rule
def metadata_names_a_database(config: PipelineConfig) -> Iterator[Issue]:
    """A server's URL names user, host and database, and keeps the password to itself."""
    if config.metadata is not None:
        try:
            parse_metadata_url(config.metadata)
        except ValueError as error:
            yield Issue("metadata", str(error))


@_rule
def metrics_fit_the_task(config: PipelineConfig) -> Iterator[Issue]:
    """Every metric that is named has to be one of the task's."""
    known = config.target.metrics()
    named = {f"evaluate.metrics.{i}": m for i, m in enumerate(config.evaluate.metrics)}
    named |= {f"evaluate.thresholds.{m}": m for m in config.evaluate.thresholds}
    for path, metric in named.items():
        if metric not in known and not is_own(metric):
            yield Issue(
                path,
                f"{metric!r} is no metric for {config.target.kind}; {near_match(metric, known)} "
                "A metric of yours is an import path, such as my_metrics.Cost",
            )


@_rule
def thresholds_leave_room(config: PipelineConfig) -> Iterator[Issue]:
    """A threshold bounds something, and its bounds do not exclude each other."""
    for name, threshold in config.evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        if threshold.min is None and threshold.max is None and threshold.tolerance == 0:
            yield Issue(path, "it bounds nothing; give it min, max or tolerance")
        elif None not in (threshold.min, threshold.max) and threshold.min > threshold.max:  # type: ignore[operator]
            yield Issue(path, f"min {threshold.min:g} is above max {threshold.max:g}")


@_rule
def tolerances_are_of_what_is_compared(config: PipelineConfig) -> Iterator[Issue]:
    """Some metrics are not held against the model in service."""
    known = config.target.metrics()
    for name, threshold in config.evaluate.thresholds.items():
        if threshold.tolerance and name in known and not known[name].is_compared:
            yield Issue(
                f"evaluate.thresholds.{name}.tolerance",
                f"found {threshold.tolerance:g}, but {name} is not compared with the model in "
                "service; give it min or max",
            )


@_rule
def folds_are_dealt_at_random(config: PipelineConfig) -> Iterator[Issue]:
    """What keeps rows of one customer, or of later days, out of training has to keep them out."""
    for key in ("split_by", "order_by"):
        if config.evaluate.folds and getattr(config.data, key):
            yield Issue(
                "evaluate.folds",
                f"found {config.evaluate.folds}, but data.{key} keeps rows apart that folds would "
                "mix; leave one of them out",
            )


@_rule
def approvals_have_a_folder(config: PipelineConfig) -> Iterator[Issue]:
    """Who approves a model puts it in place whole, which object stores cannot."""
    directory = config.push.directory
    if config.push.approve is Approve.MANUAL and directory is not None and is_remote(directory):
        yield Issue(
            "push.approve",
            f"found 'manual', but push.directory is {directory}, and `approve` pushes to folders "
            "alone; leave it out, or give a folder",
        )


@_rule
def schema_exists(config: PipelineConfig) -> Iterator[Issue]:
    """A curated schema has to be a file."""
    path = config.schema_file
    if path is not None and not is_remote(path) and not Path(path).is_file():
        yield Issue("schema", f"found {path!r}; there is no such file")


@_rule
def import_paths_lead_somewhere(config: PipelineConfig) -> Iterator[Issue]:
    """Code of the user's is found before anything runs, without running it."""
    for key, path in config.own_code.items():
        yield from check_import_path(key, path)
    kind = config.model.kind
    if not config.model.is_custom and kind not in (AUTO, *ZOO):
        yield Issue(
            "model.kind",
            f"found {kind!r}; {near_match(kind, ZOO)} "
            "A builder of yours is an import path, such as my_models.build_model",
        )
