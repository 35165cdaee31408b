"""Problems of a config file, each with its key, the value in the file and the expected value."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from components.example_gen.formats import FORMATS, format_by_name
from pipeline.config.synonyms import find_keys, find_value
from trainer_module.errors import as_key, enumerate_names
from trainer_module.settings import Task

MAY_HOLD_SECRETS = (
    "metadata",
    "notify.email",
    "notify.webhook",
    "kubeflow.environment",
    "kubeflow.metadata",
    "kubeflow.secrets",
)
"""Keys whose values, and values below them, messages never show, as messages are logged."""
REMOVED_KEYS = {
    "kubeflow.target": (
        "pipelines are compiled for open-source Kubeflow Pipelines; docs/kubeflow.md shows how "
        "TFX's own runner runs the pipeline on Vertex AI"
    ),
}
"""Keys that earlier versions of Scopeline read, with the replacement of each."""


@dataclass(frozen=True)
class Issue:
    """A problem of a config: the dotted path of a key, and a sentence about the problem."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


Rule = Callable[..., Iterator[Issue]]
"""A function that yields the problems of a config; its parameters have the names of the sections
and properties that it reads.
"""


def rules_of(module: str, *others: Rule) -> tuple[Rule, ...]:
    """Returns the rules that a module has defined up to this call, in the order of definition.

    A rule is a public function that is annotated to return `Iterator[Issue]`.

    Args:
      others: rules of the module that the result does not contain.
    """
    rules = (
        value
        for name, value in vars(sys.modules[module]).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module
        and getattr(value, "__annotations__", {}).get("return") == "Iterator[Issue]"
    )
    return tuple(rule for rule in rules if rule not in others)


def near_match(name: str, candidates: Iterable[str]) -> str:
    """Returns a question that suggests the closest candidate; a list of all if none is close."""
    names = sorted(candidates)
    return _closest(name, names) or f"expected one of {', '.join(names)}"


def near_match_and(name: str, candidates: Iterable[str], more: str) -> str:
    """Returns the sentence of `near_match`, followed by another sentence."""
    hint = near_match(name, candidates)
    return f"{hint} {more}" if hint.endswith("?") else f"{hint}. {more}"


def from_validation(error: ValidationError, raw: Any, model: type[BaseModel]) -> list[Issue]:
    """Returns the problems that pydantic's errors describe.

    Args:
      error: the error that validation raised.
      raw: the mapping that was validated, with which keys of the file are recognised.
      model: the Pydantic model that validated the mapping.
    """
    schema = model.model_json_schema()
    issues = []
    for detail in error.errors(include_url=False):
        names_a_key = detail["type"] in ("extra_forbidden", "missing")
        path, value = _locate(detail["loc"], raw, names_a_key)
        name = ".".join(str(part) for part in path)
        if detail["type"] == "extra_forbidden" and name in REMOVED_KEYS:
            message = f"this key no longer exists; remove it: {REMOVED_KEYS[name]}"
        elif detail["type"] == "extra_forbidden":
            allowed = _keys_at(schema, path[:-1], value_at(raw, path[:-1]))
            message = f"unknown key; {_suggest_key(str(path[-1]), allowed, _sections(schema))}"
        elif detail["type"] == "missing":
            line = _line_to_write(path, None, raw)
            message = f"this key is missing; {line}" if line else "this key is missing"
        elif detail["type"] == "value_error" and isinstance(value, Mapping):
            message = _expectation(detail)
        else:
            expected = _line_to_write(path, value, raw) or _expectation(detail)
            message = f"found {show_value(path, value)}; {expected}"
        issue = Issue(name, message)
        if issue not in issues:
            issues.append(issue)
    return _without_alternatives(issues)


def find_conversions(raw: Any, config: BaseModel) -> Iterator[Issue]:
    """Yields the values that Pydantic converted, and that editors refuse.

    They are numbers in quotes, booleans in place of numbers, and numbers in place of booleans.

    Args:
      raw: the mapping that was validated.
      config: the config that Pydantic made of the mapping.
    """
    yield from _conversions((), raw, config.model_dump(exclude_unset=True))


def _conversions(path: tuple[Any, ...], raw: Any, value: Any) -> Iterator[Issue]:
    if isinstance(raw, Mapping) and isinstance(value, Mapping):
        for key in raw:
            if key in value:
                yield from _conversions((*path, key), raw[key], value[key])
    elif isinstance(raw, list) and isinstance(value, list | tuple) and len(raw) == len(value):
        for index, items in enumerate(zip(raw, value, strict=True)):
            yield from _conversions((*path, index), *items)
    elif isinstance(value, int | float) and isinstance(raw, bool | int | float | str):
        is_number = not isinstance(value, bool)
        if is_number and isinstance(raw, bool | str):
            expected = "expected a number" + (" without quotes" if isinstance(raw, str) else "")
        elif not is_number and isinstance(raw, int | float) and not isinstance(raw, bool):
            expected = "expected true or false"
        else:
            return
        shown = f"found {show_value(path, raw)}; {expected}"
        yield Issue(".".join(map(str, path)), shown)


def _suggest_key(
    name: str, allowed: Collection[str], sections: Mapping[str, Collection[str]]
) -> str:
    """Returns a sentence that suggests the meant key, of the same or of another section."""
    if difflib.get_close_matches(name, allowed, n=1, cutoff=0.8):
        return near_match(name, allowed)
    keys = [f"`{key}`" for key in find_keys(name, sections)]
    return f"did you mean {enumerate_names(keys, 'or')}?" if keys else near_match(name, allowed)


def _sections(schema: dict[str, Any]) -> dict[str, set[str]]:
    """Returns the keys of each section of a config, by the section's name."""
    return {name: _keys_at(schema, (name,), {}) for name in schema.get("properties", {})}


def _line_to_write(path: Sequence[Any], value: Any, raw: Any) -> str:
    """Returns a sentence with the line to write, or "" for keys without a standard line.

    Args:
      path: the path of the key.
      value: the key's value, which is refused; None if there is none.
      raw: the mapping that was validated.
    """
    match tuple(path), value:
        case ("name",), None:
            return "write a name for the pipeline, such as name: churn"
        case ("data",), None:
            return "write data: {format: csv, path: FILE, label: COLUMN}"
        case ("data", "format"), None:
            found = format_by_name(str(raw["data"].get("path")))
            return f"write format: {found or enumerate_names(FORMATS, 'or')}"
        case ("task",), None:
            return f"write task: {enumerate_names(Task, 'or')}; `init` suggests one"
        case ("data",), str():
            return f"expected data: {{format: csv, path: {value}, label: COLUMN}}"
        case ("features",), [first, *_]:
            return (
                f"expected a mapping such as features: {{{as_key(first)}: {{type: categorical}}}}; "
                "the types of other columns are inferred"
            )
        case ("evaluate", "thresholds", str(name)), int() | float():
            return f"expected {name}: {{min: {value}}}, or {{max: {value}}} if lower is better"
    return ""


def value_at(raw: Any, path: tuple[Any, ...]) -> Any:
    """Returns the value at a path of the raw mapping."""
    for part in path:
        raw = raw[part]
    return raw


def _locate(loc: tuple[Any, ...], raw: Any, names_a_key: bool) -> tuple[tuple[Any, ...], Any]:
    """Returns the path of keys in a location of Pydantic, and the file's value at that path.

    Args:
      loc: the location. It may also contain names of union members, which are no keys of the file.
      raw: the mapping that was validated.
      names_a_key: whether the last part is a key even if the file lacks that key.
    """
    path: list[Any] = []
    for i, part in enumerate(loc):
        is_key = isinstance(raw, Mapping) and part in raw
        is_index = isinstance(raw, list) and isinstance(part, int) and part < len(raw)
        if is_key or is_index:
            path.append(part)
            raw = raw[part]
        elif names_a_key and i == len(loc) - 1:
            path.append(part)
    return tuple(path), raw


def _expectation(detail: Any) -> str:
    """Returns a sentence with the expected value, made of an error of Pydantic."""
    context = detail.get("ctx", {})
    kind = detail["type"]
    if kind in ("enum", "literal_error", "union_tag_invalid"):
        expected = str(context.get("expected") or context.get("expected_tags"))
        # Pydantic quotes names, also inside the representation of an enum's member.
        names = re.findall(r"'([^']+)'", expected) or re.split(", | or ", expected)
        value = context.get("tag", detail["input"])
        close = _closest(value, names)
        choice = f"one of {', '.join(names)}" if len(names) > 1 else names[0]
        return f"expected {choice}" + (f"; {close}" if close else "")
    if kind == "union_tag_not_found":
        return f"this section needs the key {context['discriminator']}"
    if kind == "value_error":
        return str(context["error"])
    message = re.sub("Input should be (?=greater|less)", "expected a number ", detail["msg"])
    message = message.replace("Input should be", "expected")
    message = re.sub(r"a valid dictionary or instance of \w+", "a mapping of keys", message)
    if kind == "string_type" and isinstance(detail["input"], bool):
        message += "; quote the value, as YAML reads on, off, yes and no as true and false"
    elif kind == "string_type" and isinstance(detail["input"], int | float):
        message += "; quote the value, as YAML reads it as a number"
    return message[0].lower() + message[1:]


def _closest(value: Any, names: list[str]) -> str:
    """Returns the question whether the user means a similar name, or "" if none is similar."""
    meant = find_value(value, names)
    close = [meant] if meant else difflib.get_close_matches(str(value), names, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""


def show_value(path: Sequence[Any], value: Any, limit: int = 60) -> str:
    """Returns a value in shortened form, or only the type of a value that may be a secret."""
    if value is not None and may_hold_secrets(path):
        return f"a {type(value).__name__} that is not shown here"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def may_hold_secrets(path: Sequence[Any]) -> bool:
    """Returns whether the value at a path, or a value in it, may be a secret."""
    keys = [str(part) for part in path]
    for secret in (name.split(".") for name in MAY_HOLD_SECRETS):
        common = min(len(secret), len(keys))
        if secret[:common] == keys[:common]:
            return True
    return False


def _without_alternatives(problems: list[Issue]) -> list[Issue]:
    """Returns the problems, with all problems of one key joined.

    If a value fits no member of a union, Pydantic reports a problem for each member.
    """
    joined: dict[str, Issue] = {}
    for problem in problems:
        earlier = joined.get(problem.path)
        if earlier and "; " in problem.message:
            alternative = problem.message.split("; ", 1)[1].removeprefix("expected ")
            problem = Issue(problem.path, f"{earlier.message}, or {alternative}")
        joined[problem.path] = problem
    return list(joined.values())


def _keys_at(schema: dict[str, Any], path: tuple[Any, ...], value: Any) -> set[str]:
    """Returns the keys that the JSON Schema allows at a path."""
    nodes = [schema]
    for part in path:
        nodes = [child for node in nodes for child in _children(schema, node, part)]
    keys: set[str] = set()
    for variant in (variant for node in nodes for variant in _variants(schema, node)):
        if _accepts_tags(variant, value):
            keys |= set(variant.get("properties", {}))
    return keys


def _variants(schema: dict[str, Any], node: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the object schemas of a schema node, with references and unions resolved."""
    if "$ref" in node:
        return _variants(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[-1]])
    members = node.get("anyOf", node.get("oneOf"))
    if members is None:
        return [node]
    return [variant for member in members for variant in _variants(schema, member)]


def _children(schema: dict[str, Any], node: dict[str, Any], part: Any) -> list[dict[str, Any]]:
    children = []
    for variant in _variants(schema, node):
        if isinstance(part, int) and "items" in variant:
            children.append(variant["items"])
        elif part in variant.get("properties", {}):
            children.append(variant["properties"][part])
        elif isinstance(variant.get("additionalProperties"), dict):
            children.append(variant["additionalProperties"])
    return children


def _accepts_tags(node: dict[str, Any], value: Any) -> bool:
    """Returns whether the constants of a union's member, such as `type: image`, match the value."""
    properties = node.get("properties", {})
    return all(
        "const" not in child or not isinstance(value, Mapping) or value.get(name) == child["const"]
        for name, child in properties.items()
    )
