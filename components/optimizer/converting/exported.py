"""The numeric part of an exported model, which is converted, and the result of a conversion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.errors import DataError, TrainingError
from trainer_module.export.interface import ModelInterface, read_interface
from trainer_module.export.loading import load_exported
from trainer_module.export.saving import FROM_TRANSFORMED_SIGNATURE
from trainer_module.export.variants.manifest import Format, VariantTensor

Arrays = dict[str, np.ndarray]

PROBABILITIES = "scores"
"""The output of a classifier that has a column for each class."""


@dataclass(frozen=True)
class ConvertedFile:
    """A converted file, for which a manifest is written."""

    format: Format
    precision: str
    path: Path
    beside: tuple[str, ...] = ()
    """The names of further files that it needs."""
    provider: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trtexec: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NumericModel:
    """The part of a model that can be converted."""

    function: Any
    """The concrete function of the signature `from_transformed`."""
    interface: ModelInterface
    trackable: Any
    """The object that holds the function's variables, for converters that require it."""

    @property
    def inputs(self) -> tuple[VariantTensor, ...]:
        """The features of the model."""
        return tuple(
            VariantTensor(f.name, f.request, f.dtype, (None, *f.shape))
            for f in self.interface.features
        )

    @property
    def outputs(self) -> tuple[VariantTensor, ...]:
        """The outputs of the model; converted files use the same names.

        A classifier's probabilities are first, as in LiteRT's files: programs that run a file
        without its manifest take the first output.
        """
        found = self.function.structured_outputs
        names = sorted(found, key=lambda name: (name != PROBABILITIES, name))
        return tuple(
            VariantTensor(name, name, found[name].dtype.name, (None, *found[name].shape[1:]))
            for name in names
        )

    def predict(self, features: Mapping[str, np.ndarray]) -> Arrays:
        """Returns TensorFlow's outputs by name."""
        tensors = {f.request: tf.constant(features[f.name]) for f in self.interface.features}
        return {name: value.numpy() for name, value in self.function(**tensors).items()}

    def select_features(self, sample: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the sample's features that the model takes, by name and in their dtypes.

        Raises:
          TrainingError: there are no examples, or a feature is missing.
        """
        missing = [f.name for f in self.interface.features if f.name not in sample]
        if missing:
            raise TrainingError(
                f"the sample of the train split lacks the feature {missing[0]!r} of the model: the "
                "model was trained on other transformed examples."
            )
        found = {f.name: np.asarray(sample[f.name], f.dtype) for f in self.interface.features}
        if not found or not min(map(len, found.values())):
            raise TrainingError(
                "the sample of the train split has no examples to calibrate and check a variant: "
                "make sure that the train split is not empty."
            )
        return found


def load_numeric_model(saved_model: Path) -> NumericModel:
    """Loads an exported model.

    Raises:
      TrainingError: other code has exported the model, or it is damaged.
    """
    try:
        interface = read_interface(saved_model)
    except DataError as error:
        raise TrainingError(f"the model cannot be converted: {error}") from None
    loaded = _load(saved_model)
    if FROM_TRANSFORMED_SIGNATURE not in loaded.signatures:
        raise TrainingError(
            f"{saved_model} lacks the signature {FROM_TRANSFORMED_SIGNATURE!r}, which a conversion "
            "needs: export the model by trainer_module.export.saving.export_model."
        )
    return NumericModel(loaded.signatures[FROM_TRANSFORMED_SIGNATURE], interface, loaded)


def _load(saved_model: Path) -> Any:
    try:
        return load_exported(str(saved_model))
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        raise TrainingError(f"{saved_model} cannot be loaded: {error}") from error
