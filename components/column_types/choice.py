"""The chosen type of a column and the reason for the choice.

The schema stores both as an annotation of the column.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from tensorflow_metadata.proto.v0 import schema_pb2

from trainer_module.errors import DataError
from trainer_module.features.own import is_own
from trainer_module.settings import SETTINGS_KEY, Feature
from trainer_module.settings.model import ZOO

_FEATURE: TypeAdapter[Any] = TypeAdapter(Feature)
_OPEN_TYPES = ("ignore", "date", "text")
"""The types of columns in which new values are expected, so that the schema lists no values."""


@dataclass(frozen=True)
class Choice:
    """The settings of a column, in the form of `features` in a config, and the reason."""

    settings: dict[str, Any]
    reason: str

    @property
    def type(self) -> str:
        """The name of the feature type."""
        return str(self.settings["type"])

    @property
    def is_by_dtype(self) -> bool:
        """Whether the type is the default of the column's dtype: numeric or categorical."""
        is_default = self.type in ("numeric", "categorical") and not self.is_number_text
        return is_default and not self.has_words

    @property
    def has_words(self) -> bool:
        """Whether the words of the values are inputs beside the category."""
        return "words" in self.settings

    @property
    def is_number_text(self) -> bool:
        """Whether the column holds numbers that are written as text, such as `$1,200`."""
        return "written" in self.settings

    @property
    def is_ignored(self) -> bool:
        """Whether the column is not an input of the model."""
        return self.type == "ignore"


def annotate(schema: schema_pb2.Schema, choices: Mapping[str, Choice]) -> None:
    """Writes choices into a schema.

    The function removes the list of values of columns in which new values are expected.
    """
    for feature in schema.feature:
        choice = choices.get(feature.name)
        if choice is None:
            continue
        feature.annotation.tag.append(json.dumps(choice.settings, separators=(",", ":")))
        feature.annotation.comment.append(choice.reason)
        if choice.type in _OPEN_TYPES or choice.is_number_text or choice.has_words:
            feature.ClearField("domain_info")
            kept = [domain for domain in schema.string_domain if domain.name != feature.name]
            del schema.string_domain[:]
            schema.string_domain.extend(kept)


def read_choices(schema: schema_pb2.Schema, origin: str = "schema.pbtxt") -> dict[str, Choice]:
    """Returns the choices in a schema, by column. Tags that are not JSON objects are ignored.

    Raises:
      DataError: an annotation is not the valid settings of a feature.
    """
    choices = {}
    for feature in schema.feature:
        tags = [tag for tag in feature.annotation.tag if tag.lstrip().startswith("{")]
        if tags:
            settings = _parse(tags[0], feature.name, origin)
            choices[feature.name] = Choice(settings, " ".join(feature.annotation.comment))
    return choices


def strip_choices(schema: schema_pb2.Schema, except_columns: Collection[str] = ()) -> None:
    """Removes the choices from a schema."""
    for feature in schema.feature:
        if feature.name in except_columns:
            continue
        others = [tag for tag in feature.annotation.tag if not tag.lstrip().startswith("{")]
        if len(others) < len(feature.annotation.tag):
            del feature.annotation.tag[:]
            feature.annotation.tag.extend(others)


def with_choices(custom_config: Mapping[str, Any], schema: schema_pb2.Schema) -> dict[str, Any]:
    """Returns the `custom_config` of Transform and Trainer with the schema's choices added.

    Args:
      custom_config: the result of `TrainerSettings.to_custom_config`.
    """
    settings = custom_config[SETTINGS_KEY]
    kind = settings.get("model", {}).get("kind")
    inferred = {
        name: _for_model(choice.settings, kind)
        for name, choice in read_choices(schema).items()
        if name not in (settings["label"], settings.get("weight"))
    }
    declared = {n: _with_size(f, inferred.get(n, f)) for n, f in settings["features"].items()}
    features = {**inferred, **declared}
    return {**custom_config, SETTINGS_KEY: {**settings, "features": features}}


def _with_size(declared: Mapping[str, Any], inferred: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the declared settings of a column.

    If the config declares an image without a size, the chosen settings complete the declared ones.
    """
    if declared["type"] != "image" or inferred["type"] != "image" or declared.get("height"):
        return dict(declared)
    return {**inferred, **{key: value for key, value in declared.items() if value is not None}}


def _for_model(settings: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    """Returns the settings, without `tokens` if the model has its own tokenization."""
    spec = ZOO.get(kind or "")
    defaults = spec.features.get(settings["type"], {}) if spec else {}
    return {k: value for k, value in settings.items() if k != "tokens" or k not in defaults}


def _parse(tag: str, column: str, origin: str) -> dict[str, Any]:
    try:
        settings = json.loads(tag)
        _FEATURE.validate_python(settings)
    except json.JSONDecodeError as error:
        raise _unusable(tag, column, origin, f"the annotation is not JSON ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise _unusable(tag, column, origin, f"{key}: {first['msg']}".lstrip(": ")) from None
    if is_own(settings["type"]):
        # Cache keys include the code of types in the config, but not of types in a schema.
        reason = "types of your own code must be declared under features: in the YAML"
        raise _unusable(tag, column, origin, reason)
    return dict(settings)


def _unusable(tag: str, column: str, origin: str, reason: str) -> DataError:
    return DataError(
        f"{origin}: the annotation of column {column!r} is {tag}, which is not a valid feature:"
        f' {reason}. Expected settings such as {{"type": "ignore"}}'
    )
