"""A variant asked in the place of its model, by signatures of the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.errors import DataError
from trainer_module.export.saving import (
    EVAL_LABEL_SIGNATURE,
    EVAL_SIGNATURE,
    TRANSFORM_SIGNATURE,
)
from trainer_module.export.variants.running import RunnableVariant, open_variant


def answer_by_variant(exported: Any, folder: str) -> tf.Module:
    """Something with the signatures of a model that evaluation asks, answered by a variant.

    Args:
      exported: the model, loaded: it parses and transforms, and knows the label.
      folder: of the variant.

    Raises:
      DataError: the variant is damaged, or its runtime is not installed.
    """
    module = tf.Module()
    module.exported = exported
    module.signatures = {
        EVAL_SIGNATURE: _make_signature(exported, open_variant(Path(folder))),
        EVAL_LABEL_SIGNATURE: exported.signatures[EVAL_LABEL_SIGNATURE],
    }
    return module


def _make_signature(exported: Any, runnable: RunnableVariant) -> Any:
    """From serialised examples to what the signature `eval` gives, by way of a variant."""
    names = [tensor.name for tensor in runnable.variant.inputs]
    specs = exported.signatures[EVAL_SIGNATURE].structured_outputs
    outputs = list(specs)
    transform = exported.signatures[TRANSFORM_SIGNATURE]

    def ask(*values: np.ndarray) -> list[np.ndarray]:
        found = runnable.predict(dict(zip(names, values, strict=True)))
        for name in outputs:
            if not np.isfinite(found[name]).all():
                raise DataError(f"it gives NaN or infinity as {name!r}, on the eval split")
        return [found[name].astype(specs[name].dtype.as_numpy_dtype) for name in outputs]

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="examples")]
    )
    def evaluate_variant(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        transformed = transform(examples=examples)
        values = tf.numpy_function(
            ask, [transformed[name] for name in names], [specs[name].dtype for name in outputs]
        )
        for name, value in zip(outputs, values, strict=True):
            value.set_shape(specs[name].shape)
        return dict(zip(outputs, values, strict=True))

    return evaluate_variant.get_concrete_function()
