"""The numeric part of an exported model, which converters convert, and a converter's result."""

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
"""The output of a classifier with the probability of each class."""


@dataclass(frozen=True)
class ConvertedFile:
    """The result of a converter, for the manifest."""

    format: Format
    precision: str
    path: Path
    extra_files: tuple[str, ...] = ()
    """The names of additional files that the converted file needs."""
    provider: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The settings of ONNX Runtime's execution provider, by the provider's name."""
    trtexec: str = ""
    """The command that builds a TensorRT engine without ONNX Runtime, or an empty string."""
    notes: tuple[str, ...] = ()
    """Notes on the variant for the report."""


@dataclass(frozen=True)
class NumericModel:
    """The part of an exported model that can be converted: from transformed features to outputs."""

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
        """The outputs of the model. Converted files have the same names of outputs.

        The probabilities of a classifier come first, also in LiteRT files, because programs that
        ignore the manifest read the first output.
        """
        outputs = self.function.structured_outputs
        names = sorted(outputs, key=lambda name: (name != PROBABILITIES, name))
        return tuple(
            VariantTensor(name, name, outputs[name].dtype.name, (None, *outputs[name].shape[1:]))
            for name in names
        )

    def predict(self, features: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs that TensorFlow computes, by name."""
        tensors = {f.request: tf.constant(features[f.name]) for f in self.interface.features}
        return {name: value.numpy() for name, value in self.function(**tensors).items()}

    def select_features(self, sample: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the features of the model from a sample, by name and in the model's dtypes.

        Raises:
          TrainingError: the sample has no examples, or lacks a feature.
        """
        missing = [f.name for f in self.interface.features if f.name not in sample]
        if missing:
            raise TrainingError(
                f"the sample of the train split lacks the feature {missing[0]!r} of the model: the "
                "sample comes from another transform graph than the model."
            )
        selected = {f.name: np.asarray(sample[f.name], f.dtype) for f in self.interface.features}
        if not selected or not min(map(len, selected.values())):
            raise TrainingError(
                "the sample of the train split has no examples to calibrate and check a variant: "
                "the train split must not be empty."
            )
        return selected


def load_numeric_model(saved_model: Path) -> NumericModel:
    """Loads an exported model.

    Raises:
      TrainingError: the model is damaged, or was not exported by this project's export.
    """
    try:
        interface = read_interface(saved_model)
    except DataError as error:
        raise TrainingError(f"the model cannot be converted: {error}") from None
    loaded = _load(saved_model)
    if FROM_TRANSFORMED_SIGNATURE not in loaded.signatures:
        raise TrainingError(
            f"{saved_model} lacks the signature {FROM_TRANSFORMED_SIGNATURE!r}, which conversions "
            "need: export the model with trainer_module.export.saving.export_model."
        )
    return NumericModel(loaded.signatures[FROM_TRANSFORMED_SIGNATURE], interface, loaded)


def _load(saved_model: Path) -> Any:
    try:
        return load_exported(str(saved_model))
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        raise TrainingError(f"{saved_model} cannot be loaded: {error}") from error
