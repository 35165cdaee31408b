"""Shared parts of all sections of a config: `Settings`, patterns of strings, and registry keys.

A registry is a dictionary by name. Each check of a value and each JSON Schema reads the allowed
values of a key from the registry, so a new entry of a registry needs no other change.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from trainer_module.errors import TrainingError


def load_own(role: str, path: str) -> Any:
    """Returns a user's function or class.

    Args:
      role: the purpose of the function or class, for messages.
      path: the import path, `module.name`.

    Raises:
      TrainingError: the module cannot be imported or lacks the name.
    """
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise TrainingError(f"{role} {path!r}: cannot import {module_name!r}: {error}.") from error
    loaded = getattr(module, name, None)
    if not callable(loaded):
        raise TrainingError(f"{role} {path!r}: module {module_name!r} has no function {name!r}.")
    return loaded


def count_needed(function: Callable[..., Any]) -> int:
    """Returns the number of a function's or class's positional arguments without a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is inspect.Parameter.empty and p.kind in kinds for p in parameters)


def call_own(role: str, path: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of a user's function.

    Args:
      role: the purpose of the function, for messages.
      path: the import path of the function.
      function: the function.
      arguments: the arguments of the call.

    Raises:
      TrainingError: the function takes other arguments, or raises an error.
    """
    try:
        return function(*arguments)
    except Exception as error:
        call = f"({', '.join(map(repr, arguments))})"
        raise TrainingError(
            f"{role} {path!r}, called with {call}: {type(error).__name__}: {error}."
        ) from error


DOCSTRING = "{docstring}"
"""A placeholder for the field's docstring in the description that `json_schema_extra` sets."""


class Settings(BaseModel):
    """The base class of all sections, which are immutable and reject unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, serialize_by_alias=True, allow_inf_nan=False
    )


@dataclass(frozen=True)
class Matching:
    """An annotation of a string that must match a pattern.

    The JSON Schema contains the regular expression; error messages contain the words.
    """

    pattern: str
    words: str
    """The error message: a description of valid values, without the value that was found."""

    def check(self, text: str) -> str:
        """Returns the text, or raises ValueError with the words if the text does not match."""
        if not re.fullmatch(self.pattern, text):
            raise ValueError(self.words)
        return text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        words = f"{self.words[0].upper()}{self.words[1:]}."
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$", "patternErrorMessage": words}


class NameOrPath:
    """An annotation of a string that is a name, or an import path of the user's code.

    The JSON Schema contains the names. A rule of the config checks the value, as the names may
    depend on the task.

    Args:
      describe: a function that returns the names with their descriptions.
    """

    def __init__(self, describe: Callable[[], Mapping[str, str]]) -> None:
        self._describe = describe

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        texts = self._describe()
        names = {"enum": [*texts], "markdownEnumDescriptions": [*texts.values()]}
        path = {"pattern": r"\.", "patternErrorMessage": "Expected a known name or an import path."}
        return {"anyOf": [{"type": "string", **kind} for kind in (names, path)]}


def refuse_keys(
    schema: dict[str, Any], kinds: Collection[str], keys: Mapping[str, Any], tag: str = "kind"
) -> None:
    """Adds to a section's JSON Schema that some kinds exclude keys.

    Args:
      schema: the JSON Schema of the section; changed in place.
      kinds: values of the key that names the kind.
      keys: by excluded key the only value that it may have, which has no effect.
      tag: the key that names the kind.
    """
    has_default = schema["properties"][tag].get("default") in kinds
    condition: dict[str, Any] = {"properties": {tag: {"enum": sorted(kinds)}}}
    condition |= {} if has_default else {"required": [tag]}
    unread = {
        key: {
            "const": value,
            "errorMessage": f"This {tag} does not read the key {key}.",
            "doNotSuggest": True,
        }
        for key, value in keys.items()
    }
    schema.setdefault("allOf", []).append({"if": condition, "then": {"properties": unread}})


class Registered:
    """An annotation of a key whose type follows from a registry.

    Args:
      registry: the registry, read anew for every value.
      make_type: a function from the registry's items to the type that pydantic checks values
        against.
    """

    def __init__(
        self, registry: Mapping[str, Any], make_type: Callable[[dict[str, Any]], Any]
    ) -> None:
        self._registry = registry
        self._make_type = make_type
        self._adapter_of = functools.lru_cache(maxsize=8)(self._make_adapter)

    def _make_adapter(self, items: tuple[tuple[str, Any], ...]) -> TypeAdapter[Any]:
        return TypeAdapter(self._make_type(dict(items)))

    def _adapter(self) -> TypeAdapter[Any]:
        return self._adapter_of(tuple(self._registry.items()))

    def _validate(self, value: Any) -> Any:
        return self._adapter().validate_python(value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        del schema
        return handler(self._adapter().core_schema)


class RegisteredName(Registered):
    """An annotation of a string that is a name in a registry.

    Args:
      registry: the registry, whose keys are the names.
      title: the title of the enumeration in the JSON Schema.
      description: the description of the enumeration in the JSON Schema.
    """

    def __init__(self, registry: Mapping[str, Any], title: str, description: str) -> None:
        # The value is a plain string, because Beam cannot pickle an enumeration made at run time.
        to_text = AfterValidator(lambda member: str(member.value))
        super().__init__(
            registry, lambda names: Annotated[names_enum(title, description, names), to_text]
        )

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        del source
        return core_schema.no_info_wrap_validator_function(
            lambda value, _: self._validate(value),
            # This schema is never called. It makes the JSON Schema refer to an enumeration.
            handler.generate_schema(self._make_type(dict(self._registry))),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )


def names_enum(title: str, description: str, registry: Mapping[str, Any]) -> type[StrEnum]:
    """Returns an enumeration of a registry's names for the JSON Schema."""
    enum = StrEnum(title, {name.upper(): name for name in registry})  # type: ignore[misc]
    enum.__doc__ = description
    described = {name: describe_entry(entry) for name, entry in registry.items()}
    setattr(enum, MEMBER_DESCRIPTIONS, described)
    return enum


MEMBER_DESCRIPTIONS = "member_descriptions"
"""The attribute of an enumeration made by `names_enum` with the descriptions of its members."""


def describe_entry(entry: Any) -> str:
    """Returns a sentence about an entry of a registry.

    Args:
      entry: an object with the attribute `description`, or the import path of a class, whose
        docstring begins with the sentence.
    """
    if isinstance(entry, str):
        words = " ".join((import_registered(entry).__doc__ or "").split())
        return re.split(r"(?<=\.) (?=[A-Z])", words)[0]
    return str(getattr(entry, "description", ""))


def tagged_union(paths: Iterable[str], key: str) -> Any:
    """Returns a union of sections that a key discriminates.

    Args:
      paths: the import paths of the sections' classes.
      key: the discriminating key, whose type is a literal in each class.
    """
    members: Any = tuple(import_registered(path) for path in paths)
    return Annotated[Union[members], Field(discriminator=key)]  # noqa: UP007 - a tuple


def named_or_mapping(title: str, description: str, paths: Mapping[str, str]) -> Any:
    """Returns the type of a key that takes a registered name, or a mapping with `kind` and options.

    Args:
      title: the title of the enumeration, in the JSON Schema, of the names that need no options.
      description: the description of the enumeration in the JSON Schema.
      paths: the import paths of the sections' classes by name.
    """
    mapping = tagged_union(paths.values(), "kind")
    alone = {name: path for name, path in paths.items() if not _required_options(path)}
    named = names_enum(title, description, alone) | mapping
    return Annotated[mapping, BeforeValidator(_as_mapping, json_schema_input_type=named)]


def _required_options(path: str) -> list[str]:
    """Returns the keys without a default of a section, besides `kind`."""
    fields = import_registered(path).model_fields
    return [name for name, field in fields.items() if field.is_required() and name != "kind"]


def _as_mapping(value: Any) -> Any:
    """Returns a mapping with only `kind` for a name; returns any other value unchanged."""
    return {"kind": value} if isinstance(value, str) else value


def import_registered(path: str) -> Any:
    """Returns the object at a registry's import path `module.name`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
