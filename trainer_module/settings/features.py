"""What a column means to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, Union

from pydantic import TypeAdapter, WrapValidator

from trainer_module.features import FEATURES
from trainer_module.features.base import BaseFeature
from trainer_module.features.own import OwnFeature, is_own
from trainer_module.sections import Registered, tagged_union


def _any_of(features: dict[str, str]) -> Any:
    """A mapping with the options of a type, which its key `type` names."""
    registered = tagged_union(features.values(), "type")
    adapter = TypeAdapter[Any](registered)

    def validate(value: Any, handler: Any) -> Any:
        """By the one type that is meant, so that messages are about it alone."""
        del handler
        kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
        if isinstance(kind, str) and is_own(kind):
            return OwnFeature.model_validate(value)
        return adapter.validate_python(value)

    either: Any = Union[registered, OwnFeature]  # noqa: UP007 - of a value
    return Annotated[either, WrapValidator(validate)]


Feature: TypeAlias = Annotated[BaseFeature, Registered(FEATURES, _any_of)]
