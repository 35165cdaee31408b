"""The signature of a model without its transform graph: numbers in, numbers out.

Variants for other runtimes are made of it, which have neither strings nor vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from trainer_module.exported.interface import ModelInput, request_names
from trainer_module.problem import Problem

FROM_TRANSFORMED_SIGNATURE = "from_transformed"
"""Transformed features in, a tensor each; out come all numbers that are measured and served."""

Tensors = dict[str, tf.Tensor]


def numeric_signature(
    apply: Callable[[Tensors], tf.Tensor], problem: Problem
) -> tf.types.experimental.GenericFunction:
    """The signature of a model.

    Args:
      apply: from transformed features, by name, to the model's output.
      problem: for what is made of that.
    """
    inputs, target = describe_features(problem), problem.target
    specs = {
        feature.request: tf.TensorSpec([None, *feature.shape], feature.dtype, name=feature.request)
        for feature in inputs
    }

    @tf.function(autograph=False, input_signature=[specs])
    def from_transformed(tensors: Tensors) -> Tensors:
        output = apply({feature.name: tensors[feature.request] for feature in inputs})
        served = target.served(output, problem)
        numbers = {name: value for name, value in served.items() if value.dtype != tf.string}
        return {**numbers, **target.measured(output)}

    return from_transformed


def describe_features(problem: Problem) -> tuple[ModelInput, ...]:
    """What the network asks for, in the order of the problem's features."""
    requests = request_names(feature.name for feature in problem.features)
    return tuple(
        ModelInput(feature.name, request, feature.dtype.name, feature.shape)
        for feature, request in zip(problem.features, requests, strict=True)
    )
