"""What the keys of a config mean, for its JSON Schema: the docstrings below the fields.

Pydantic can look for them itself, whenever a class is made. That takes each command a second once
TensorFlow is imported, as it goes through all modules, and only the schema needs them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from trainer_module.sections import DOCSTRING, Settings


def describe_keys(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Adds the descriptions of all keys to a model's JSON Schema.

    Args:
      schema: as pydantic made it of the model; changed in place.
      model: a section whose own sections, at any depth, are `Settings`.
    """
    definitions = {**schema["$defs"], model.__name__: schema}
    for section in _all_below(Settings):
        properties = definitions.get(section.__name__, {}).get("properties", {})
        described = _descriptions(section)
        for name, field in section.model_fields.items():
            key = field.alias or name
            if name in described and key in properties:
                text = properties[key].get("description", DOCSTRING)
                text = text.replace(DOCSTRING, described[name])
                properties[key] = dict(sorted({**properties[key], "description": text}.items()))


def _all_below(kind: type[Settings]) -> Iterator[type[Settings]]:
    for section in kind.__subclasses__():
        yield section
        yield from _all_below(section)


def _descriptions(section: type[Settings]) -> dict[str, str]:
    """By field, the docstring that follows it, in the class or in one that it inherits from."""
    found: dict[str, str] = {}
    for owner in reversed(section.__mro__):
        if issubclass(owner, Settings) and owner is not Settings:
            found |= _own_descriptions(owner)
    return found


def _own_descriptions(section: type[Settings]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    lines = definition.body if isinstance(definition, ast.ClassDef) else []
    found = {}
    for line, below in pairwise(lines):
        if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[line.target.id] = inspect.cleandoc(str(below.value.value))
    return found
