"""What has to hold between the values of a config: one small registered function per rule."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from components.example_gen.paths import is_remote
from components.example_gen.settings import IMAGE_FEATURE, DataFormat
from pipeline.builtin_data import BUILTIN_DATA
from pipeline.config import (
    BUILTIN_PREFIX,
    EVAL_SPLIT,
    TRAIN_SPLIT,
    PipelineConfig,
)
from pipeline.metadata_url import parse_metadata_url
from pipeline.metrics import METRICS
from pipeline.problems import Problem, near_match
from pipeline.schedule.rules import SCHEDULE_RULES
from trainer_module.models import ZOO
from trainer_module.settings import ImageFeature, Strategy, Task

Rule = Callable[[PipelineConfig], Iterator[Problem]]
_RULES: list[Rule] = [*SCHEDULE_RULES]

IMAGE_FORMATS = (DataFormat.IMAGES, DataFormat.IDX)


def check_rules(config: PipelineConfig, looks_at_files: bool = True) -> Iterator[Problem]:
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
def splits_hold_train_and_eval(config: PipelineConfig) -> Iterator[Problem]:
    """Training and evaluation need a split each."""
    for split in (TRAIN_SPLIT, EVAL_SPLIT):
        if split not in config.data.splits:
            found = ", ".join(config.data.splits)
            yield Problem("data.splits", f"found {found}; a split called `{split}` is missing")


@_rule
def splits_are_of_one_kind(config: PipelineConfig) -> Iterator[Problem]:
    """Hash buckets divide one set of files; globs name several: never both."""
    splits = config.data.splits
    if len({type(value) for value in splits.values()}) > 1:
        yield Problem(
            "data.splits",
            f"found {splits}; give every split a number of hash buckets, or every split a glob",
        )
    for name, value in splits.items():
        if isinstance(value, int) and value < 1:
            yield Problem(f"data.splits.{name}", f"found {value}; a split has at least 1 bucket")


@_rule
def split_by_has_buckets(config: PipelineConfig) -> Iterator[Problem]:
    """Only hash buckets are filled by a column's value."""
    if config.data.split_by and any(isinstance(v, str) for v in config.data.splits.values()):
        yield Problem(
            "data.split_by",
            f"found {config.data.split_by!r}, but the splits are globs; give every split a number "
            "of hash buckets",
        )


@_rule
def path_exists(config: PipelineConfig) -> Iterator[Problem]:
    """A local path without wildcards has to be there; others are looked at by ExampleGen."""
    path = config.data.path
    if path.startswith(BUILTIN_PREFIX) or is_remote(path) or any(c in path for c in "*?[{"):
        return
    if not Path(path).exists():
        folder = Path(path).parent
        names = [str(p) for p in folder.iterdir()] if folder.is_dir() else []
        hint = f"; {near_match(path, names)}" if 0 < len(names) <= 20 else ""
        yield Problem("data.path", f"found {path!r}; there is no such file or folder{hint}")


@_rule
def builtin_data_is_known(config: PipelineConfig) -> Iterator[Problem]:
    """`builtin:` names shipped data, each of one format."""
    if not config.data.path.startswith(BUILTIN_PREFIX):
        return
    name = config.data.path.removeprefix(BUILTIN_PREFIX)
    if name not in BUILTIN_DATA:
        yield Problem(
            "data.path", f"found {name!r} as shipped data; {near_match(name, BUILTIN_DATA)}"
        )
    elif config.data.format != BUILTIN_DATA[name].format:
        yield Problem(
            "data.format",
            f"found {config.data.format.value!r}; builtin:{name} is {BUILTIN_DATA[name].format}",
        )


@_rule
def label_is_no_feature(config: PipelineConfig) -> Iterator[Problem]:
    """The label follows from the task; it cannot be an input."""
    label = config.data.label
    if label in config.features:
        yield Problem(f"features.{label}", "the label cannot be a feature; remove this key")


@_rule
def images_declare_their_size(config: PipelineConfig) -> Iterator[Problem]:
    """Image data has one feature, `image`, and the model needs its size."""
    if config.data.format not in IMAGE_FORMATS:
        return
    for name in config.features:
        if name != IMAGE_FEATURE:
            yield Problem(
                f"features.{name}",
                f"{config.data.format} data has the one feature `{IMAGE_FEATURE}`",
            )
    if not isinstance(config.features.get(IMAGE_FEATURE), ImageFeature):
        yield Problem(
            f"features.{IMAGE_FEATURE}",
            "images need a size, such as {type: image, height: 28, width: 28, channels: 1}",
        )


@_rule
def image_folders_hold_classes(config: PipelineConfig) -> Iterator[Problem]:
    """A folder's name is a class, never a number to regress to."""
    if config.data.format in IMAGE_FORMATS and config.task is Task.REGRESSION:
        found = f"found 'regression'; {config.data.format} data has classes as labels"
        yield Problem("task", found)


@_rule
def cnn_has_an_image(config: PipelineConfig) -> Iterator[Problem]:
    """A convolution needs something to slide over."""
    has_image = config.columns_of(ImageFeature)
    if config.model.kind == "cnn" and config.preprocessing is None and not has_image:
        yield Problem(
            "model.kind", "found 'cnn', but no feature is an image; mlp and wide_deep need none"
        )


@_rule
def workers_have_a_strategy(config: PipelineConfig) -> Iterator[Problem]:
    """Only two strategies train in several processes."""
    train = config.train
    strategy = Strategy(train.strategy.kind)
    if train.cluster is None or strategy.is_multi_process or strategy is Strategy.AUTO:
        return
    if train.cluster.workers > 1:
        yield Problem(
            "train.cluster.workers",
            f"found {train.cluster.workers}, but strategy {strategy} trains in one process; use "
            "multi_worker_mirrored or parameter_server, or leave `cluster` out",
        )


@_rule
def servers_are_backed_up_by_epoch(config: PipelineConfig) -> Iterator[Problem]:
    """The workers of parameter servers have no step in common but an epoch's last."""
    if config.train.strategy.kind == Strategy.PARAMETER_SERVER and config.train.backup_steps:
        yield Problem(
            "train.backup_steps",
            f"found {config.train.backup_steps}, but parameter_server is backed up at the end of "
            "each epoch; leave it out",
        )


@_rule
def metadata_names_a_database(config: PipelineConfig) -> Iterator[Problem]:
    """A server's URL names user, host and database, and keeps the password to itself."""
    if config.metadata is not None:
        try:
            parse_metadata_url(config.metadata)
        except ValueError as error:
            yield Problem("metadata", str(error))


@_rule
def metrics_fit_the_task(config: PipelineConfig) -> Iterator[Problem]:
    """Every metric that is named has to be one of the task's."""
    known = METRICS[config.task]
    named = {f"evaluate.metrics.{i}": m for i, m in enumerate(config.evaluate.metrics)}
    named |= {f"evaluate.thresholds.{m}": m for m in config.evaluate.thresholds}
    for path, metric in named.items():
        if metric not in known:
            yield Problem(
                path, f"{metric!r} is no metric for {config.task}; {near_match(metric, known)}"
            )


@_rule
def thresholds_leave_room(config: PipelineConfig) -> Iterator[Problem]:
    """A threshold bounds something, and its bounds do not exclude each other."""
    for name, threshold in config.evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        if threshold.min is None and threshold.max is None and threshold.tolerance == 0:
            yield Problem(path, "it bounds nothing; give it min, max or tolerance")
        elif None not in (threshold.min, threshold.max) and threshold.min > threshold.max:  # type: ignore[operator]
            yield Problem(path, f"min {threshold.min:g} is above max {threshold.max:g}")


@_rule
def schema_exists(config: PipelineConfig) -> Iterator[Problem]:
    """A curated schema has to be a file."""
    path = config.schema_file
    if path is not None and not is_remote(path) and not Path(path).is_file():
        yield Problem("schema", f"found {path!r}; there is no such file")


@_rule
def import_paths_lead_somewhere(config: PipelineConfig) -> Iterator[Problem]:
    """Code of the user's is found before anything runs, without running it."""
    if config.preprocessing is not None:
        yield from _check_import_path("preprocessing", config.preprocessing)
    if config.model.is_custom:
        yield from _check_import_path("model.kind", config.model.kind)
    elif config.model.kind not in ZOO:
        yield Problem(
            "model.kind",
            f"found {config.model.kind!r}; {near_match(config.model.kind, ZOO)} "
            "A builder of yours is an import path, such as my_models.build_model",
        )


def _check_import_path(key: str, path: str) -> Iterator[Problem]:
    module, _, function = path.rpartition(".")
    source = find_source(module)
    if source is None:
        yield Problem(
            key,
            f"found {path!r}; there is no module `{module}` here or among the installed packages",
        )
        return
    names = _top_level_names(source)
    if names is None:
        yield Problem(key, f"found {path!r}; {source} is not valid Python: try `python {source}`")
    elif function not in names:
        yield Problem(key, f"found {path!r}; {source} defines no `{function}`")


def find_source(module: str) -> Path | None:
    """The source file of a module, without importing it or its packages; None if there is none."""
    relative = Path(*module.split("."))
    for folder in map(Path, sys.path):
        for candidate in (folder / relative.with_suffix(".py"), folder / relative / "__init__.py"):
            if candidate.is_file():
                return candidate.resolve()
    spec = importlib.util.find_spec(module) if "." not in module else None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _top_level_names(source: Path) -> set[str] | None:
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except SyntaxError:
        return None
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
    return names
