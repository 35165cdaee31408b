"""The reader of an evaluation, which yields batches of predictions, labels, weights and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.evaluator.batched.slices import ModelRows
from components.evaluator.loaded import load_model
from components.evaluator.slices import BASELINE
from components.tfrecords import read_batches
from trainer_module.errors import DataError
from trainer_module.export.saving import (
    EVAL_LABEL_SIGNATURE,
    EVAL_SIGNATURE,
    TRANSFORM_SIGNATURE,
)
from trainer_module.export.variants.running import RunnableVariant, open_variant


def make_variant_module(exported: Any, folder: str) -> tf.Module:
    """Returns a module with the evaluation signatures of a model and the predictions of a variant.

    Args:
      exported: the loaded model, which parses and transforms the examples and returns the labels.

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
    """Returns a signature that takes serialized examples and returns the outputs of a variant.

    The outputs have the names of the signature `eval`.
    """
    names = [tensor.name for tensor in runnable.variant.inputs]
    specs = exported.signatures[EVAL_SIGNATURE].structured_outputs
    outputs = list(specs)
    transform = exported.signatures[TRANSFORM_SIGNATURE]

    def predict(*values: np.ndarray) -> list[np.ndarray]:
        results = runnable.predict(dict(zip(names, values, strict=True)))
        for name in outputs:
            if not np.isfinite(results[name]).all():
                raise DataError(
                    f"output {name!r} of the variant has NaN or infinite values for rows of the "
                    "eval split"
                )
        return [results[name].astype(specs[name].dtype.as_numpy_dtype) for name in outputs]

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="examples")]
    )
    def evaluate_variant(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        transformed = transform(examples=examples)
        values = tf.numpy_function(
            predict, [transformed[name] for name in names], [specs[name].dtype for name in outputs]
        )
        for name, value in zip(outputs, values, strict=True):
            value.set_shape(specs[name].shape)
        return dict(zip(outputs, values, strict=True))

    return evaluate_variant.get_concrete_function()


UNREADABLE = "Fail to call signature func"
"""The beginning of TFMA's error for a model that cannot parse an example."""
FEATURE_PATTERN = re.compile(r"(Feature|Key): [^\n{]*[^\n{.\s]")
"""The part of TensorFlow's error that contains the name of the unreadable feature."""


@dataclass(frozen=True)
class PredictionPlan:
    """The models to call and the raw columns to read, for the workers that read the files."""

    models: Mapping[str, str]
    """The folder of each model, by TFMA's name of the model."""
    signature: str
    """The signature that returns `predictions`, and also `quantiles` if the model predicts
    quantiles."""
    label_signature: str
    """The signature that returns the labels."""
    label_key: str
    """The output of `label_signature` with the labels."""
    weight: str | None
    """The raw column of the weights, or None if rows have no weights."""
    columns: tuple[schema_pb2.Feature, ...]
    """The raw columns to read: the columns of the slices and of the dependence, and the weight."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """The folder of the variant that predicts in the place of a model, by the model's name."""

    @classmethod
    def of(
        cls,
        config: tfma.EvalConfig,
        schema: schema_pb2.Schema,
        columns: Iterable[str],
        models: Mapping[str, str],
        variants: Mapping[str, str],
    ) -> PredictionPlan:
        """Returns the plan for an EvalConfig.

        Args:
          columns: the columns to read in addition to the weight.
        """
        spec = config.model_specs[0]
        names = {*columns, spec.example_weight_key} - {""}
        features = (feature for feature in schema.feature if feature.name in names)
        (label_signature,) = spec.preprocessing_function_names
        return cls(
            models=models,
            signature=spec.signature_name,
            label_signature=label_signature,
            label_key=spec.label_key,
            weight=spec.example_weight_key or None,
            columns=tuple(schema_pb2.Feature(name=f.name, type=f.type) for f in features),
            variants=variants,
        )


@dataclass(frozen=True)
class PredictedBatch:
    """A batch of rows: the raw columns, and the predictions of each model."""

    models: dict[str, ModelRows]
    columns: pa.RecordBatch

    @property
    def rows(self) -> int:
        """The number of rows in the batch."""
        return len(next(iter(self.models.values())).labels)


class Predictor:
    """Loads the models of an evaluation once per process, and reads its files."""

    def __init__(self, plan: PredictionPlan) -> None:
        self._plan = plan
        loaded = {path: load_model(path) for path in set(plan.models.values())}
        self._models = {name: loaded[path] for name, path in plan.models.items()}
        for name, folder in plan.variants.items():
            self._models[name] = make_variant_module(self._models[name], folder)
        schema = schema_pb2.Schema(feature=plan.columns)
        self._decoder = ExamplesToRecordBatchDecoder(schema.SerializeToString())

    def read(self, file: str) -> Iterator[PredictedBatch]:
        """Yields the batches of a file of gzipped TFRecords.

        Raises:
          DataError: a row has no label or weight.
          RuntimeError: a model cannot read the examples; the message begins with UNREADABLE.
        """
        for records in read_batches(file):
            columns = self._decoder.DecodeBatch(records.tolist())
            weights = self._weights(columns, len(records))
            examples = tf.constant(records)
            yield PredictedBatch(
                {name: self._predict(name, examples, weights) for name in self._models},
                columns,
            )

    def _weights(self, columns: pa.RecordBatch, rows: int) -> np.ndarray:
        name = self._plan.weight
        if name is None:
            return np.ones(rows)
        column = columns.column(name)
        values = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
        if len(values) != rows:
            raise DataError(
                f"{rows - len(values)} of {rows} rows of the eval split have no value in the column"
                f" of weights, {name!r}; give each row a number in that column, or remove"
                " data.weight."
            )
        return values

    def _predict(self, name: str, examples: tf.Tensor, weights: np.ndarray) -> ModelRows:
        signatures, plan = self._models[name].signatures, self._plan
        try:
            outputs = _call(signatures[plan.signature], examples)
        except (tf.errors.OpError, KeyError) as error:
            raise RuntimeError(f"{UNREADABLE}: {error}") from error
        try:
            labels = _call(signatures[plan.label_signature], examples)[plan.label_key]
        except (tf.errors.OpError, KeyError) as error:
            if name == BASELINE:
                raise RuntimeError(f"{UNREADABLE}: {error}") from error
            # The model has parsed the features: only the label can be missing.
            raise DataError(
                f"the eval split has rows whose label cannot be read: {_unreadable_feature(error)}."
                " Give every row a label, or skip rows without a label (data.unlabelled: skip)."
            ) from error
        rows = len(weights)
        predictions = outputs["predictions"].numpy().reshape(rows, -1)
        quantiles = outputs["quantiles"].numpy() if "quantiles" in outputs else np.zeros((rows, 0))
        return ModelRows(
            labels.numpy().reshape(rows), predictions, quantiles.astype(np.float64), weights
        )


def _unreadable_feature(error: Exception) -> str:
    feature = FEATURE_PATTERN.search(str(error))
    return feature[0] if feature else str(error).splitlines()[0]


def _call(signature: Any, examples: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the outputs of a signature with one input.

    The input is a keyword argument, because TensorFlow formats the whole tensor of a positional
    argument first.
    """
    positional, named = signature.structured_input_signature
    (name,) = named or [spec.name for spec in positional]
    outputs: dict[str, tf.Tensor] = signature(**{name: examples})
    return outputs
