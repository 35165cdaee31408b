"""The numeric part of an exported model, which is converted, and what a conversion gives."""

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
"""The output of a task with classes that has a column for each."""


@dataclass(frozen=True)
class ConvertedFile:
    """A converted file, of which a manifest is made."""

    format: Format
    precision: str
    path: Path
    beside: tuple[str, ...] = ()
    """Names of further files that it needs."""
    provider: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trtexec: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NumericModel:
    """What can be converted of a model."""

    function: Any
    """The concrete function of the signature `from_transformed`."""
    interface: ModelInterface
    trackable: Any
    """Holds the variables that the function uses, for converters that ask for it."""

    @property
    def inputs(self) -> tuple[VariantTensor, ...]:
        """The features."""
        return tuple(
            VariantTensor(f.name, f.request, f.dtype, (None, *f.shape))
            for f in self.interface.features
        )

    @property
    def outputs(self) -> tuple[VariantTensor, ...]:
        """What comes out, by name; files call them the same.

        Of a classifier the first are the probabilities of its classes, as in LiteRT's files: who
        runs one without its manifest takes the first output.
        """
        found = self.function.structured_outputs
        names = sorted(found, key=lambda name: (name != PROBABILITIES, name))
        return tuple(
            VariantTensor(name, name, found[name].dtype.name, (None, *found[name].shape[1:]))
            for name in names
        )

    def predict(self, features: Mapping[str, np.ndarray]) -> Arrays:
        """What TensorFlow gives, by the name of the output."""
        tensors = {f.request: tf.constant(features[f.name]) for f in self.interface.features}
        return {name: value.numpy() for name, value in self.function(**tensors).items()}

    def fitting(self, sample: Mapping[str, np.ndarray]) -> Arrays:
        """Examples by the names of the features, with the dtype of each.

        Raises:
          TrainingError: there are none, or a feature is missing.
        """
        missing = [f.name for f in self.interface.features if f.name not in sample]
        if missing:
            raise TrainingError(
                f"the sample of the train split lacks the feature {missing[0]!r}, which the model "
                "asks for: the transformed examples are not those that it was trained on."
            )
        found = {f.name: np.asarray(sample[f.name], f.dtype) for f in self.interface.features}
        if not found or not min(map(len, found.values())):
            raise TrainingError(
                "the sample of the train split has no example, by which a variant is calibrated "
                "and checked: see that the train split is not empty."
            )
        return found


def load_numeric(saved_model: Path) -> NumericModel:
    """Loads an exported model.

    Raises:
      TrainingError: it was exported by other code than ours, or is damaged.
    """
    try:
        interface = read_interface(saved_model)
    except DataError as error:
        raise TrainingError(f"no variant can be made of the model: {error}") from None
    loaded = _load(saved_model)
    if FROM_TRANSFORMED_SIGNATURE not in loaded.signatures:
        raise TrainingError(
            f"{saved_model} has no signature {FROM_TRANSFORMED_SIGNATURE!r}, of which variants are "
            "made: export it by trainer_module.export.saving.export_model."
        )
    return NumericModel(loaded.signatures[FROM_TRANSFORMED_SIGNATURE], interface, loaded)


def _load(saved_model: Path) -> Any:
    try:
        return load_exported(str(saved_model))
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        raise TrainingError(f"{saved_model} cannot be loaded: {error}") from error
