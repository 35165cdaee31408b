"""A variant that serves by itself: transformed features in, without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.serving.servable import Arrays, FeatureColumn
from components.serving.variants import open_named
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface, RawDtype, read_interface
from trainer_module.export.variants.manifest import Format, VariantTensor
from trainer_module.export.variants.running import RunnableVariant

_PLATFORMS: dict[Format, str] = {"litert": "litert_tflite", "onnx": "onnxruntime_onnx"}


@dataclass(frozen=True, eq=False)
class TransformedModel:
    """A variant of a version, asked for what Transform has made of the columns."""

    folder: Path
    interface: ModelInterface
    variant: RunnableVariant
    outputs: dict[str, tuple[str, tuple[int | None, ...]]]
    takes_examples: bool = False

    @property
    def platform(self) -> str:
        """What it runs on, as Triton calls it."""
        return _PLATFORMS[self.variant.variant.format]

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Answers by name for features by name, of [batch] or [batch, width] each."""
        features = {
            tensor.name: columns[tensor.name]
            .reshape(-1, *_shape(tensor))
            .astype(tensor.dtype, copy=False)
            for tensor in self.variant.variant.inputs
        }
        return self.variant.answer(self.variant.predict(features))

    def predict_examples(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Raises DataError: tf.Examples hold columns, which only TensorFlow transforms."""
        raise DataError(
            f"this server takes transformed features ({', '.join(self.interface.by_request)}), and"
            " no tf.Examples: ask one that was started without --transformed."
        )


def load_transformed(version: Path, variant: str) -> TransformedModel:
    """Loads a variant of a version, and nothing else of it.

    Args:
      version: its folder.
      variant: its name.

    Raises:
      ConfigError: the version has no such variant.
      DataError: it is damaged, or its runtime is not there.
    """
    given = read_interface(version)
    opened = open_named(version, variant, given)
    inputs = opened.variant.inputs
    interface = ModelInterface(
        tuple(_to_column(tensor) for tensor in inputs),
        given.label,
        given.label_dtype,
        given.task,
        classes=given.classes,
    )
    row = {t.name: np.zeros((1, *_shape(t)), t.dtype) for t in inputs}
    answers = opened.answer(opened.predict(row))
    outputs = {name: _describe(values) for name, values in sorted(answers.items())}
    return TransformedModel(version, interface, opened, outputs)


def _shape(tensor: VariantTensor) -> tuple[int, ...]:
    """Of one row, of which every size is known."""
    return tuple(size or 1 for size in tensor.shape[1:])


def _to_column(tensor: VariantTensor) -> FeatureColumn:
    is_whole = np.issubdtype(np.dtype(tensor.dtype), np.integer)
    dtype: RawDtype = "int64" if is_whole else "float32"
    shape = _shape(tensor)
    return FeatureColumn(
        tensor.name, tensor.name, dtype, is_whole, int(np.prod(shape)), shape=shape
    )


def _describe(values: np.ndarray) -> tuple[str, tuple[int | None, ...]]:
    dtype = "string" if values.dtype == object else values.dtype.name
    return dtype, (None, *values.shape[1:])
