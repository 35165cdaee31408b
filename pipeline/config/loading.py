"""Loads and checks a config file; reports all problems together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pipeline.config.issues import (
    Issue,
    Rule,
    find_conversions,
    from_validation,
    near_match,
    show_value,
)
from pipeline.config.metadata_url import METADATA_RULES
from pipeline.config.search_rules import TUNE_RULES
from pipeline.config.sections.data import (
    BEAM_RULES,
    DATA_RULES,
    DataSettings,
    builtin_data_is_known,
    episodes_are_of_an_environment,
    labels_exist,
    path_exists,
    picture_folders_exist,
    policy_exists,
    schema_exists,
)
from pipeline.config.sections.evaluate import EVALUATE_RULES, EvaluateSettings
from pipeline.config.sections.model import (
    BERT_RULES,
    MODEL_RULES,
    TRANSFER_RULES,
    bert_weights_are_valid,
    vocabularies_can_be_read,
    weights_are_a_file_of_weights,
)
from pipeline.config.sections.notify import NOTIFY_RULES
from pipeline.config.sections.optimize import OPTIMIZE_RULES, packages_are_installed
from pipeline.config.sections.push import PUSH_RULES
from pipeline.config.sections.report import REPORT_RULES
from pipeline.config.sections.schedule import SCHEDULE_RULES, SKEW_RULES
from pipeline.config.sections.train import AUGMENT_RULES, TRAIN_RULES
from pipeline.config.settings import NAME_PATTERN, PipelineConfig
from pipeline.config.user_code import import_paths_exist
from pipeline.config.yaml_core import core_resolvers
from trainer_module.errors import ConfigError, counted, enumerate_names
from trainer_module.settings.tasks import LearningTask

SECTIONS = {
    "features",
    "preprocessing",
    "schema_file",
    "on_anomaly",
    "model",
    "train",
    "tune",
    "optimize",
    "drift",
    "skew",
}
"""Sections of a config that only some families of tasks read."""
PARTLY_READ_SECTIONS = ("model", "train")
"""Sections of which a family may read only some keys."""
ROW_KEYS = {"splits", "csv", "max_pixels"}
"""Keys of `data` that every family with an ExampleGen reads."""
DATA_KEYS = DataSettings.model_fields.keys() - {"format", "path"}
EVALUATE_KEYS = {"slices", "leakage", "folds"}
"""Keys of `data` and `evaluate` that only some families read."""


def given_keys_are_read(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that the task's family reads every key of the file; other keys have no effect."""
    reads, kind = config.family.reads, config.target.kind
    partly_read = {
        name for name in PARTLY_READ_SECTIONS if any(path.startswith(f"{name}.") for path in reads)
    }
    set_keys = {
        "": config.model_fields_set & SECTIONS - partly_read,
        "data.": config.data.model_fields_set
        & DATA_KEYS - (ROW_KEYS if config.family.reads_rows else set()),
        "evaluate.": config.evaluate.model_fields_set & EVALUATE_KEYS,
        **{f"{name}.": getattr(config, name).model_fields_set - {"run_fn"} for name in partly_read},
    }
    for section, keys in set_keys.items():
        for key in sorted(keys):
            path = f"{section}{'schema' if key == 'schema_file' else key}"
            if path not in reads:
                advice = "remove it"
                if section.rstrip(".") in partly_read:
                    fields = type(getattr(config, section.rstrip("."))).model_fields
                    readable = [name for name in fields if f"{section}{name}" in reads]
                    advice = (
                        f"the task reads only {enumerate_names(readable, 'and')} of this section"
                    )
                yield Issue(path, f"`task: {kind}` does not read this key; {advice}")
    if config.train.run_fn:
        yield Issue("train.run_fn", f"`task: {kind}` has its own run_fn; remove this key")
    if config.schedule_or_default.warm_start:
        yield Issue(
            "schedule.warm_start", f"`task: {kind}` always trains from scratch; remove this key"
        )


def family_accepts_config(config: PipelineConfig) -> Iterator[Issue]:
    """Yields the problems that the family finds in its own options."""
    return (Issue(path, message) for path, message in config.family.problems(config))


def metrics_belong_to_family(evaluate: EvaluateSettings, target: LearningTask) -> Iterator[Issue]:
    """Checks that metrics are the family's own, as classes of Keras and TFMA need labels."""
    known = ", ".join(target.metrics())
    for key, path in evaluate.own_code.items():
        yield Issue(key, f"found {path!r}; `task: {target.kind}` has the metrics {known}")
    for index, metric in enumerate(evaluate.metrics):
        if not isinstance(metric, str):
            yield Issue(
                f"evaluate.metrics.{index}",
                f"found a metric class; `task: {target.kind}` has the metrics {known}",
            )


FAMILY_RULES = (
    given_keys_are_read,
    metrics_belong_to_family,
    import_paths_exist,
    family_accepts_config,
)
"""The rules for tasks of families other than the supervised one."""


RULES: tuple[Rule, ...] = (
    *DATA_RULES,
    *BEAM_RULES,
    *MODEL_RULES,
    *TRANSFER_RULES,
    *BERT_RULES,
    *TRAIN_RULES,
    *AUGMENT_RULES,
    *EVALUATE_RULES,
    *PUSH_RULES,
    *REPORT_RULES,
    *METADATA_RULES,
    *SCHEDULE_RULES,
    *SKEW_RULES,
    *NOTIFY_RULES,
    *TUNE_RULES,
    *OPTIMIZE_RULES,
)
"""Every rule for supervised tasks, in the order in which problems are reported."""
COMMON_RULES: tuple[Rule, ...] = (
    *FAMILY_RULES,
    episodes_are_of_an_environment,
    policy_exists,
    path_exists,
    builtin_data_is_known,
    *BEAM_RULES,
    *EVALUATE_RULES,
    *PUSH_RULES,
    *REPORT_RULES,
    *METADATA_RULES,
    *SCHEDULE_RULES,
    *SKEW_RULES,
    *NOTIFY_RULES,
)
"""The rules for tasks of other families; a family adds its own in `Family.problems`."""
FILE_RULES = (
    path_exists,
    policy_exists,
    labels_exist,
    schema_exists,
    picture_folders_exist,
    weights_are_a_file_of_weights,
    bert_weights_are_valid,
    vocabularies_can_be_read,
)
"""The rules that read files, for pipelines that run on this machine."""


def check_rules(config: PipelineConfig, checks_files: bool = True) -> Iterator[Issue]:
    """Yields all problems that the rules find in a config.

    Args:
      config: a config whose types are valid.
      checks_files: whether to check the config's files and packages; false for a pipeline that
        runs on another machine.
    """
    family = config.family
    data_rules = DATA_RULES if family.reads_rows else ()
    family_rules = RULES if family.has_label else (*COMMON_RULES, *data_rules)
    rules = (*dict.fromkeys(family_rules), packages_are_installed)
    skipped = () if checks_files else (*FILE_RULES, packages_are_installed)
    yield from config.find_issues(rule for rule in rules if rule not in skipped)


class _StrictLoader(yaml.SafeLoader):
    """A safe YAML loader that rejects duplicate keys; PyYAML would keep the last one silently.

    As in editors, which read YAML 1.2, 1e-3 is a number, and 2026-01-05 and 12:30 are text.
    """

    yaml_implicit_resolvers = core_resolvers()

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Returns a mapping; raises an error for duplicate keys, except for keys merged by `<<`."""
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refusal(
                    "a key has to be plain text; quote a key that contains braces or brackets",
                    key_node,
                )
            key = (key_node.tag, key_node.value)
            if key in keys:
                raise _refusal(f"the key `{key_node.value}` appears twice", key_node)
            keys.add(key)
        return node

    def construct_scalar(self, node: Any) -> Any:
        """Returns the text of a scalar; JSON escapes an emoji as two surrogates."""
        text = super().construct_scalar(node)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Returns a value; raises an error with the line and column of an invalid date."""
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:
            raise _refusal(f"{error}; if this value is text, quote the value", node) from None


def _refusal(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def load_config(
    path: Path,
    overrides: Iterable[str] = (),
    check: Callable[[PipelineConfig], Iterable[Issue]] = check_rules,
) -> PipelineConfig:
    """Loads, overrides and checks a config file.

    Args:
      overrides: `key=value` strings with dotted keys and YAML values.
      check: the function that finds problems between values.

    Raises:
      ConfigError: the file is invalid; the message lists all problems with their keys.
    """
    raw = _read_yaml(path)
    for override in overrides:
        _apply_override(raw, override)
    try:
        config = PipelineConfig.model_validate(raw)
    except ValidationError as error:
        raise _config_error(path, from_validation(error, raw, PipelineConfig)) from None
    problems = [*find_conversions(raw, config), *check(config)]
    if problems:
        raise _config_error(path, problems)
    return config


def read_name(path: Path, overrides: Iterable[str] = ()) -> str | None:
    """Returns the `name` of a config with possibly invalid keys, or None without a valid name."""
    try:
        raw = _read_yaml(path)
        for override in overrides:
            _apply_override(raw, override)
    except ConfigError:
        return None
    name = raw.get("name")
    return name if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name) else None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        found = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
        siblings = [str(file) for file in found if not file.name.startswith(".")]
        hint = f"; {near_match(str(path), siblings)}" if siblings else ""
        raise ConfigError(f"{path}: there is no such config file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}") from None
    try:
        raw = _parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{path}: {position}not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(
            f"{path}: the file contains no mapping; expected keys such as `name: digits`"
        )
    return raw


def _parse(text: str) -> Any:
    # The loader is a subclass of SafeLoader, which loads plain data only.
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506


def _apply_override(raw: dict[str, Any], override: str) -> None:
    """Sets a dotted key of the raw mapping; a mapping is merged into that of the config."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        # The text after the first word may be a secret, as in `notify.webhook.url: https://...`.
        words = re.split(r"[^\w.-]", override, maxsplit=1)[0]
        visible = words if words == override else f"{words}..."
        raise ConfigError(f"--set {visible}: expected key=value, such as train.epochs=3")
    try:
        value = _parse(text)
    except yaml.YAMLError:
        # The text is for example a glob that begins with a special character of YAML.
        value = text
    *sections, last = key.split(".")
    for depth, section in enumerate(sections, 1):
        child = raw.get(section)
        if child is None:
            child = {}
        if not isinstance(child, Mapping):
            shown = show_value(sections[:depth], child)
            raise ConfigError(f"--set {key}: `{section}` is {shown}, not a section")
        # The section is copied, as YAML shares an anchored section between all its aliases.
        raw[section] = dict(child)
        raw = raw[section]
    raw[last] = _merged(raw.get(last), value, tuple(key.split(".")))


_WHOLE = ("splits", "class_weights")
"""The keys of mappings whose entries mean something only together."""


def _merged(old: Any, new: Any, path: tuple[str, ...]) -> Any:
    """Returns a value of `--set` with the keys of the config's value that it does not set.

    An empty mapping, a mapping of another kind, and the range of a searched value replace those of
    the config.
    """
    if not (isinstance(old, Mapping) and isinstance(new, Mapping) and new):
        return new
    if path[-1] in _WHOLE or path[-2:-1] == ("space",):
        return new
    for tag in ("schedule",) if path[-1] == "learning_rate" else ("kind", "type"):
        tags = old.get(tag), new.get(tag)
        if all(isinstance(one, str) for one in tags) and tags[0] != tags[1]:
            return new
    merged = {key: _merged(old.get(key), value, (*path, str(key))) for key, value in new.items()}
    return {**old, **merged}


def _config_error(path: Path, problems: list[Issue]) -> ConfigError:
    lines = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{path}: {counted(len(problems), 'problem')}{lines}")
