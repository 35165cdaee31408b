"""The registry of feature types.

Importing this package, or the module of a feature type, does not import TensorFlow. The check of a
config is therefore fast.
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

For a transformed tensor without settings, the first type whose `matches` returns True is used."""


def feature_class(kind: str) -> type[BaseFeature]:
    """Returns the class of a feature type.

    Args:
      kind: the value of `type`: a name in FEATURES, or the import path of the user's class.
    """
    if is_own(kind):
        return load_feature(kind)
    feature_type: type[BaseFeature] = import_registered(FEATURES[kind])
    return feature_type
