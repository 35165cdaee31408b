"""The config reference page."""

from __future__ import annotations

import json
from typing import Any

from pipeline.config.json_schema import described_schema
from trainer_module.settings.tasks import TASKS, task_class

_MOST_NAMES = 30
"""The most values of a key that the page lists; a table of its own has those of `metrics`."""


def config_reference() -> str:
    """Returns the config reference page."""
    schema = described_schema()
    lines = [
        "# Config reference",
        "",
        "`make docs` generates this page from the code. Unknown keys are errors, and all problems",
        "of a file are reported together. `--set train.epochs=3` overrides the key in the file;",
        "a mapping, as in `--set 'train={epochs: 3}'`, overrides the keys that it has.",
        "Editors complete, explain and check the keys of a config that begins with the line",
        "`# yaml-language-server: $schema=config.schema.json`; `scopeline schema` writes the file.",
    ]
    lines += _section("Top level", schema, schema)
    for name, definition in schema["$defs"].items():
        if "properties" in definition:
            lines += _section(name, definition, schema)
    lines += ["", "## Metrics", ""]
    lines += ["| task | metrics | without `metrics:` |", "| --- | --- | --- |"]
    for kind in TASKS:
        task = task_class(kind).model_construct(kind=kind)  # Skips required options.
        names = ", ".join(f"`{name}`" for name in task.metrics())
        defaults = ", ".join(f"`{name}`" for name in task.default_metrics())
        lines.append(f"| {kind} | {names} | {defaults} |")
    return "\n".join(lines) + "\n"


def _section(title: str, definition: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    lines = ["", f"## {title}", ""]
    if "description" in definition:
        lines += [" ".join(definition["description"].split()), ""]
    lines += ["| key | value | default | |", "| --- | --- | --- | --- |"]
    required = definition.get("required", [])
    for key, value in definition["properties"].items():
        default = "required" if key in required else _default(value)
        text = " ".join(value.get("description", "").split())
        lines.append(f"| `{key}` | {_kind(value, schema)} | {default} | {text} |")
    return lines


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    if isinstance(default, dict) and "$ref" in value:
        return "see below"
    return f"`{json.dumps(default)}`"


def _kind(value: dict[str, Any], schema: dict[str, Any]) -> str:
    """Returns the type of a key's value, in a few words."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        definition = schema["$defs"][name]
        if "enum" in definition:
            return ", ".join(f"`{member}`" for member in definition["enum"])
        return f"[{name}](#{name.lower()})" if "properties" in definition else "anything"
    if "const" in value:
        return f"`{value['const']}`"
    if len(value.get("enum", ())) > _MOST_NAMES:
        return "string"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(member)}`" for member in value["enum"])
    members = value.get("anyOf") or value.get("oneOf")
    if members:
        return " or ".join(dict.fromkeys(_kind(member, schema) for member in members))
    if "prefixItems" in value:
        kinds = [_kind(item, schema) for item in value["prefixItems"]]
        return f"[{', '.join(kinds)}]"
    if value.get("type") == "array":
        return f"list of {_kind(value['items'], schema)}"
    if isinstance(value.get("additionalProperties"), dict):
        return f"mapping to {_kind(value['additionalProperties'], schema)}"
    kind = value.get("type", "anything")
    return (kind if isinstance(kind, str) else " or ".join(kind)) + _bounds(value)


def _bounds(value: dict[str, Any]) -> str:
    words = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {value[key]:g}" for key, sign in words.items() if key in value]
    return f" {' and '.join(bounds)}" if bounds else ""
