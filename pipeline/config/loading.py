"""Reads a config file: YAML, then overrides, then types, then rules; all problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pipeline.config.issues import Issue, from_validation, near_match, show_value
from pipeline.config.rules import check_rules
from pipeline.config.settings import NAME_PATTERN, PipelineConfig
from trainer_module.errors import ConfigError, counted


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, of which YAML would drop one in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping as it is written: what `<<` merges into it later may have the same keys."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refusal(
                    "a key has to be plain text; if these braces or brackets are part of a text, "
                    "put it into quotes",
                    key_node,
                )
            key = (key_node.tag, key_node.value)
            if key in seen:
                raise _refusal(f"the key `{key_node.value}` stands here a second time", key_node)
            seen.add(key)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value; one that looks like a date but is none is refused with its place."""
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:
            raise _refusal(f"{error}; if this is a text, put it into quotes", node) from None


def _refusal(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def load_config(
    path: Path,
    overrides: Iterable[str] = (),
    check: Callable[[PipelineConfig], Iterable[Issue]] = check_rules,
) -> PipelineConfig:
    """Loads, overrides and checks a config file.

    Args:
      path: the YAML file.
      overrides: `key=value` each, the key dotted, the value YAML.
      check: finds the problems between values.

    Raises:
      ConfigError: lists every problem that was found, each with its path in the file.
    """
    raw = _read_yaml(path)
    for override in overrides:
        _apply_override(raw, override)
    try:
        config = PipelineConfig.model_validate(raw)
    except ValidationError as error:
        raise _config_error(path, from_validation(error, raw, PipelineConfig)) from None
    problems = list(check(config))
    if problems:
        raise _config_error(path, problems)
    return config


def read_name(path: Path, overrides: Iterable[str] = ()) -> str | None:
    """The `name` of a config whose other keys may be wrong; None if that cannot be said."""
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
        siblings = [str(p) for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        hint = f"; {near_match(str(path), siblings)}" if siblings else ""
        raise ConfigError(f"{path}: there is no such config file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}") from None
    try:
        raw = _parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{path}: {place}not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a config is a mapping of keys, such as `name: digits`")
    return raw


def _parse(text: str) -> Any:
    # A subclass of SafeLoader: plain data only.
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506


def _apply_override(raw: dict[str, Any], override: str) -> None:
    """Sets one dotted key of the raw mapping; sections that are absent are made."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        # What follows the key may be a secret, as in `notify.webhook.url: https://...`.
        words = re.split(r"[^\w.-]", override, maxsplit=1)[0]
        shown = words if words == override else f"{words}..."
        raise ConfigError(f"--set {shown}: it has to be key=value, such as train.epochs=3")
    try:
        value = _parse(text)
    except yaml.YAMLError:
        # Such as a glob, which begins with a sign that YAML gives a meaning.
        value = text
    *sections, last = key.split(".")
    for depth, section in enumerate(sections, 1):
        child = raw.get(section)
        if child is None:
            child = {}
        if not isinstance(child, Mapping):
            found = show_value(sections[:depth], child)
            raise ConfigError(f"--set {key}: `{section}` is {found}, not a section")
        # A copy: an anchored section is the same object wherever its alias stands.
        raw[section] = dict(child)
        raw = raw[section]
    raw[last] = value


def _config_error(path: Path, problems: list[Issue]) -> ConfigError:
    lines = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{path}: {counted(len(problems), 'problem')}{lines}")
