"""Writes the SavedModel, and the descriptions of its weights and inputs in its folder."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.base_model import describe_model, write_description
from trainer_module.errors import TrainingError, shorten
from trainer_module.export.interface import (
    INTERFACE_FILE,
    ModelInput,
    ModelInterface,
    RawColumn,
    request_names,
)
from trainer_module.features.base import BaseFeature
from trainer_module.problem import Problem
from trainer_module.runtime import report_step
from trainer_module.scratch import ScratchFolder
from trainer_module.settings import (
    ImageFeature,
    ModelSettings,
    NumericFeature,
    TrainerSettings,
)
from trainer_module.settings.model import EMBEDDING, POOLER, PREDICTION

Tensors = dict[str, tf.Tensor]
Apply = Callable[[Mapping[str, tf.Tensor]], tuple[tf.Tensor, Tensors]]
"""A function from transformed features to the model's output, and to additional outputs by name."""


def apply_with_outputs(model: Any, problem: Problem, settings: ModelSettings) -> Apply:
    """Returns a function that calls a model and returns its output, and additional outputs by name.

    The config key `model.outputs` names the additional outputs.

    Args:
      model: the function from transformed features to the output of the task, with an argument
        `training`. If `settings.outputs` contains `embedding`, the model must be one of
        Scopeline's own Keras models.
      problem: the learning problem, which has the names of the columns.
      settings: the settings of the model.

    Returns:
      A function of features by name. Its only additional output is `embedding`, [batch, n] float32.
    """
    if EMBEDDING not in settings.outputs:
        return lambda features: (model(features, training=False), {})
    with_embedding = tf_keras.Model(
        model.input, [model.output, _embedding_of(model, problem, settings.kind)]
    )

    def apply(features: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, Tensors]:
        inputs = {name: features[name] for name in model.input}
        output, embedding = with_embedding(inputs, training=False)
        return output, {EMBEDDING: tf.cast(embedding, tf.float32)}

    return apply


def served(
    output: tf.Tensor,
    additional: Mapping[str, tf.Tensor],
    problem: Problem,
    settings: ModelSettings,
) -> Tensors:
    """Returns the outputs that clients read, by name, [batch, ...] each.

    Args:
      output: the output of the model.
      additional: the additional outputs, by name.
      problem: the learning problem, which interprets the output.
      settings: the settings of the model, whose `outputs` select the served outputs.
    """
    predicted = problem.target.served(output, problem) if PREDICTION in settings.outputs else {}
    return {**predicted, **additional}


def _embedding_of(model: tf_keras.Model, problem: Problem, kind: str) -> tf.Tensor:
    """Returns the embedding of the text, or the concatenated embeddings of the pictures, [batch,
    n].
    """
    if kind == "bert":
        return model.get_layer(POOLER).output
    names = [image.layer_name("features") for image in problem.of_kind("image")]
    parts = [model.get_layer(name).output for name in names]
    return tf_keras.layers.Concatenate()(parts) if len(parts) > 1 else parts[0]


FROM_TRANSFORMED_SIGNATURE = "from_transformed"
"""The signature from transformed features, with a tensor for each, to all numeric outputs."""

FeatureSpec = dict[str, tf.io.FixedLenFeature | tf.io.VarLenFeature | tf.io.RaggedFeature]


def numeric_signature(
    apply: Apply, problem: Problem, settings: ModelSettings
) -> tf.types.experimental.GenericFunction:
    """Returns the signature from transformed features to numbers.

    Args:
      apply: the function from transformed features, by name, to the model's output and additional
        outputs.
      problem: the learning problem, which interprets the output.
      settings: the settings of the model.
    """
    inputs, target = describe_features(problem), problem.target
    specs = {
        feature.request: tf.TensorSpec([None, *feature.shape], feature.dtype, name=feature.request)
        for feature in inputs
    }

    @tf.function(autograph=False, input_signature=[specs])
    def from_transformed(tensors: Tensors) -> Tensors:
        output, additional = apply({feature.name: tensors[feature.request] for feature in inputs})
        answer = served(output, additional, problem, settings)
        numbers = {name: value for name, value in answer.items() if value.dtype != tf.string}
        return {**numbers, **target.measured(output)}

    return from_transformed


def describe_features(problem: Problem) -> tuple[ModelInput, ...]:
    """Returns the inputs of the network, in the order of the problem's features."""
    requests = request_names(feature.name for feature in problem.features)
    return tuple(
        ModelInput(feature.name, request, feature.dtype.name, feature.shape)
        for feature, request in zip(problem.features, requests, strict=True)
    )


def describe_inputs(
    tft_output: tft.TFTransformOutput, problem: Problem, settings: TrainerSettings
) -> ModelInterface:
    """Returns the inputs of the serving signatures, by column."""
    labelled_spec = raw_spec(tft_output, settings)
    spec = without_label(labelled_spec, problem)
    tensors = raw_tensor_specs(spec, settings)
    columns = []
    for (name, column), (request, tensor) in zip(spec.items(), tensors.items(), strict=True):
        feature = settings.features.get(name)
        is_fixed = isinstance(column, tf.io.FixedLenFeature)
        is_list = feature is not None and feature.is_list and not is_fixed
        parses_text = feature is not None and column.dtype == tf.string
        style = feature.written if isinstance(feature, NumericFeature) and parses_text else None
        columns.append(
            RawColumn(
                name=name,
                request=request,
                dtype=tensor.dtype.name,
                is_whole=column.dtype.is_integer,
                width=None if is_list else math.prod(column.shape) if is_fixed else 1,
                picture=feature.origin if isinstance(feature, ImageFeature) else "",
                forms=tuple(feature.forms().items()) if feature and parses_text else (),
                style=style or "",
                unit=(feature.unit or "") if isinstance(feature, NumericFeature) and style else "",
            )
        )
    label = labelled_spec[problem.label].dtype.name
    return ModelInterface(
        tuple(columns),
        problem.label,
        label,
        problem.target.kind,
        settings.weight,
        problem.classes,
        describe_features(problem),
        tuple(sorted(tft_output.raw_feature_spec().keys() - labelled_spec.keys())),
    )


def raw_tensor_specs(spec: FeatureSpec, settings: TrainerSettings) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of the signature with one tensor per column.

    A column of images is [batch], a column of lists [batch, n], any other column [batch] or
    [batch, 1]. To accept both shapes, the specification of other columns has no rank. Images have a
    rank because some clients need it. A list is padded with missing values.

    A request contains every column, even if its values may be missing. The empty string stands for
    missing text and NaN for a missing number, so integers that may be missing are sent as float64.
    """
    return {
        name: tf.TensorSpec(
            _request_shape(settings.features.get(column_name)),
            tf.float64 if _may_be_missing(column) and column.dtype.is_integer else column.dtype,
            name=name,
        )
        for name, (column_name, column) in zip(request_names(spec), spec.items(), strict=True)
    }


def _request_shape(feature: BaseFeature | None) -> list[None] | None:
    if feature is not None and feature.is_list:
        return [None, None]
    return [None] if isinstance(feature, ImageFeature) else None


def raw_spec(tft_output: tft.TFTransformOutput, settings: TrainerSettings) -> FeatureSpec:
    """Returns the parsing specification of the columns that the model reads, and of the label."""
    return {
        name: column
        for name, column in tft_output.raw_feature_spec().items()
        if settings.is_requested(name)
    }


def without_label(spec: FeatureSpec, problem: Problem) -> FeatureSpec:
    """Returns the columns that requests send."""
    return {name: value for name, value in spec.items() if name != problem.label}


def _may_be_missing(column: object) -> bool:
    return not isinstance(column, tf.io.FixedLenFeature) or column.default_value is not None


def to_raw_features(columns: Tensors, spec: FeatureSpec) -> Tensors:
    """Converts a tensor per column to the tensors that the parsing of a tf.Example returns."""
    return {
        column: _to_raw_feature(columns[name], spec[column])
        for name, column in zip(request_names(spec), spec, strict=True)
    }


def _to_raw_feature(
    values: tf.Tensor, column: tf.io.FixedLenFeature | tf.io.VarLenFeature | tf.io.RaggedFeature
) -> tf.Tensor | tf.SparseTensor | tf.RaggedTensor:
    if isinstance(column, tf.io.FixedLenFeature):
        if column.dtype.is_integer and _may_be_missing(column):
            integers = tf.cast(values, column.dtype)
            values = tf.where(tf.math.is_nan(values), column.default_value, integers)
        return tf.reshape(values, [-1, *column.shape])
    is_list = values.shape.rank == 2  # Only columns of lists have this rank.
    values = values if is_list else tf.reshape(values, [-1, 1])
    present = values != "" if values.dtype == tf.string else ~tf.math.is_nan(values)
    if not is_list and not isinstance(column, tf.io.RaggedFeature):
        # This needs a third of the operations that a ragged tensor needs.
        indices = tf.where(present)
        present_values = tf.cast(tf.gather_nd(values, indices), column.dtype)
        return tf.SparseTensor(indices, present_values, tf.shape(values, tf.int64))
    ragged = tf.ragged.boolean_mask(tf.cast(values, column.dtype), present)
    return ragged if isinstance(column, tf.io.RaggedFeature) else ragged.to_sparse()


SERVING_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
"""The signature from serialized tf.Examples to predictions by name."""

SERVING_RAW_SIGNATURE = "serving_raw"
"""The signature from one tensor per raw column to predictions by name."""

TRANSFORM_SIGNATURE = "transform_features"
"""The signature from serialized tf.Examples to transformed features and the label."""

SERVING_TRANSFORM_SIGNATURE = "serving_transform"
"""The signature from the inputs of SERVING_SIGNATURE to transformed features, the variants' inputs.
"""

SERVING_RAW_TRANSFORM_SIGNATURE = "serving_raw_transform"
"""The signature from the inputs of SERVING_RAW_SIGNATURE to transformed features."""

EVAL_SIGNATURE = "eval"
"""The signature from serialized tf.Examples to the output that the evaluation compares with the
label."""

EVAL_LABEL_SIGNATURE = "eval_label"
"""The signature from serialized tf.Examples with labels to `EVAL_LABEL`, the transformed label."""

EVAL_LABEL = "transformed_label"
"""The name of the transformed label.

It differs from the name of the raw label, because an evaluation can slice by the raw label."""

EXAMPLES = "examples"
"""The name of the input of serialized tf.Examples."""


def build_signatures(
    model: Callable[..., tf.Tensor],
    transform: Callable[[Tensors], Tensors],
    tft_output: tft.TFTransformOutput,
    problem: Problem,
    settings: TrainerSettings,
) -> dict[str, tf.types.experimental.GenericFunction]:
    """Returns the signatures, by name, of a model or a callable with its interface.

    TensorFlow traces the signatures when the model is saved, because it replaces replicated
    variables only during saving.

    Args:
      model: the function from transformed features to the output of the task, with an argument
        `training`.
      transform: the transform graph, which the saved object tracks.
      tft_output: the output of Transform, which has the raw feature spec.
      problem: the learning problem, which has the names of the transformed features and the
        classes.
      settings: the settings, which name the label, the weight and the ignored columns. No serving
        signature takes these columns.
    """
    labelled_spec = raw_spec(tft_output, settings)
    spec = without_label(labelled_spec, problem)
    names, target = [feature.name for feature in problem.features], problem.target
    call = apply_with_outputs(model, problem, settings.model)

    # The signatures share this function, because tracing a network of 200 layers takes seconds. A
    # shared graph is also saved and loaded only once.
    @tf.function(autograph=False)
    def apply(features: Tensors) -> tuple[tf.Tensor, Tensors]:
        return call(features)

    def answer(features: Tensors) -> Tensors:
        output, additional = apply(features)
        return served(output, additional, problem, settings.model)

    # The signatures also share the transformation.
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
        return answer(serving_transform(examples))

    @tf.function(autograph=False, input_signature=takes_columns)
    def serving_raw(columns: Tensors) -> Tensors:
        return answer(serving_raw_transform(columns))

    @tf.function(autograph=False, input_signature=takes_examples)
    def transform_features(examples: tf.Tensor) -> Tensors:
        transformed = transform(tf.io.parse_example(examples, labelled_spec))
        return {name: transformed[name] for name in [*names, problem.label]}

    @tf.function(autograph=False, input_signature=takes_examples)
    def evaluate(examples: tf.Tensor) -> Tensors:
        output, _ = apply(serving_transform(examples))
        return target.measured(output)

    @tf.function(autograph=False, input_signature=takes_examples)
    def eval_label(examples: tf.Tensor) -> Tensors:
        label = transform_features(examples)[problem.label]
        return {EVAL_LABEL: target.measured_label(label, problem)}

    return {
        SERVING_SIGNATURE: serving_default,
        SERVING_RAW_SIGNATURE: serving_raw,
        FROM_TRANSFORMED_SIGNATURE: numeric_signature(apply, problem, settings.model),
        SERVING_TRANSFORM_SIGNATURE: serving_transform,
        SERVING_RAW_TRANSFORM_SIGNATURE: serving_raw_transform,
        TRANSFORM_SIGNATURE: transform_features,
        EVAL_SIGNATURE: evaluate,
        EVAL_LABEL_SIGNATURE: eval_label,
    }


def export_model(
    model: tf_keras.Model,
    tft_output: tft.TFTransformOutput,
    problem: Problem,
    settings: TrainerSettings,
    directory: str,
    options: tf.saved_model.SaveOptions | None = None,
) -> None:
    """Saves the model with its signatures; the transform graph becomes a part of the model.

    The function also writes two descriptions: of the weights, for a warm start of later training
    runs, and of the inputs, for prediction and serving.
    """
    report_step("traces the signatures and saves the model")
    description = describe_model(model, problem, tft_output, settings.model.kind)
    # The layer is an attribute of the model, so TensorFlow saves its vocabularies with the model.
    model.tft_layer = _transform_layer(tft_output)
    signatures = build_signatures(model, model.tft_layer, tft_output, problem, settings)
    # Keras needs a trace of every layer only to load a model without its code. Models of the zoo
    # are rebuilt from their config, and serving uses the signatures. Layers of the user and of
    # quantization-aware training are not Keras's own, so their models need the traces.
    traces = settings.model.is_custom or settings.optimize.quantize is not None
    try:
        model.save(
            directory,
            save_format="tf",
            signatures=signatures,
            save_traces=traces,
            options=options,
        )
    finally:
        del model.tft_layer  # Checkpoints of the model do not contain it.
    write_description(description, directory)
    write_interface(describe_inputs(tft_output, problem, settings), directory)


def _transform_layer(tft_output: tft.TFTransformOutput) -> tf_keras.layers.Layer:
    """Returns the layer of the transform graph, which takes float32 in any precision."""
    precision = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("float32")
    try:
        return tft_output.transform_features_layer()
    finally:
        tf_keras.mixed_precision.set_global_policy(precision)


def try_export(
    model: tf_keras.Model,
    tft_output: tft.TFTransformOutput,
    problem: Problem,
    settings: TrainerSettings,
) -> None:
    """Exports a model to a temporary folder, so that export errors are raised before training.

    Raises:
      TrainingError: the model cannot be exported; the message quotes TensorFlow's error.
    """
    # The variables may be on other hosts, such as a TPU's, which lack this folder, so this host
    # writes the files. Its device name contains its job in the cluster (localhost, chief or
    # worker), so the name is read from a tensor on this host.
    with tf.device("CPU:0"):
        this_host = tf.constant(0).device
    options = tf.saved_model.SaveOptions(experimental_io_device=this_host)
    with ScratchFolder() as scratch:
        try:
            export_model(model, tft_output, problem, settings, scratch, options)
        except Exception as error:  # A user's layer may raise any error.
            raise TrainingError(
                f"model {settings.model.kind!r} cannot be exported, so training does not start: "
                f"{type(error).__name__}: {shorten(error)}"
            ) from error


def write_interface(interface: ModelInterface, directory: str) -> None:
    """Writes the description of an exported model's inputs into the model's folder."""
    path = os.path.join(directory, INTERFACE_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(interface.to_json())
