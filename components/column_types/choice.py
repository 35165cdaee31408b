"""What a column is taken for, and why; travels as an annotation of the column in the schema."""

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
_WITHOUT_VALUES = ("ignore", "date", "text")
"""Types of columns that are expected to have other values tomorrow."""


@dataclass(frozen=True)
class Choice:
    """The settings of a column, as `features` in a config would have them, and the reason."""

    settings: dict[str, Any]
    reason: str

    @property
    def type(self) -> str:
        """The name of the feature type."""
        return str(self.settings["type"])

    @property
    def is_by_dtype(self) -> bool:
        """Whether the column is what its numbers or its text make it."""
        return self.type in ("numeric", "categorical") and not self.is_written

    @property
    def is_written(self) -> bool:
        """Whether the column is of numbers in text."""
        return "written" in self.settings

    @property
    def is_ignored(self) -> bool:
        """Whether the model does not see the column."""
        return self.type == "ignore"


def annotate(schema: schema_pb2.Schema, choices: Mapping[str, Choice]) -> None:
    """Writes choices into a schema.

    Where other values are to be expected, those of the first data are no list to keep.
    """
    for feature in schema.feature:
        choice = choices.get(feature.name)
        if choice is None:
            continue
        feature.annotation.tag.append(json.dumps(choice.settings, separators=(",", ":")))
        feature.annotation.comment.append(choice.reason)
        if choice.type in _WITHOUT_VALUES or choice.is_written:
            feature.ClearField("domain_info")
            kept = [domain for domain in schema.string_domain if domain.name != feature.name]
            del schema.string_domain[:]
            schema.string_domain.extend(kept)


def read_choices(schema: schema_pb2.Schema, origin: str = "schema.pbtxt") -> dict[str, Choice]:
    """Returns the choices in a schema, by column; tags of other people's are none.

    Args:
      schema: that may have been edited.
      origin: its file, for messages.

    Raises:
      DataError: an annotation says what no column can be.
    """
    choices = {}
    for feature in schema.feature:
        tags = [tag for tag in feature.annotation.tag if tag.lstrip().startswith("{")]
        if tags:
            settings = _parse(tags[0], feature.name, origin)
            choices[feature.name] = Choice(settings, " ".join(feature.annotation.comment))
    return choices


def strip_choices(schema: schema_pb2.Schema, but: Collection[str] = ()) -> None:
    """Takes the choices out of a schema: what the columns are is somebody else's to say.

    Args:
      schema: is changed.
      but: columns whose choices stay.
    """
    for feature in schema.feature:
        if feature.name in but:
            continue
        others = [tag for tag in feature.annotation.tag if not tag.lstrip().startswith("{")]
        if len(others) < len(feature.annotation.tag):
            del feature.annotation.tag[:]
            feature.annotation.tag.extend(others)


def with_choices(custom_config: Mapping[str, Any], schema: schema_pb2.Schema) -> dict[str, Any]:
    """What Transform and Trainer are told, with the choices for columns that the config leaves out.

    Args:
      custom_config: as `TrainerSettings.to_custom_config` makes it.
      schema: with annotations.
    """
    settings = custom_config[SETTINGS_KEY]
    kind = settings.get("model", {}).get("kind")
    chosen = {
        name: _for_model(choice.settings, kind)
        for name, choice in read_choices(schema).items()
        if name not in (settings["label"], settings.get("weight"))
    }
    given = {n: _with_size(f, chosen.get(n, f)) for n, f in settings["features"].items()}
    features = {**chosen, **given}
    return {**custom_config, SETTINGS_KEY: {**settings, "features": features}}


def _with_size(given: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What a config gives for a column; of pictures without a size with the one that was chosen."""
    if given["type"] != "image" or chosen["type"] != "image" or given.get("height"):
        return dict(given)
    return {**chosen, **{key: value for key, value in given.items() if value is not None}}


def _for_model(settings: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    """Returns the settings, without how text is taken apart where the model knows one way alone."""
    spec = ZOO.get(kind or "")
    usual = spec.features.get(settings["type"], {}) if spec else {}
    return {k: value for k, value in settings.items() if k != "tokens" or k not in usual}


def _parse(tag: str, column: str, origin: str) -> dict[str, Any]:
    try:
        settings = json.loads(tag)
        _FEATURE.validate_python(settings)
    except json.JSONDecodeError as error:
        raise _unusable(tag, column, origin, f"it is no JSON ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise _unusable(tag, column, origin, f"{key}: {first['msg']}".lstrip(": ")) from None
    if is_own(settings["type"]):
        # The cache knows the code behind the types in the config, not in a schema.
        raise _unusable(tag, column, origin, "a type of yours is named under features: in the YAML")
    return dict(settings)


def _unusable(tag: str, column: str, origin: str, why: str) -> DataError:
    return DataError(
        f"{origin}: the annotation of column {column!r} is {tag}, by which it can be nothing: "
        f'{why}; right is, for instance, {{"type": "ignore"}}'
    )
