"""The module file of a stock TFX pipeline for the taxi data: preprocessing and a Keras model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from tfx.components.trainer.fn_args_utils import DataAccessor, FnArgs
from tfx_bsl.public import tfxio

LABEL = "big_tipper"
NUMERIC = ("trip_miles", "fare", "trip_seconds", "pickup_census_tract", "dropoff_census_tract")
BUCKETS = ("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude")
TEXT = ("payment_type", "company")
INTEGERS = {
    "trip_start_month": 13,
    "trip_start_day": 8,
    "trip_start_hour": 24,
    "pickup_community_area": 800,
    "dropoff_community_area": 800,
}
VOCABULARY_SIZE, OOV_BUCKETS, BUCKET_COUNT = 1000, 10, 10
BATCH_SIZE = 64


def _dense(column: tf.SparseTensor | tf.Tensor) -> tf.Tensor:
    """Returns a column as [batch], with a default value instead of missing values."""
    if not isinstance(column, tf.SparseTensor):
        return tf.reshape(column, [-1])
    default: Any = "" if column.dtype == tf.string else 0
    wide = tf.SparseTensor(column.indices, column.values, [column.dense_shape[0], 1])
    return tf.squeeze(tf.sparse.to_dense(wide, default), axis=1)


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Returns the template's features: z-scores, buckets and vocabularies."""
    outputs = {name: tft.scale_to_z_score(_dense(inputs[name])) for name in NUMERIC}
    for name in BUCKETS:
        outputs[name] = tft.bucketize(_dense(inputs[name]), BUCKET_COUNT)
    for name in TEXT:
        outputs[name] = tft.compute_and_apply_vocabulary(
            _dense(inputs[name]), top_k=VOCABULARY_SIZE, num_oov_buckets=OOV_BUCKETS
        )
    for name in INTEGERS:
        outputs[name] = tf.cast(_dense(inputs[name]), tf.int64)
    outputs[LABEL] = tf.cast(_dense(inputs[LABEL]), tf.int64)
    return outputs


def _model() -> tf_keras.Model:
    sizes = {
        **dict.fromkeys(BUCKETS, BUCKET_COUNT),
        **dict.fromkeys(TEXT, VOCABULARY_SIZE + OOV_BUCKETS),
        **INTEGERS,
    }
    layers = tf_keras.layers
    inputs = {name: layers.Input([1], name=name) for name in NUMERIC}
    inputs |= {name: layers.Input([1], name=name, dtype=tf.int64) for name in sizes}
    deep = layers.concatenate([inputs[name] for name in NUMERIC])
    for units in (100, 70, 50, 25):
        deep = layers.Dense(units)(deep)
    wide = layers.concatenate(
        [
            layers.CategoryEncoding(size, output_mode="multi_hot")(inputs[name])
            for name, size in sizes.items()
        ]
    )
    output = layers.Dense(1, "sigmoid")(layers.concatenate([deep, wide]))
    model = tf_keras.Model(inputs, output)
    model.compile("adam", "binary_crossentropy", metrics=["binary_accuracy"])
    return model


def _dataset(files: Any, accessor: DataAccessor, schema: Any) -> tf.data.Dataset:
    options = tfxio.TensorFlowDatasetOptions(batch_size=BATCH_SIZE, label_key=LABEL)
    return accessor.tf_dataset_factory(files, options, schema).repeat()


def run_fn(fn_args: FnArgs) -> None:
    """Trains for the given number of steps, and exports serving and transform signatures."""
    output = tft.TFTransformOutput(fn_args.transform_output)
    schema = output.transformed_metadata.schema
    model = _model()
    model.fit(
        _dataset(fn_args.train_files, fn_args.data_accessor, schema),
        steps_per_epoch=fn_args.train_steps,
        validation_data=_dataset(fn_args.eval_files, fn_args.data_accessor, schema),
        validation_steps=fn_args.eval_steps,
        callbacks=[tf_keras.callbacks.TensorBoard(fn_args.model_run_dir, update_freq="epoch")],
        verbose=0,
    )
    model.tft_layer = output.transform_features_layer()
    raw = output.raw_feature_spec()
    serving = {name: spec for name, spec in raw.items() if name != LABEL}
    examples = tf.TensorSpec([None], tf.string, name="examples")

    @tf.function
    def serve(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": model(model.tft_layer(tf.io.parse_example(examples, serving)))}

    @tf.function
    def transform(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(model.tft_layer(tf.io.parse_example(examples, raw)))

    signatures = {
        "serving_default": serve.get_concrete_function(examples),
        "transform_features": transform.get_concrete_function(examples),
    }
    model.save(fn_args.serving_model_dir, save_format="tf", signatures=signatures)
