"""The signatures of an exported model: what each takes and gives."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.export.raw_inputs import (
    FROM_TRANSFORMED_SIGNATURE,
    Tensors,
    numeric_signature,
    raw_spec,
    raw_tensor_specs,
    to_raw_features,
    without_label,
)
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings

SERVING_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
"""Serialized tf.Examples in, predictions by name out."""

SERVING_RAW_SIGNATURE = "serving_raw"
"""One tensor per raw column in, predictions by name out."""

TRANSFORM_SIGNATURE = "transform_features"
"""Serialized tf.Examples in, transformed features and label out."""

SERVING_TRANSFORM_SIGNATURE = "serving_transform"
"""What SERVING_SIGNATURE takes in, transformed features out: what a variant is asked with."""

SERVING_RAW_TRANSFORM_SIGNATURE = "serving_raw_transform"
"""What SERVING_RAW_SIGNATURE takes in, transformed features out."""

EVAL_SIGNATURE = "eval"
"""Serialized tf.Examples in, the model's own output out: what evaluation compares to the label."""

EVAL_LABEL_SIGNATURE = "eval_label"
"""Serialized tf.Examples with their label in, the transformed label out, as `EVAL_LABEL`."""

EVAL_LABEL = "transformed_label"
"""Not the label's own name, so that evaluation can slice by the raw label."""

EXAMPLES = "examples"
"""Name of the input of serialized tf.Examples."""


def build_signatures(
    model: Callable[..., tf.Tensor],
    transform: Callable[[Tensors], Tensors],
    tft_output: tft.TFTransformOutput,
    problem: Problem,
    settings: TrainerSettings,
) -> dict[str, tf.types.experimental.GenericFunction]:
    """The signatures, by name, of anything callable like the model.

    They are traced when they are saved: TensorFlow puts replicated variables aside only then.

    Args:
      model: from transformed features to the output of the task; has an argument `training`.
      transform: the transform graph, tracked by the object that will be saved.
      tft_output: for the raw feature spec.
      problem: for the names of the transformed features and the classes.
      settings: for the label, the weight and the ignored columns, which no serving signature asks
          for.
    """
    labelled_spec = raw_spec(tft_output, settings)
    spec = without_label(labelled_spec, problem)
    names, target = [feature.name for feature in problem.features], problem.target

    # A function of its own, which the signatures share: a network of 200 layers takes seconds to
    # trace, and its graph is saved, and loaded by whoever serves it, once.
    @tf.function(autograph=False)
    def apply(features: Tensors) -> tf.Tensor:
        return model(features, training=False)

    # So are the features that several signatures begin with.
    def features_of(raw: Tensors) -> Tensors:
        transformed = transform(raw)
        return {name: transformed[name] for name in names}

    takes_examples = [tf.TensorSpec([None], tf.string, name=EXAMPLES)]
    takes_columns = [raw_tensor_specs(spec, settings)]

    @tf.function(autograph=False, input_signature=takes_examples)
    def serving_transform(examples: tf.Tensor) -> Tensors:
        return features_of(tf.io.parse_example(examples, spec))

    @tf.function(autograph=False, input_signature=takes_columns)
    def serving_raw_transform(columns: Tensors) -> Tensors:
        return features_of(to_raw_features(columns, spec))

    @tf.function(autograph=False, input_signature=takes_examples)
    def serving_default(examples: tf.Tensor) -> Tensors:
        return target.served(apply(serving_transform(examples)), problem)

    @tf.function(autograph=False, input_signature=takes_columns)
    def serving_raw(columns: Tensors) -> Tensors:
        return target.served(apply(serving_raw_transform(columns)), problem)

    @tf.function(autograph=False, input_signature=takes_examples)
    def transform_features(examples: tf.Tensor) -> Tensors:
        transformed = transform(tf.io.parse_example(examples, labelled_spec))
        return {name: transformed[name] for name in [*names, problem.label]}

    @tf.function(autograph=False, input_signature=takes_examples)
    def evaluate(examples: tf.Tensor) -> Tensors:
        return target.measured(apply(serving_transform(examples)))

    @tf.function(autograph=False, input_signature=takes_examples)
    def eval_label(examples: tf.Tensor) -> Tensors:
        label = transform_features(examples)[problem.label]
        return {EVAL_LABEL: target.measured_label(label, problem)}

    return {
        SERVING_SIGNATURE: serving_default,
        SERVING_RAW_SIGNATURE: serving_raw,
        FROM_TRANSFORMED_SIGNATURE: numeric_signature(apply, problem),
        SERVING_TRANSFORM_SIGNATURE: serving_transform,
        SERVING_RAW_TRANSFORM_SIGNATURE: serving_raw_transform,
        TRANSFORM_SIGNATURE: transform_features,
        EVAL_SIGNATURE: evaluate,
        EVAL_LABEL_SIGNATURE: eval_label,
    }
