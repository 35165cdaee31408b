"""The JSON Schema of a config for editors, and the config reference page."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from pipeline.config.settings import PipelineConfig
from trainer_module.sections import DOCSTRING, Settings
from trainer_module.settings.durations import show_duration
from trainer_module.settings.tasks import TASKS, task_class


def config_schema() -> str:
    """Returns the JSON Schema of a config file."""
    schema = _described_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Scopeline pipeline"
    return json.dumps(schema, indent=2) + "\n"


def config_reference() -> str:
    """Returns the config reference page."""
    schema = _described_schema()
    lines = [
        "# Config reference",
        "",
        "`make docs` generates this page from the code. Unknown keys are errors, and all problems",
        "of a file are reported together. `--set train.epochs=3` overrides the key in the file.",
        "`scopeline schema FILE` writes a JSON Schema. If the first line of a config is",
        "`# yaml-language-server: $schema=FILE`, editors complete its keys and values.",
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


class _SchemaGenerator(GenerateJsonSchema):
    """A schema generator that writes durations as a config does, such as 5m."""

    def encode_default(self, dft: Any) -> Any:
        """Returns a default; a duration as in a config, where Pydantic would write ISO 8601."""
        return show_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def _described_schema() -> dict[str, Any]:
    schema = PipelineConfig.model_json_schema(schema_generator=_SchemaGenerator)
    describe_keys(schema, PipelineConfig)
    return schema


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
    if "enum" in value:
        return ", ".join(f"`{json.dumps(member)}`" for member in value["enum"])
    members = value.get("anyOf") or value.get("oneOf")
    if members:
        return " or ".join(_kind(member, schema) for member in members)
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


def describe_keys(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Adds the docstrings of fields as descriptions to a model's JSON Schema.

    Pydantic could read the docstrings whenever it creates a class, but that takes a second in each
    command that imports TensorFlow.

    Args:
      schema: the JSON Schema that Pydantic made of the model; changed in place.
      model: the Pydantic model of a section; its nested sections are `Settings` at any depth.
    """
    definitions = {**schema["$defs"], model.__name__: schema}
    for section in _subclasses(Settings):
        properties = definitions.get(section.__name__, {}).get("properties", {})
        described = _descriptions(section)
        for name, field in section.model_fields.items():
            key = field.alias or name
            if name in described and key in properties:
                text = properties[key].get("description", DOCSTRING)
                text = text.replace(DOCSTRING, described[name])
                properties[key] = dict(sorted({**properties[key], "description": text}.items()))


def _subclasses(kind: type[Settings]) -> Iterator[type[Settings]]:
    for section in kind.__subclasses__():
        yield section
        yield from _subclasses(section)


def _descriptions(section: type[Settings]) -> dict[str, str]:
    """Returns the docstrings of a section's fields, inherited fields included, by field name."""
    by_field: dict[str, str] = {}
    for owner in reversed(section.__mro__):
        if issubclass(owner, Settings) and owner is not Settings:
            by_field |= _own_descriptions(owner)
    return by_field


@functools.cache
def _own_descriptions(section: type[Settings]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    statements = definition.body if isinstance(definition, ast.ClassDef) else []
    by_field = {}
    for statement, following in pairwise(statements):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            by_field[statement.target.id] = inspect.cleandoc(str(following.value.value))
    return by_field
