"""A variant that answers, by its runtime alone: neither TensorFlow nor any code of a model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from trainer_module.errors import DataError, shorten
from trainer_module.export.variants.manifest import Format, Variant, VariantTensor, read_variant

ANSWERED = ("value", "scores", "embedding")
"""Of what a variant computes, what clients read as it is."""

Arrays = dict[str, np.ndarray]

RUNTIMES: Mapping[Format, tuple[str, str]] = {
    "litert": ("trainer_module.export.variants.litert", "ai-edge-litert"),
    "onnx": ("trainer_module.export.variants.onnx", "onnxruntime"),
}
"""By format, the module with the function `load`, and the package that it needs."""


class Session(Protocol):
    """A file, loaded by its runtime; may be asked by several threads at once."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by the names of the file's tensors, for inputs by those, [batch, ...] each."""


@dataclass(frozen=True)
class RunnableVariant:
    """A variant that is loaded; may be asked by several threads at once."""

    variant: Variant
    session: Session

    def predict(self, features: Mapping[str, np.ndarray]) -> Arrays:
        """What the signatures `eval` and `serving_raw` give as numbers, [batch, ...] each.

        Args:
          features: transformed, by name, [batch, ...] each; others than the variant's are left out.

        Raises:
          DataError: one is missing, or not of the shape or the kind of numbers that it has to be.
        """
        inputs = {tensor.tensor: _fitting(tensor, features) for tensor in self.variant.inputs}
        rows = {len(values) for values in inputs.values()}
        if len(rows) > 1:
            told = {tensor.name: len(inputs[tensor.tensor]) for tensor in self.variant.inputs}
            raise DataError(f"features have different numbers of rows: {told}.")
        if rows == {0}:  # Which no runtime is asked for: outputs of a row tell dtypes and shapes.
            some = {name: np.zeros((1, *v.shape[1:]), v.dtype) for name, v in inputs.items()}
            return {name: values[:0] for name, values in self._run(some).items()}
        return self._run(inputs)

    def _run(self, inputs: Arrays) -> Arrays:
        found = self.session.run(inputs)
        outputs = {tensor.name: found[tensor.tensor] for tensor in self.variant.outputs}
        if self.variant.bounds is not None:
            outputs["predictions"] = outputs["predictions"].clip(*self.variant.bounds)
        return outputs

    def answer(self, outputs: Mapping[str, np.ndarray]) -> Arrays:
        """What the signature `serving_raw` gives, from what `predict` does.

        `class` [batch] and `classes` [batch, n], as bytes, where the task has classes.
        """
        served = {name: outputs[name] for name in ANSWERED if name in outputs}
        if "value" in served and "quantiles" in outputs:
            served["quantiles"] = outputs["quantiles"]
        if "scores" in served and self.variant.classes:
            names = np.array([name.encode() for name in self.variant.classes], object)
            scores = served["scores"]
            served["class"] = names[scores.argmax(1)]
            served["classes"] = np.tile(names, (len(scores), 1))
        return served


def open_variant(
    folder: Path, threads: int = 1, providers: tuple[str, ...] = ()
) -> RunnableVariant:
    """Loads a variant.

    Args:
      folder: with its manifest and its file.
      threads: that compute one answer. One is quickest for small networks.
      providers: of ONNX Runtime, the first that can do an operation does it; the CPU without any.

    Raises:
      DataError: it is damaged, or its runtime is not installed.
    """
    variant = read_variant(folder)
    module, package = RUNTIMES[variant.format]
    try:
        load = importlib.import_module(module).load
        session = load(folder / variant.file, variant, threads, providers)
    except ImportError as error:
        raise DataError(
            f"{folder} needs the package {package}, which is not there ({error}): "
            "pip install 'scopeline[optimize]'"
        ) from None
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"{folder / variant.file} cannot be loaded by {package} "
            f"({shorten(error)}); it was made for {variant.runtime_version}."
        ) from None
    return RunnableVariant(variant, session)


def _fitting(tensor: VariantTensor, features: Mapping[str, np.ndarray]) -> np.ndarray:
    """A feature as the variant takes it."""
    if tensor.name not in features:
        raise DataError(
            f"feature {tensor.name!r} is missing; there are {', '.join(sorted(features))}."
        )
    values = np.asarray(features[tensor.name])
    shape = tensor.shape[1:]
    if values.shape[1:] != shape or not values.ndim:
        raise DataError(
            f"feature {tensor.name!r} is {list(values.shape)}, but has to be "
            f"[batch{''.join(f', {n}' for n in shape)}]."
        )
    if not np.can_cast(values.dtype, tensor.dtype, "same_kind"):
        raise DataError(f"feature {tensor.name!r} is {values.dtype}, but has to be {tensor.dtype}.")
    return np.ascontiguousarray(values, tensor.dtype)
