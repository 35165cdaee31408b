"""Problems of a config file: the key, the value that was found, and what is expected."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from pipeline.config.synonyms import find_keys, find_value
from trainer_module.errors import enumerate_names

MAY_HOLD_SECRETS = (
    "metadata",
    "notify.email",
    "notify.webhook",
    "kubeflow.environment",
    "kubeflow.metadata",
    "kubeflow.secrets",
)
"""Keys whose values, and values below them, messages never repeat, as messages end up in logs."""
REMOVED_KEYS = {
    "kubeflow.target": (
        "pipelines are compiled for open-source Kubeflow Pipelines; docs/kubeflow.md shows how "
        "TFX's own runner runs the pipeline on Vertex AI"
    ),
}
"""Keys of older configs, with advice on what to use instead."""


@dataclass(frozen=True)
class Issue:
    """A problem of a config: the dotted path of a key and a sentence about the problem."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


Rule = Callable[..., Iterator[Issue]]
"""A function that finds problems; its parameters name the parts of a config that it is called
with.
"""


def rules_of(module: str, *others: Rule) -> tuple[Rule, ...]:
    """Returns the rules that a module defines so far: its public functions that yield issues, in
    order.

    Args:
      module: the name of the module.
      others: rules of the module to leave out.
    """
    found = (
        one
        for name, one in vars(sys.modules[module]).items()
        if not name.startswith("_")
        and getattr(one, "__module__", "") == module
        and getattr(one, "__annotations__", {}).get("return") == "Iterator[Issue]"
    )
    return tuple(one for one in found if one not in others)


def near_match(name: str, candidates: Iterable[str]) -> str:
    """Returns a sentence that suggests the closest of the candidates, or lists them all."""
    known = sorted(candidates)
    return _closest(name, known) or f"known: {', '.join(known)}"


def near_match_and(name: str, candidates: Iterable[str], more: str) -> str:
    """Returns the sentence of `near_match`, followed by another sentence."""
    hint = near_match(name, candidates)
    return f"{hint} {more}" if hint.endswith("?") else f"{hint}. {more}"


def from_validation(error: ValidationError, raw: Any, model: type[BaseModel]) -> list[Issue]:
    """Returns the problems that pydantic's errors describe.

    Args:
      error: the error that validation raised.
      raw: the mapping that was validated; it shows which parts of an error's location are keys.
      model: the model that validated the mapping; it shows which keys exist.
    """
    schema = model.model_json_schema()
    problems = []
    for detail in error.errors(include_url=False):
        names_a_key = detail["type"] in ("extra_forbidden", "missing")
        path, found = _locate(detail["loc"], raw, names_a_key)
        name = ".".join(str(part) for part in path)
        if detail["type"] == "extra_forbidden" and name in REMOVED_KEYS:
            message = f"this key was removed; leave it out: {REMOVED_KEYS[name]}"
        elif detail["type"] == "extra_forbidden":
            known = _keys_at(schema, path[:-1], found_parent(raw, path[:-1]))
            message = f"unknown key; {_suggest_key(str(path[-1]), known, _sections(schema))}"
        elif detail["type"] == "missing":
            message = "this key is missing"
        elif detail["type"] == "value_error" and isinstance(found, Mapping):
            message = _expectation(detail)
        else:
            right = _expected_line(path, found) or _expectation(detail)
            message = f"found {show_value(path, found)}; {right}"
        problem = Issue(name, message)
        if problem not in problems:
            problems.append(problem)
    return _without_alternatives(problems)


def _suggest_key(name: str, known: Collection[str], sections: Mapping[str, Collection[str]]) -> str:
    """Returns a sentence that suggests the key for an unknown one, here or in another section."""
    if difflib.get_close_matches(name, known, n=1, cutoff=0.8):
        return near_match(name, known)
    keys = [f"`{key}`" for key in find_keys(name, sections)]
    return f"did you mean {enumerate_names(keys, 'or')}?" if keys else near_match(name, known)


def _sections(schema: dict[str, Any]) -> dict[str, set[str]]:
    """Returns the keys of each section of a config, by the section's name."""
    return {name: _keys_at(schema, (name,), {}) for name in schema.get("properties", {})}


def _expected_line(path: Sequence[Any], found: Any) -> str:
    """Returns the line to write in place of a value of the wrong shape; empty if none is known."""
    match tuple(path), found:
        case ("data",), str():
            return f"right is data: {{format: csv, path: {found}, label: COLUMN}}"
        case ("features",), [first, *_]:
            return (
                f"right is a mapping such as features: {{{first}: {{type: categorical}}}}; the "
                "types of other columns are inferred"
            )
        case ("evaluate", "thresholds", str(name)), int() | float():
            return f"right is {name}: {{min: {found}}}, or {{max: {found}}} if lower is better"
    return ""


def found_parent(raw: Any, path: tuple[Any, ...]) -> Any:
    """Returns the value at a path of the raw mapping."""
    for part in path:
        raw = raw[part]
    return raw


def _locate(loc: tuple[Any, ...], raw: Any, names_a_key: bool) -> tuple[tuple[Any, ...], Any]:
    """Returns the keys of a pydantic location, and the value found there.

    A pydantic location also names the member of a union that pydantic tried, which is not a key of
    the file. With `names_a_key` the last part is a key even if the file lacks that key.
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
    """Returns what is expected, from pydantic's message."""
    context = detail.get("ctx", {})
    kind = detail["type"]
    if kind in ("enum", "literal_error", "union_tag_invalid"):
        expected = str(context.get("expected") or context.get("expected_tags"))
        # Quoted by pydantic, also inside the representation of an enum's member.
        names = re.findall(r"'([^']+)'", expected) or re.split(", | or ", expected)
        value = context.get("tag", detail["input"])
        close = _closest(value, names)
        return f"right is one of {', '.join(names)}" + (f"; {close}" if close else "")
    if kind == "union_tag_not_found":
        return f"it needs the key {context['discriminator']}"
    if kind == "value_error":
        return str(context["error"])
    message = detail["msg"].replace("Input should be", "it should be")
    if kind == "string_type" and isinstance(detail["input"], bool):
        message += "; quote it, as YAML reads on, off, yes and no as true and false"
    return message[0].lower() + message[1:]


def _closest(value: Any, names: list[str]) -> str:
    """Returns a question about the name that a value means or resembles; empty if there is none."""
    meant = find_value(value, names)
    close = [meant] if meant else difflib.get_close_matches(str(value), names, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""


def show_value(path: Sequence[Any], value: Any, limit: int = 60) -> str:
    """Returns a value in shortened form, or only its type if it may be a secret."""
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
    """Returns the problems, with those that several members of a union have with one value
    joined.
    """
    joined: dict[str, Issue] = {}
    for problem in problems:
        earlier = joined.get(problem.path)
        if earlier and "; " in problem.message:
            alternative = problem.message.split("; ", 1)[1]
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
    """Returns the object schemas that a schema node stands for: resolves references and unions."""
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
