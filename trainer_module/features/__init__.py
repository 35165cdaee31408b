"""The registry of feature types.

Importing this package, or a type's module, does not import TensorFlow, so that a config is checked
quickly.
"""

from __future__ import annotations

from trainer_module.features.base import BaseFeature
from trainer_module.features.own import is_own, load_feature
from trainer_module.sections import import_registered

_FEATURES = "trainer_module.features"
FEATURES = {
    "numeric": f"{_FEATURES}.numeric.NumericFeature",
    "categorical": f"{_FEATURES}.categorical.CategoricalFeature",
    "boolean": f"{_FEATURES}.numeric.BooleanFeature",
    "cross": f"{_FEATURES}.categorical.CrossFeature",
    "date": f"{_FEATURES}.date.DateFeature",
    "image": f"{_FEATURES}.image.ImageFeature",
    "sequence": f"{_FEATURES}.numeric.SequenceFeature",
    "text": f"{_FEATURES}.text.text.TextFeature",
    "ignore": f"{_FEATURES}.base.IgnoredFeature",
}
"""The import paths of the feature types by the name in `type`.

A transformed tensor without settings is of the first type in this order that matches."""


def feature_class(kind: str) -> type[BaseFeature]:
    """Returns the class of a feature type, by its name in the config or its import path."""
    if is_own(kind):
        return load_feature(kind)
    found: type[BaseFeature] = import_registered(FEATURES[kind])
    return found
