"""The JSON Schema of a config, by which editors complete, explain and check its keys.

The schema accepts the values that `plan` accepts, except for rules between sections and values that
only a validator can check, such as a cron expression.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from pipeline.config.schema_file import COMMENT
from pipeline.config.settings import PipelineConfig
from trainer_module.sections import DOCSTRING, MEMBER_DESCRIPTIONS, Settings
from trainer_module.settings.durations import show_duration

_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "y", "n", "t", "f")
"""The words that a config may use for true and false; editors read most of them as text."""


def config_schema() -> str:
    """Returns the JSON Schema of a config file for editors."""
    schema = described_schema(_EditorSchema)
    sections = (schema, *schema["$defs"].values())
    for section in sections:
        for value in section.get("properties", {}).values():
            _describe_for_hover(value, section, schema["$defs"])
    for section in sections:
        # Editors show these texts in place of the text of the key that refers to the section.
        section.pop("title", None)
        if "enum" in section:
            section.pop("description", None)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$comment"] = COMMENT
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


class _PlainSchema(GenerateJsonSchema):
    """A schema generator that writes durations as a config does, such as 5m."""

    def encode_default(self, dft: Any) -> Any:
        """Returns a default; a duration as in a config, where Pydantic would write ISO 8601."""
        return show_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Returns the schema of a mapping, which refuses keys that a pattern does not match."""
        generated = super().dict_schema(schema)
        for pattern, values in generated.pop("patternProperties", {}).items():
            generated |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
        return generated


class _EditorSchema(_PlainSchema):
    """A schema generator that adds the details that editors show and check."""

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Returns the schema of an enumeration, with the descriptions of its members."""
        generated = super().enum_schema(schema)
        described = describe_members(schema["cls"])
        if described and "enum" in generated:
            texts = [described.get(value, "") for value in generated["enum"]]
            generated["markdownEnumDescriptions"] = texts
        return generated

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        """Returns the schema of a boolean, which also accepts the words of YAML 1.1."""
        forms = (form for word in _BOOLEANS for form in (word, word.title(), word.upper()))
        words = "|".join(dict.fromkeys(forms))
        return {
            **super().bool_schema(schema),
            "type": ["boolean", "string"],
            "pattern": f"^(?:{words})$",
            "errorMessage": "Expected true or false.",
        }

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Returns False, as a title that repeats the name of its key is noise in an editor."""
        del schema
        return False


def described_schema(generator: type[GenerateJsonSchema] = _PlainSchema) -> dict[str, Any]:
    """Returns the JSON Schema of configs, with the docstrings of fields as descriptions."""
    schema = PipelineConfig.model_json_schema(schema_generator=generator)
    describe_keys(schema, PipelineConfig)
    return schema


def _describe_for_hover(
    value: dict[str, Any], section: dict[str, Any], definitions: dict[str, Any]
) -> None:
    """Adds the text that an editor shows for a key: its description and its default.

    Args:
      value: the schema of the key; changed in place.
      section: the schema of the section that has the key.
      definitions: the schemas of all sections by name.
    """
    reference = value.get("$ref", "").rsplit("/", 1)[-1]
    owner = section if "const" in value else definitions.get(reference, {})
    text = " ".join((value.get("description") or owner.get("description", "")).split())
    default = value.get("default")
    if default is not None and "default" not in text.lower() and not isinstance(default, dict):
        shown = default if isinstance(default, str) else json.dumps(default)
        text += f"\n\nDefault: `{shown}`"
    value["description"] = value["markdownDescription"] = text


def describe_members(enum: type[Enum]) -> dict[Any, str]:
    """Returns the docstrings of an enumeration's members by value.

    An enumeration that is made of a registry has them in its attribute `MEMBER_DESCRIPTIONS`.
    """
    made = getattr(enum, MEMBER_DESCRIPTIONS, None)
    if made is not None:
        return dict(made)
    by_name = _docstrings(enum)
    return {member.value: by_name[member.name] for member in enum if member.name in by_name}


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
            by_field |= _docstrings(owner)
    return by_field


@functools.cache
def _docstrings(owner: type) -> dict[str, str]:
    """Returns the docstrings of a class's attributes by name, without inherited attributes."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    statements = definition.body if isinstance(definition, ast.ClassDef) else []
    by_name = {}
    for statement, following in pairwise(statements):
        target = getattr(statement, "target", None) or next(
            iter(getattr(statement, "targets", ())), None
        )
        if not isinstance(target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            by_name[target.id] = inspect.cleandoc(str(following.value.value))
    return by_name
