"""What a column means to the model."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from trainer_module.features import FEATURES
from trainer_module.features.base import BaseFeature
from trainer_module.sections import Registered, tagged_union


def _any_of(features: dict[str, str]) -> Any:
    """A mapping with the options of a type, which its key `type` names."""
    return tagged_union(features.values(), "type")


Feature: TypeAlias = Annotated[BaseFeature, Registered(FEATURES, _any_of)]
